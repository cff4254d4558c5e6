"""A pointer that the program's own native object keeps, to the memory of a tensor that it does not hold.

`data_ = vectors.data_ptr<float>();` in `build()`, used by `search()`: the tensor ends with the line that passed it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import msgspec

from pytracer._library_files import is_library_file
from pytracer._patterns import Pattern
from pytracer._text import shortened
from pytracer.analyze.evidence.lifetime.where_made import place_of
from pytracer.analyze.evidence.native.fault_function import is_of_own_image
from pytracer.analyze.evidence.native.native_stack import own_frames
from pytracer.analyze.evidence.own_code.c_text import Function, function_around, statement_at
from pytracer.analyze.evidence.own_code.freeing_line import bare
from pytracer.analyze.evidence.own_code.native_source import own_sources
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.naming import short_file
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import Storage
from pytracer.report.job import PythonFrame

_SETS = Pattern(
    r"(?m)^\s*(?:this->)?(?P<name>\w+)\s*=\s*(?P<value>[^=;][^;]*?)(?:\.(?:const_|mutable_)?data_ptr\b[^;]*)?;"
)
_QUOTED = 50


class KeptPointer(msgspec.Struct, frozen=True):
    """`name` was set at `place`, in `function`, to the address of `given`, which `line` (`line 47`) passed."""

    name: str
    place: str
    function: str
    given: str
    line: str
    temporary: bool

    @property
    def summary(self) -> str:
        """Behind the headline."""
        what = f"a temporary of {self.line}" if self.temporary else f"which {self.line} passed"
        return f"`{self.name}` has kept the address of `{self.given}`, {what}, since {self.function}() ({self.place})"

    @property
    def advice(self) -> str:
        """The change to make."""
        return (
            f"Hold the tensor for as long as `{self.name}` is used: let {self.function}() store it beside the pointer "
            f"({self.place}; a torch::Tensor member), or keep `{self.given}` of {self.line} in an attribute in Python."
        )


def kept_pointer(view: ProcessView) -> KeptPointer | None:
    """Of the freed storage at the fault; None where no line that made or freed it passed it to what keeps pointers."""
    storage = view.place.storage if view.place is not None else None
    frame = next((item for item in own_frames(view)[:1] if is_of_own_image(item)), None)
    sources = own_sources(frame)[:1] if frame is not None else []
    if storage is None or not sources:
        return None
    line, lines = sources[0]
    number, file = line.line or 1, short_file(line.file or "")
    text = "\n".join(lines)
    user = function_around(text, statement_at(lines, number))
    found = {
        kept
        for function, name, place, at in _kept(text, lines[number - 1])
        if user is None or (function.body != user.body and user.place_of(name) is None)
        if (kept := _passed(view, storage, function, name, place, f"{file}:{at}")) is not None
    }
    return found.pop() if len(found) == 1 else None


def _kept(text: str, running: str) -> Iterator[tuple[Function, str, int, int]]:
    """Which functions set what the running line goes through, to which of their parameters, in which line."""
    for match in _SETS.finditer(text):
        name = match["name"]
        if not re.search(rf"\b{name}\s*(?:\[|->)|\*\s*{name}\b", running):
            continue
        function = function_around(text, match.start("name"))
        value = bare(match["value"])
        place = function.place_of(value) if function is not None and re.fullmatch(r"\w+", value) else None
        if function is not None and place is not None:
            yield function, name, place, text.count("\n", 0, match.start("name")) + 1


def _passed(
    view: ProcessView, storage: Storage, function: Function, name: str, place: int, at: str
) -> KeptPointer | None:
    """By the lines of the program at which the memory was allocated and freed."""
    sites = (storage.freed_by, storage.allocated_by)
    known = (item for site in sites if site is not None for item in (site.caller, site.python))
    for frame in known:
        if frame is None or not frame.line or is_library_file(frame.file):
            continue
        tree = syntax_tree(view.process.snapshot, PythonFrame(file=frame.file, line=frame.line))
        calls = [
            node
            for node in nodes_of(tree or ast.Module([], []))
            if isinstance(node, ast.Call) and called_name(node) == function.name and len(node.args) > place
            if node.lineno <= frame.line <= (node.end_lineno or node.lineno)
        ]
        if len(calls) == 1:
            given = calls[0].args[place]
            line = place_of(view, frame.file, calls[0].lineno)
            temporary = not isinstance(given, (ast.Name, ast.Attribute))
            return KeptPointer(name, at, function.name, shortened(ast.unparse(given), _QUOTED), line, temporary)
    return None
