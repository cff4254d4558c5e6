"""A buffer that the running function of the program's own C fills by a counter, and that has room for fewer.

`cell_t *c = cells + count++;` in a loop below `n`, where the line passes `n` = 150000 and memory for 26785 cells: what
lies behind the buffer is written over, and a pointer read from there leads anywhere. By the source of the function, and
by the numbers and the memory that Python passed.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import msgspec

from pytracer._text import list_words, shortened
from pytracer.analyze.address_space.referrers import data_registers
from pytracer.analyze.evidence.lifetime.where_made import place_of
from pytracer.analyze.evidence.own_code.c_counters import CounterWrite, counter_writes
from pytracer.analyze.evidence.own_code.c_text import declared_name, split, without_comments
from pytracer.analyze.evidence.own_code.own_signature import CalledDefinition, called_definition, parameter
from pytracer.analyze.evidence.own_code.passed_arrays import PassedArrays
from pytracer.analyze.evidence.own_code.passed_memory import called_by_ctypes
from pytracer.analyze.evidence.own_code.struct_fields import c_structures
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import is_parameter
from pytracer.analyze.naming import LineWords
from pytracer.analyze.view import ProcessView

_QUOTED = 60


class Overfilled(msgspec.Struct, frozen=True):
    """`place` has `text`, which writes up to `count` elements, one for each below `bound`, into `buffer`.

    `size`: a number that the line passes as well, which is how many there is `room` for; `made`: what it was made of.
    `reached`: a register has a number of elements that is beyond the room.
    """

    function: str
    place: str
    text: str
    element: str
    buffer: str
    room: int
    bound: str
    count: int
    line: LineWords
    size: str | None
    made: LineWords | None
    parts: tuple[LineWords, ...]
    reached: bool

    @property
    def summary(self) -> str:
        """Behind the headline."""
        wrote = "probably wrote" if self.reached else "may have written"
        return (
            f"{self.function}() {wrote} past `{self.buffer}` before, which has room for {self.room} elements of "
            f"{self.element}, while {self.place} adds up to `{self.bound}` = {self.count}"
        )

    @property
    def advice(self) -> str:
        """The change to make."""
        size = ""
        if self.size is not None:
            made = f", which is {self.made}" if self.made is not None else ""
            parts = f" with {list_words(self.parts)}" if self.parts else ""
            size = f", as `{self.size}` says{made}{parts}"
        return (
            f"Make `{self.buffer}` with room for `{self.bound}` = {self.count} elements, or for as many as there can "
            f"be: {self.line} passes room for {self.room}{size}. {self.place} (`{self.text}`) compares their number "
            f"with nothing: let {self.function}() stop where there is no room. What lies behind the buffer is written "
            "over, so that the crash may be elsewhere."
        )


def overfilled(view: ProcessView) -> Overfilled | None:
    """Of the function that the line calls by ctypes; None where it has room for all, or that is not known."""
    called = called_definition(view) if called_by_ctypes(view) else None
    if called is None:
        return None
    arrays = PassedArrays(view)
    text, parameters = without_comments(called.found.body), split(called.found.parameters)
    names = tuple(map(declared_name, parameters))
    for write in counter_writes(text, names):
        found = _of(view, called, arrays, text, parameters, names, write)
        if found is not None:
            return found
    return None


def _of(
    view: ProcessView, called: CalledDefinition, arrays: PassedArrays, text: str, parameters: tuple[str, ...],
    names: tuple[str, ...], write: CounterWrite,
) -> Overfilled | None:  # fmt: skip
    place = names.index(write.name)
    function = _name(called)
    memory = arrays.passed(function, names, place)
    given = arrays.argument(function, names, names.index(write.bound))
    count = arrays.number(*given) if given is not None else None
    element, nbytes = _element(called, parameters[place])
    if memory is None or given is None or count is None or not nbytes:
        return None
    room = memory.elements * memory.nbytes // nbytes
    if room >= count:
        return None
    number = text.count("\n", 0, write.start)
    size = next(_sizes(arrays, function, names, room), None)
    held = data_registers(view.crash).values() if view.crash is not None else ()
    return Overfilled(
        function,
        f"{called.found.file}:{called.found.line + number}",
        shortened(called.found.body.splitlines()[number].strip(), _QUOTED),
        element,
        memory.name,
        room,
        write.bound,
        count,
        place_of(view, called.spot.file, called.spot.line),
        size[0] if size is not None else None,
        *(_made(view, arrays, *size[1:]) if size is not None else (None, ())),
        any(room < value < count for value in held),
    )


def _name(called: CalledDefinition) -> str:
    func = called.call.func
    return func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")


def _element(called: CalledDefinition, declared: str) -> tuple[str, int]:
    """Of what a parameter points at: `cell_t` and 24."""
    taken = parameter(declared, "", "")
    if taken.element is not None:
        return taken.element, taken.nbytes
    if declared.count("*") != 1:
        return "", 0
    words = declared.partition("*")[0].replace("const", " ").replace("struct", " ").split()
    found = {item.name: item.nbytes for item in c_structures(called.found.text, "")}
    return (words[-1], found.get(words[-1], 0)) if words else ("", 0)


def _sizes(
    arrays: PassedArrays, function: str, names: tuple[str, ...], room: int
) -> Iterator[tuple[str, ast.expr, Spot]]:
    """Variables that the line passes, and that are how much room there is."""
    for place in range(len(names)):
        given = arrays.argument(function, names, place)
        if given is not None and variable(given[0]) is not None and arrays.number(*given) == room:
            yield variable(given[0]) or "", *given


def _made(
    view: ProcessView, arrays: PassedArrays, node: ast.expr, spot: Spot
) -> tuple[LineWords | None, tuple[LineWords, ...]]:
    """The line that made a number, and what callers pass for the parameters in it that are factors: `2.5 / 14`."""
    made = arrays.back.made(node, spot, calls=False)
    whole = next((part for part, _ in made.through if isinstance(part, ast.Call)), made.node)  # int(...)
    if whole is node or not isinstance(whole, ast.expr):
        return None, ()
    names = {name for item in nodes_of(whole) if (name := variable(item)) is not None}
    parts = []
    for name in sorted(name for name in names if is_parameter(made.spot.scope, name)):
        passed = arrays.back.argument(name, made.spot)
        written = isinstance(passed[0], (ast.Constant, ast.BinOp)) if passed is not None else False
        if passed is not None and written:
            at = place_of(view, passed[1].file, getattr(passed[0], "lineno", passed[1].line))
            parts.append(_quoted(at, ast.unparse(passed[0])).after(f"`{name}` = "))
    return _quoted(place_of(view, made.spot.file, made.line), ast.unparse(whole)), tuple(parts)


def _quoted(at: LineWords, text: str) -> LineWords:
    """`` `2.5 / 14` (line 63) ``."""
    return at.after(f"`{shortened(text, _QUOTED)}` (").then(")")
