"""The array of the program that the failing line of its own C indexes, at an element that it has not.

`v = cell_of[cell]` with `cell = (c[2] * ny + c[1]) * nx + c[0]` and `c[j] = (int)((points[i * dim + j] - low[j]) /
size[j])`: which array was left at which index, and which others that index was computed from. By the source, by the
arrays that Python passed, and by registers that have the array's first byte and the index.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from pytracer._text import list_words, shortened
from pytracer.analyze.address_space.referrers import data_registers
from pytracer.analyze.evidence.indices.narrowed_floats import SMALLEST_32, SMALLEST_64
from pytracer.analyze.evidence.lifetime.variables import line_words
from pytracer.analyze.evidence.own_code.c_text import closing, function_around, statement_at, without_comments
from pytracer.analyze.evidence.own_code.lookups import Lookup, Lookups, has_unseen, is_filled, lookups, parameter_of
from pytracer.analyze.evidence.own_code.native_bounds import LOOP, NAME, assigned_value, running_frame
from pytracer.analyze.evidence.own_code.native_source import own_source
from pytracer.analyze.evidence.own_code.own_signature import parameter
from pytracer.analyze.evidence.own_code.passed_arrays import PassedArray, PassedArrays
from pytracer.analyze.platform.instruction import signed
from pytracer.analyze.view import ProcessView
from pytracer.report.job import Evidence

_WRAP = 1 << 32
_SCALES, _QUOTED, _MOST, _NEAR = (1, 2, 4, 8), 60, 4, 64


class IndexedArray(msgspec.Struct, frozen=True):
    """`place` takes `text`, element `row` of `array`, which has fewer; `index`: as it is written there.

    `by`: the arrays that the index was computed from, those with most elements first. `counter`: a variable in it that
    the function advances, and compares with nothing. `reached`: a register has a number that is nearly that index.
    `behind`: the element that the index was read from, how that is indexed, and its array, where none of the numbers in
    that is this one: it was read from outside of it.
    """

    place: str
    function: str
    text: str
    index: str
    array: PassedArray
    row: int
    by: tuple[PassedArray, ...]
    counter: str | None
    line: str
    reached: bool
    behind: tuple[str, str, PassedArray] | None = None

    @property
    def summary(self) -> str:
        """What a headline ends with."""
        if self.behind is not None:
            text, at, array = self.behind
            return (
                f"`{text}` was read from outside of {array.words}{_range(array)}: it was {self.row}, and is an index "
                f"of {self.array.words}; `{at}` must be inside 0..{array.elements - 1}"
            )
        index = f"`{self.index}`" if self.counter is None else f"`{self.index}`, which counts by `{self.counter}`,"
        made = f"; it is computed from {self._sources}" if self.by else ""
        return f"{index} was {self.row}, and {self.array.words} has {self.array.elements} elements{made}"

    @property
    def evidence(self) -> Evidence:
        """What the address is."""
        return Evidence(
            "index",
            f"{self.place} takes `{self.text}`, and the address is that of element {self.row} of {self.array.words}",
            tensor=self.array.name,
            value=self.row,
            limit=self.array.elements,
        )

    @property
    def advice(self) -> str:
        """What to change."""
        inside = f"inside 0..{self.array.elements - 1}"
        if self.behind is not None:
            text, at, array = self.behind
            return (
                f"Keep `{at}` inside 0..{array.elements - 1}, as `{array.name}` has it, in {self.function}(), which "
                f"reads `{text}` unchecked: pass that length and let the function stop there, or find which number "
                f"that {self.line} passes makes it go on for longer. All numbers in `{array.name}` fit "
                f"`{self.array.name}`."
            )
        refuse = f"{self.place} uses it unchecked: let {self.function}() refuse what is outside."
        if self.counter is not None:
            return (
                f"Give `{self.array.name}` as many elements as {self.function}() counts to before {self.line} passes "
                f"it, or pass its length and let the function stop there: nothing compares `{self.counter}` with a "
                f"limit, and `{self.index}` must stay {inside}."
            )
        if self.by:
            return (
                f"Check {self._sources} before {self.line} passes {'them' if len(self.by) > 1 else 'it'}, or the size "
                f"of `{self.array.name}`: `{self.index}` must be {inside}, and {refuse}"
            )
        return f"Check what makes `{self.index}` {self.row}: it must be {inside}, and {refuse}"

    @property
    def _sources(self) -> str:
        return list_words([item.words + _range(item) for item in self.by])


def _range(item: PassedArray) -> str:
    return f" with numbers {item.low}..{item.high}" if item.low is not None else ""


def indexed_array(view: ProcessView, low: int | None = None) -> IndexedArray | None:
    """None where the line may have left another array.

    Args:
        view: The process.
        low: From there on the memory before the address may be accessed without a gap; None: registers must show the
            array and the index.
    """
    found = lookups(view)
    if found is None or view.place is None or view.crash is None:
        return None
    arrays, body = PassedArrays(view), _body(view) or ""
    left = [(item, array) for item in found.found for array in _left(view, arrays, item, low)]
    if len({(item.text, array.name) for item, array in left}) != 1:
        return None
    item, array = left[0]
    if _is_moved(body, item.array) or not _fits(found.statement, body, item, array):
        return None
    row = signed(view.place.addr - array.data) // array.nbytes
    if row in (SMALLEST_32, SMALLEST_64):
        return None
    reached = any(array.elements < value <= row < value + _NEAR for value in data_registers(view.crash).values())
    if low is not None and not reached and _has_others(view, arrays, found):
        return None
    index = item.text[len(item.array) :].strip()[1:-1].strip()
    by = {one.name: one for one in _sources(arrays, item.by) if one.name != array.name}
    return IndexedArray(
        found.place,
        item.scope.name,
        shortened(item.text, _QUOTED),
        shortened(index, _QUOTED),
        array,
        row,
        tuple(sorted(by.values(), key=lambda one: -one.elements))[:_MOST],
        _counter(body, index),
        line_words(view),
        reached,
        _read_behind(arrays, body, item, index, array, row),
    )


def _is_moved(body: str, name: str) -> bool:
    """Whether the function lets the pointer go on, `x += width`: the index is counted from elsewhere then."""
    own = rf"(?<![\w.>]){re.escape(name)}\b"
    steps = rf"{own}\s*(?:[-+]=|\+\+|--)|(?:\+\+|--|(?<!&)&)\s*{own}(?!\s*(?:\[|->))|{own}\s*=(?!=)\s*{own}"
    return re.search(steps, body) is not None


def _fits(statement: str, body: str, item: Lookup, array: PassedArray) -> bool:
    """Whether the source does not take the elements for others: for a structure, or by a cast for a wider type."""
    if re.search(rf"{re.escape(item.text)}\s*(?:\.\s*[A-Za-z_]|->)", " ".join(statement.split())):
        return False
    own = re.escape(item.array)
    made = re.search(rf"(?P<type>\w+(?:[\s:]+\w+)*)\s*\*[^;=*&()]*?\b{own}\s*=(?!=)(?P<value>[^;]*)", body)
    value = made["value"] if made is not None else assigned_value([body], item.array) or ""
    types = [made["type"]] if made is not None else []
    types += re.findall(r"[(<]\s*([\w:]+(?:\s+[\w:]+)*)\s*\*\s*[)>]", value)
    sizes = {parameter(f"{one} *{item.array}", "", "").nbytes for one in types} - {0}
    return sizes <= {array.nbytes}


def _has_others(view: ProcessView, arrays: PassedArrays, found: Lookups) -> bool:
    """Whether the line may have left memory that the program did not pass: of a local buffer, or of a member."""
    access = view.fault.access if view.fault is not None else None
    for item in found.found:
        if (access == "read" and not item.reads) or (access == "write" and not item.writes):
            continue
        place = parameter_of(item)
        if place is None or arrays.passed(*place) is None:
            return True
    return access != "write" and has_unseen(found.statement)


def _read_behind(
    arrays: PassedArrays, body: str, item: Lookup, index: str, array: PassedArray, row: int
) -> tuple[str, str, PassedArray] | None:
    """Where the index is an element of an array whose numbers are known, and is none of these: they are all inside."""
    made = item.by[0] if len(item.by) == 1 and index in (item.by[0].variable, item.by[0].text) else None
    parameter = parameter_of(made) if made is not None else None
    found = arrays.passed(*parameter) if parameter is not None else None
    if made is None or found is None or found.low is None or found.high is None:
        return None
    kept = re.escape(index)
    if re.search(
        rf"(?<![\w.>]){kept}\s*(?:[-+*/%&|^]|<<|>>)=|(?<![\w.>]){kept}\s*(?:\+\+|--)|(?:\+\+|--)\s*{kept}\b", body
    ):
        return None  # not as it was read
    if not 0 <= found.low <= found.high < array.elements or found.low <= row <= found.high:
        return None
    text = made.text
    return text, text[len(made.array) :].strip()[1:-1].strip(), found


def _left(view: ProcessView, arrays: PassedArrays, item: Lookup, low: int | None) -> Iterator[PassedArray]:
    """The array of an access, where the address is outside of it."""
    access, place = view.fault.access if view.fault is not None else None, view.place
    if (access == "read" and not item.reads) or (access == "write" and not item.writes) or "][" in item.text:
        return
    parameter = parameter_of(item)
    array = arrays.passed(*parameter) if parameter is not None else None
    if array is None or place is None:
        return
    distance = signed(place.addr - array.data)
    nbytes = array.elements * array.nbytes
    if distance % array.nbytes or 0 <= distance < nbytes:
        return
    if any(0 <= distance + wrap < nbytes for wrap in (_WRAP, array.nbytes * _WRAP)):
        return  # a product in a C int
    behind = low is not None and low <= array.data and distance > 0
    if behind or (low is None and _is_exact(view, array, distance)):
        yield array


def _is_exact(view: ProcessView, array: PassedArray, distance: int) -> bool:
    """Whether one register held its address, and another one what was added to it."""
    held = [*data_registers(view.crash).values()] if view.crash is not None else []
    return array.data in held and any(signed(value * scale) == distance for value in held for scale in _SCALES)


def _sources(arrays: PassedArrays, by: tuple[Lookup, ...]) -> Iterator[PassedArray]:
    for item in by:
        parameter = parameter_of(item)
        array = arrays.passed(*parameter) if parameter is not None else None
        if array is not None and not (is_filled(item) and arrays.is_unset(array)):
            yield array
        yield from _sources(arrays, item.by)


def _counter(body: str, index: str) -> str | None:
    """A variable of the index that the running function advances, where nothing in it compares that with a number."""
    heads = {match["name"] for match in LOOP.finditer(body)}
    names: list[str] = NAME.findall(index)
    for name in dict.fromkeys(names):
        own = rf"(?<![\w.>]){re.escape(name)}\b"
        advanced = re.search(rf"{own}\s*(?:\+\+|\+=)|\+\+\s*{own}", body) is not None
        compared = re.search(rf"{own}\s*(?:[<>]=?|[!=]=)|(?:[<>]=?|[!=]=)\s*{own}", body) is not None
        sets: list[str] = re.findall(rf"{own}\s*=(?!=)([^;]*)", body)
        limited = len(sets) > 1 or any("[" in item for item in sets)  # set back, or a number that was read
        if advanced and not compared and not limited and name not in heads:
            return name
    return None


def _body(view: ProcessView) -> str | None:
    frame = running_frame(view)
    source = own_source(frame) if frame is not None else None
    if source is None or source[0].line is None:
        return None
    text = without_comments("\n".join(source[1]))
    around = function_around(text, statement_at(text.split("\n"), source[0].line))
    end = closing(text, around.body) if around is not None else None
    if around is None or end is None:
        return None
    return str(text[around.body : end])
