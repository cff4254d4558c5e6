"""The line that took a tensor's memory away: `untyped_storage().resize_(0)`, which offloading and sharding do.

The tensor has no address any more. The freed storages are remembered: one of its size that such a line freed.
"""

from __future__ import annotations

import ast

import msgspec

from pytracer._library_files import is_library_file
from pytracer._patterns import Pattern
from pytracer._text import shortened
from pytracer.analyze.evidence.lifetime.variables import program_frames
from pytracer.analyze.evidence.lifetime.where_made import place_of
from pytracer.analyze.evidence.slicing.callers import only_call
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.syntax.calls import called_name, passed_values
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import scope_of
from pytracer.analyze.naming import LineWords
from pytracer.analyze.parts import python_frame
from pytracer.analyze.tensors.source_lines import line_text
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import Storage
from pytracer.report.job import PythonFrame

_TO_NOTHING = Pattern(r"\bresize_\(\s*0\s*\)")
_QUOTED = 60
_ELEMENT_BYTES = (1, 2, 4, 8, 16)


def emptied_at(view: ProcessView, elements: int) -> str | None:
    """`` line 19 in drop (`p.untyped_storage().resize_(0)`) ``; None where several lines may have, or none did.

    Args:
        view: The process.
        elements: How many the tensor should have.
    """
    lines = lines_that_empty(view, elements) if elements else []
    if len(lines) != 1:
        return None
    frame, text = lines[0]
    return place_of(view, frame.file, frame.line).then(f" in {frame.function}").quoted(shortened(text, _QUOTED))


def lines_that_empty(view: ProcessView, elements: int) -> list[tuple[PythonFrame, str]]:
    """All that may have, each with its text."""
    freed = view.process.snapshot.storages.freed_of(sizes_of(view, elements))
    return [
        *{(frame.file, frame.line): (frame, text) for item in freed for frame, text in _resizing(view, item)}.values()
    ]


def sizes_of(view: ProcessView, elements: int) -> set[int]:
    """What the memory of a tensor with so many elements had, in bytes."""
    crash = view.crash
    alike = [item for item in (crash.arguments if crash is not None else ()) if not item.base]
    known = {item.element_bytes for item in alike if item.elements == elements}
    return {elements * nbytes for nbytes in (known - {None} or _ELEMENT_BYTES) if nbytes is not None}


def _resizing(view: ProcessView, item: Storage) -> list[tuple[PythonFrame, str]]:
    site = item.freed_by
    known = (site.caller, site.python, *site.stack) if site is not None else ()
    frame = next((one for one in known if one is not None and one.line and not is_library_file(one.file)), None)
    text = line_text(view.process.snapshot, python_frame(frame)) if frame is not None else None
    return [(python_frame(frame), text)] if frame is not None and text is not None and _TO_NOTHING.search(text) else []


class OnlyLine(msgspec.Struct, frozen=True):
    """The only call of the program that resizes a storage to 0; `caller`: the only line that calls its function."""

    at: LineWords
    caller: LineWords | None


def only_line(view: ProcessView) -> OnlyLine | None:
    """By the program's source, where the freed storage is not remembered, or the tensor was a part of it."""
    files = program_files(view.process.snapshot, program_frames(view))
    found = {
        (file, part.lineno): part
        for file, tree in files.items()
        for part in nodes_of(tree)
        if isinstance(part, ast.Call) and called_name(part) == "resize_" and _is_nothing(part)
    }
    if len(found) != 1:
        return None
    ((file, line), call), *_ = found.items()
    scope = scope_of(files[file], line)
    called = only_call(files, scope) if isinstance(scope, (ast.FunctionDef, ast.AsyncFunctionDef)) else None
    caller = None
    if called is not None:
        caller = place_of(view, called.file, called.call.lineno).quoted(shortened(ast.unparse(called.call), _QUOTED))
    return OnlyLine(place_of(view, file, line).quoted(shortened(ast.unparse(call), _QUOTED)), caller)


def _is_nothing(call: ast.Call) -> bool:
    given = passed_values(call)
    return len(given) == 1 and isinstance(given[0], ast.Constant) and given[0].value == 0
