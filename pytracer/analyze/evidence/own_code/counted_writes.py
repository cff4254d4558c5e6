"""A buffer that the program's own C fills by a counter, as far as its inputs go, and that the program made smaller.

`for (i = 0; i < n; i++) if (...) out[kept++] = i;` writes up to `n` elements, whatever `out` has. Read as text: only
where the function does nothing else with the counter, and no test but of the loop's data decides about the write.
"""

from __future__ import annotations

import ast

import msgspec
from msgspec.structs import replace

from pytracer._text import shortened
from pytracer.analyze.behind import Place
from pytracer.analyze.evidence.lifetime.variables import program_frames
from pytracer.analyze.evidence.lifetime.where_made import place_of
from pytracer.analyze.evidence.own_code.c_counters import counter_writes
from pytracer.analyze.evidence.own_code.c_text import declared_name, split, without_comments
from pytracer.analyze.evidence.own_code.own_libraries import OwnCall, OwnLibraries, own_libraries
from pytracer.analyze.evidence.own_code.own_signature import Definition, own_definition, parameter
from pytracer.analyze.evidence.own_code.recorded_arrays import RecordedArrays
from pytracer.analyze.evidence.own_code.short_rooms import ShortRoom, short_room
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.bindings import bound_value
from pytracer.analyze.evidence.syntax.calls import called_name, calls_on, without_ctype
from pytracer.analyze.evidence.syntax.names import bare_names
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import qualified_name, scope_of
from pytracer.analyze.naming import LineWords
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.report.job import PythonFrame

_QUOTED = 60


class CountedWrite(msgspec.Struct, frozen=True):
    """`line` of the C source has `text`, which writes up to `bound` elements of `name`; `count` and `buffer` are what
    the program's call, in the function `inside`, passes for these. `made` makes `room` for fewer elements.
    """

    call: OwnCall
    called: str
    library: str
    line: str
    text: str
    name: str
    bound: str
    buffer: str
    count: str
    at: str
    lines: tuple[Place, ...] = ()
    room: ShortRoom | None = None
    made: LineWords | None = None
    inside: str | None = None
    times: int = 1  # in a round of the loop, at most

    @property
    def summary(self) -> str:
        """Behind `the first suspect is`."""
        if self.room is not None:
            return (
                f"{self.call.function}() of {self.library} ({self.called}{self._inside}), whose {self.line} "
                f"(`{shortened(self.text, _QUOTED)}`) may write up to {self._times}{self._count} elements into "
                f"`{self.buffer}`, which {self.made} makes with {self._size}"
            )
        return (
            f"{self.call.function}() of {self.library} ({self.called}), whose {self.line} "
            f"(`{shortened(self.text, _QUOTED)}`) writes up to `{self.count}` elements into `{self.buffer}`"
        )

    @property
    def advice(self) -> str:
        """The change to make."""
        return (
            f"First suspect is {self.line} (`{shortened(self.text, _QUOTED)}`) in {self.call.function}() of "
            f"{self.library}, which {self.called} calls: it writes up to `{self._times}{self.bound}` elements of "
            f"`{self.name}`, and compares their number with nothing. For `{self.bound}` {self.at} passes "
            f"{self._count}, for `{self.name}` the memory of `{self.buffer}`{self._room}. Make `{self.buffer}` with "
            f"`{self._times}{self.count}` elements, or pass its size to {self.call.function}() and stop there."
        )

    @property
    def _count(self) -> str:
        known = self.room is not None and self.room.numbers
        return f"`{self.count}`{f' = {known[0]}' if known else ''}"

    @property
    def _times(self) -> str:
        return f"{self.times} * " if self.times > 1 else ""

    @property
    def _size(self) -> str:
        room = self.room
        if room is None:
            return ""
        bytes_of = f": as many as `{room.text}` has characters, which may be fewer than its bytes" if room.text else ""
        return f"`{room.size}`{f' = {room.numbers[1]}' if room.numbers else ''}{bytes_of}"

    @property
    def _inside(self) -> str:
        return f" in {self.inside}" if self.inside is not None else ""

    @property
    def _room(self) -> str:
        return f", which {self.made} makes with {self._size}" if self.room is not None else ""


def counted_write(view: ProcessView, buffer: str | None = None) -> CountedWrite | None:
    """Of the only call that gives the program's own library memory; `buffer`: the variable that was written over."""
    libraries = own_libraries(view)
    call = libraries.only_call if libraries is not None else None
    if libraries is None or call is None or len(libraries.names) > 1:
        return None
    found = own_definition(view, call.function)
    tree = syntax_tree(view.process.snapshot, call.at)
    if found is None or tree is None or call.at.line is None:
        return None
    calls = [item for item in calls_on(tree, call.at.line) if call.is_made_by(item)]
    parameters = [declared_name(item) for item in split(found.parameters)]
    given = calls[0].args if len(calls) == 1 and not calls[0].keywords else []
    if len(given) != len(parameters) or any(isinstance(item, ast.Starred) for item in given):
        return None
    passed = dict(zip(parameters, given, strict=True))
    written = _of(found, libraries, call, passed, buffer)
    if written is None or _is_large(tree, call.at.line, written):
        return None
    declared = split(found.parameters)[parameters.index(written.name)]
    element = parameter(declared, found.place, found.body)
    nbytes = element.nbytes or int(declared.startswith(("char ", "unsigned char ", "const char ")))
    spot = Spot(call.at.file, tree, scope_of(tree, call.at.line), call.at.line)
    frames = program_frames(view)
    depth = next((n for n, frame in enumerate(frames) if spot.is_of(frame)), None)
    arrays = RecordedArrays(view, Slice(view.process.snapshot, frames))
    count = without_ctype(passed[written.bound])
    room = short_room(arrays, replace(spot, depth=depth), written.buffer, count, nbytes)
    if room is None:
        return written
    made = (call.at.file, room.line)
    place, inside = place_of(view, *made), None if spot.scope is tree else qualified_name(tree, spot.scope)
    return replace(written, room=room, made=place, inside=inside, lines=(made, *written.lines))


def limited_write(view: ProcessView) -> CountedWrite | None:
    """One whose buffer has a limit that the count does not have: a suspect wherever the heap is damaged."""
    found = counted_write(view)
    return found if found is not None and found.room is not None else None


def _is_large(tree: ast.Module, line: int, written: CountedWrite) -> bool:
    """Whether the line that makes the buffer already takes that count for its size."""
    bound = bound_value(scope_of(tree, line), written.buffer, line)
    limited = {
        id(part)
        for node in (nodes_of(bound[1]) if bound is not None and bound[1] is not None else ())
        if isinstance(node, ast.Call) and called_name(node) == "min" and len(node.args) > 1
        for item in node.args
        for part in nodes_of(item)
    }
    made = nodes_of(bound[1]) if bound is not None and bound[1] is not None else ()
    return any(
        isinstance(item, ast.expr) and id(item) not in limited and ast.unparse(item) == written.count for item in made
    )


def _of(
    found: Definition, libraries: OwnLibraries, call: OwnCall, passed: dict[str, ast.expr], buffer: str | None
) -> CountedWrite | None:
    """The first such write into what the call passes."""
    text = without_comments(found.body)
    writes = [*counter_writes(text, passed)]
    for write in writes:
        name, bound = write.name, write.bound
        held = [item for item in call.passes if item in bare_names(passed[name])]
        if len(held) != 1 or buffer not in (None, held[0]):
            continue
        number = text.count("\n", 0, write.start)
        whole, count = found.body.splitlines()[number].strip(), passed[bound]
        return CountedWrite(
            call,
            libraries.line(call.at),
            libraries.names[0],
            f"{found.file}:{found.line + number}",
            whole,
            name,
            bound,
            held[0],
            ast.unparse(without_ctype(count)),
            libraries.line(_at(call, count.lineno)),
            ((call.at.file, passed[name].lineno), (call.at.file, count.lineno)),
            times=len({item.start for item in writes if (item.name, item.counter) == (name, write.counter)}),
        )
    return None


def _at(call: OwnCall, line: int) -> PythonFrame:
    return PythonFrame(function=call.at.function, file=call.at.file, line=line)
