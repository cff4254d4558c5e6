"""Allocations that are too small in the source of the program's own native code: suspects where a heap is damaged.

The source is a string of the program that it compiles, as for load_inline(), or a file beside the program or the
library. It counts where it has the function that the program calls.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Callable, Iterator

import msgspec

from pytracer._text import shortened
from pytracer.analyze.evidence.lifetime.where_made import place_of
from pytracer.analyze.evidence.own_code.fixed_rooms import FixedRoom
from pytracer.analyze.evidence.own_code.own_libraries import (
    OwnCall,
    OwnLibraries,
    files_of_program,
    own_libraries,
)
from pytracer.analyze.evidence.own_code.passed_arrays import PassedArrays
from pytracer.analyze.evidence.own_code.short_allocations import ShortAllocation, short_allocations, short_rooms
from pytracer.analyze.evidence.own_code.source_files import sources_beside
from pytracer.analyze.evidence.syntax.calls import called_name, calls_on
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.naming import LineWords, short_file
from pytracer.analyze.tensors.source_lines import line_text
from pytracer.analyze.view import ProcessView
from pytracer.report.job import PythonFrame

_QUOTED = 60
_Place = Callable[[int], LineWords | None]


class OwnAllocation(msgspec.Struct, frozen=True):
    """`short` at `place`, used at `use`, in the source of what `call` calls, of `library`, at `called`."""

    short: ShortAllocation
    place: LineWords
    use: LineWords
    call: OwnCall
    called: str
    library: str

    @property
    def _function(self) -> str:
        inner = f" in {self.short.function}()" if self.short.function != self.call.function else ""
        return f"{self.place}{inner} (`{shortened(self.short.text, _QUOTED)}`)"

    @property
    def summary(self) -> str:
        """Behind `the first suspect is`."""
        return (
            f"{self.call.function}() of {self.library} ({self.called}), whose {self._function} {self.short.makes}, "
            f"while {self.use} {self.short.used}"
        )

    @property
    def advice(self) -> str:
        """The change to make."""
        return (
            f"First suspect is {self._function} in the source of {self.call.function}() of {self.library}, which "
            f"{self.called} calls: it {self.short.makes}, but {self.use} {self.short.used}, and so writes over what "
            f"lies behind it. Write {self.short.instead}."
        )


def own_allocation(view: ProcessView) -> OwnAllocation | None:
    """The first one of a source with a function that the program calls; None where the source is not known."""
    libraries = own_libraries(view)
    if libraries is None:
        return None
    for text, place in sources_of(view, libraries):
        call = _called(libraries, text)
        found = next(short_allocations(text), None) or _short_room(view, text) if call is not None else None
        if found is None or call is None:
            continue
        at, use = place(found.line), place(found.use)
        if at is None or use is None:
            continue
        library = libraries.names[0] if len(libraries.names) == 1 else "the program's own library"
        return OwnAllocation(found, at, use, call, libraries.line(call.at), library)
    return None


def _short_room(view: ProcessView, text: str) -> ShortAllocation | None:
    """The first one that is too small for what the running call passes, else that may be for another call."""
    for item in short_rooms(text):
        given = _number_given(view, item.room) if item.room is not None else None
        if given is None:
            larger = f", which are more where `{item.room.argument}` is above {item.room.most}" if item.room else ""
            return msgspec.structs.replace(item, used=f"{item.used}{larger}")
        words, value = given
        if item.room is not None and value > item.room.most:
            return msgspec.structs.replace(item, used=f"{item.used}, with `{item.room.argument}` = {value}{words}")
    return None


def _number_given(view: ProcessView, room: FixedRoom) -> tuple[str, int] | None:
    """The argument of the call that the program's innermost line makes; None where that calls something else."""
    arrays = PassedArrays(view)
    spot = arrays.back.spot(0)
    if spot is None or all(called_name(item) != room.function for item in calls_on(spot.tree, spot.line)):
        return None
    given = arrays.argument(room.function, room.parameters, room.parameters.index(room.argument))
    value = arrays.number(*given) if given is not None else None
    if given is None or value is None:
        return None
    text = shortened(ast.unparse(given[0]), _QUOTED)
    return (f" (`{text}` of the line)" if text != room.argument else ""), value


def _called(libraries: OwnLibraries, text: str) -> OwnCall | None:
    """A call whose function a source has, or gives to Python by that name."""
    named = (call for call in libraries.calls if call.function)
    return next((call for call in named if re.search(rf"\b{re.escape(call.function)}\b\s*[(\",]", text)), None)


def sources_of(view: ProcessView, libraries: OwnLibraries) -> Iterator[tuple[str, _Place]]:
    """Strings of the program that look like C, then files beside it and its libraries; each with words for a line."""
    files = files_of_program(view)
    for file, tree in files.items():
        for node in nodes_of(tree):
            if (
                isinstance(node, ast.Constant)
                and isinstance(node.value, str)
                and "{" in node.value
                and ";" in node.value
            ):
                yield node.value, _of_string(view, file, node, node.value)
    folders = sorted({os.path.dirname(file) for file in files})
    for library in libraries.paths:
        beside = [path for folder in folders if os.path.isfile(path := os.path.join(folder, library))]
        for path, lines in sources_beside(next(iter(beside), library), folders):
            yield "\n".join(lines), _of_file(path)


def _of_string(view: ProcessView, file: str, node: ast.Constant, text: str) -> _Place:
    """By the file's own lines: escapes and strings in several parts may move them."""
    lines = text.splitlines()
    last = node.end_lineno or node.lineno

    def place(number: int) -> LineWords | None:
        wanted = lines[number - 1].strip()
        expected = node.lineno + number - 1
        near = [expected, *(line for line in range(node.lineno, last + 1) if line != expected)]
        texts = ((line, line_text(view.process.snapshot, PythonFrame(file=file, line=line))) for line in near)
        found = next((line for line, own in texts if line <= last and wanted and wanted in (own or "")), None)
        return place_of(view, file, found) if found is not None else None

    return place


def _of_file(path: str) -> _Place:
    return lambda number: LineWords(f"{short_file(path)}:{number}", path, number)
