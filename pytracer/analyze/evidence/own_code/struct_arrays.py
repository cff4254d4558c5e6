"""An index that leads out of an array of a fixed size in a structure of the program's own C: `w->road[w->count++]`.

Python has the address of the structure, its declaration the place of the array, and the fault the address: that gives
the index. Where the field that counts lies right behind the array, the first element that has no room is written over
it, and what was written there is the next index.
"""

from __future__ import annotations

import ast
import re
import struct
from collections.abc import Iterator, Sequence

import msgspec

from pytracer._patterns import Pattern
from pytracer._text import shortened
from pytracer.analyze.evidence.own_code.c_text import closing
from pytracer.analyze.evidence.own_code.c_text import without_comments as plain
from pytracer.analyze.evidence.own_code.native_bounds import running_frame
from pytracer.analyze.evidence.own_code.native_source import own_source
from pytracer.analyze.evidence.own_code.passed_arrays import PassedArrays
from pytracer.analyze.evidence.own_code.passed_through import Level, given_for, levels
from pytracer.analyze.evidence.own_code.struct_fields import Field, Structure, c_structures
from pytracer.analyze.naming import LineWords, line_in
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import HeldArray
from pytracer.report.job import Evidence

_ACCESS = Pattern(r"\b(?P<owner>[A-Za-z_]\w*)\s*->\s*(?P<array>\w+)\s*\[")
_MEMBER = Pattern(r"\s*\.\s*(?P<member>\w+)")
_COUNTS = r"(?:\+\+\s*)?{0}\s*->\s*(?P<field>\w+)\s*(?:\+\+)?"
_MOST_MOVED, _QUOTED = 3, 60
_CLOSE = 1 << 20
_LEAST_BITS = 1 << 23  # a float32 that is less has no exponent
_FLOATS = {4: "f", 8: "d"}
_NEVER_RESET = " No line sets `{}` back to 0: do that where a new round begins, if it is not to count over all calls."
_LEAST_FLOAT, _MOST_FLOAT = 1e-6, 1e9


class StructArray(msgspec.Struct, frozen=True):
    """`place` indexes `array` of `structure`, which has `count` elements, by `index`, written as `text`.

    `counter`: the field that is the index; `follows`: it lies right behind the array; `number`: what `index` is as a
    float, where it may be one; `known`: memory beside a register has that float.
    """

    place: LineWords
    line: str
    function: str
    structure: str
    array: str
    count: int
    size: str
    declared_at: LineWords
    index: int
    text: str
    counter: str | None
    follows: bool
    is_compared: bool
    number: float | None
    known: bool
    is_set: bool  # some line of the source sets the counter, or clears its structure
    base: int
    given: str
    is_reset: bool = True  # some line sets the counter

    @property
    def summary(self) -> str:
        """Behind the place in a headline."""
        named = f", `{self.size}`" if not self.size.isdecimal() else ""
        room = f"`{self.array}` of {self.structure}, which has {self.count} elements ({self.declared_at}{named})"
        return f"index {self.index} leads out of {room}{self._why}"

    @property
    def _why(self) -> str:
        if self.counter is None:
            return ""
        if self.is_compared:
            return f": it is `{self.counter}`"
        if not self.follows:
            return f": it is `{self.counter}`, which counts them"
        behind = f": `{self.counter}`, which is the index, lies right behind it"
        number = f" with the number {self.number:.4g}" if self.number is not None else ""
        if self.known or (number and self.is_set):
            sure = "was" if self.known else "was probably"
            return f"{behind}, and {sure} overwritten{number} by element {self.count}"
        return f"{behind}, so that element {self.count} overwrites it; or it was never set"

    @property
    def evidence(self) -> Evidence:
        """How the index follows from the address."""
        return Evidence(
            "source-line",
            f"`{self.given}` is {self.base:#x}: counted from there, the address is in element {self.index} of "
            f"`{self.array}`, which {self.place} uses",
            text=self.line,
            value=self.index,
            limit=self.count,
        )

    @property
    def advice(self) -> str:
        """What to change."""
        limit = f"`{self.size}`" if self.size.isdecimal() else f"`{self.size}` ({self.count})"
        if self.counter is None:
            return (
                f"Check where `{self.text}` comes from: it was {self.index}, and `{self.array}` has {limit} elements. "
                f"Let {self.function}() refuse what is not below that before {self.place} uses it."
            )
        if self.is_compared:
            return (
                f"`{self.counter}` was {self.index}, although it is compared: see where it is set, and what else "
                f"writes near it. It may never have been set, and {self.function}() may be called with a "
                f"{self.structure} that is not what it was made as; `{self.array}` has {limit} elements."
            )
        checks = f", which it compares with nothing ({self.place}: `{self.line}`)"
        grow = "Make the array larger than what all calls add together" if self.follows else "Count what all calls add"
        unset = "" if self.known else f" If they add less, ask who sets `{self.counter}`: it may never have been set."
        return (
            f"{grow}, or add less: there is room for {limit} elements of `{self.array}` ({self.declared_at}), and "
            f"{self.function}() adds one at `{self.counter}`{checks}. Let it refuse what has no room before it writes."
            f"{unset}{'' if self.is_reset else _NEVER_RESET.format(self.counter)}"
        )


def struct_array(view: ProcessView) -> StructArray | None:
    """Of the innermost function of the program's own; None where more than one array may be meant."""
    frame = running_frame(view)
    way = [*levels(view, frame)] if frame is not None and view.place is not None else []
    source = own_source(frame) if way and frame is not None else None
    if source is None or view.place is None:
        return None
    found = {(item.array, item.index): item for item in _Search(view, way, source[0].file or "", view.place.addr).all()}
    return next(iter(found.values())) if len(found) == 1 else None


class _Search:
    """The accesses of a function to arrays of structures that may be the one at the running line."""

    def __init__(self, view: ProcessView, way: Sequence[Level], file: str, addr: int) -> None:
        self._view, self._way, self._file, self._addr = view, way, file, addr
        self._function, self._lines, self._number = way[0]
        self._text = plain("\n".join(self._lines))
        self._structures = {item.name: item for item in c_structures(self._text, "")}
        self._arrays = PassedArrays(view)

    def all(self) -> Iterator[StructArray]:
        """Those whose index leads out, near the running line or by a pointer that it follows."""
        starts = [0]
        for item in self._lines:
            starts.append(starts[-1] + len(item) + 1)
        first, low = starts[max(self._number - 1 - _MOST_MOVED, 0)], self._function.body
        running, high = starts[self._number - 1], starts[self._number] - 1
        for match in _ACCESS.finditer(self._text, low, high):
            near = match.start() >= max(first, low)
            if near or _is_held(self._text, low, match.start(), self._text[running:high]):
                found = self._of(match)
                if found is not None:
                    yield found

    def _of(self, match: re.Match[str]) -> StructArray | None:
        end = closing(self._text, match.end() - 1)
        place = self._function.place_of(match["owner"])
        kind = re.search(r"(\w+)\s*\*", self._function.parameters[place]) if place is not None else None
        structure = self._structures.get(kind[1]) if kind is not None else None
        fields = [item for item in structure.fields if item.name == match["array"]] if structure is not None else []
        if structure is None or not fields or fields[0].count is None or end is None:
            return None
        given, spot = given_for(self._view, self._way, match["owner"]), self._arrays.back.spot(0)
        base = self._arrays.number(given, spot) if given is not None and spot is not None else None
        nbytes = fields[0].nbytes // fields[0].count
        if base is None or given is None:
            return None
        index, rest = divmod(self._addr - base - fields[0].offset, nbytes)
        if not -(1 << 31) <= index < 1 << 32 or self._is_of_other(base):
            return None
        if (
            0 <= index < fields[0].count
            or _is_bounded(self._text[match.end() : end], index)
            or not self._is_at(match.start(), end, rest, fields[0])
        ):
            return None
        return self._array(match, structure, fields[0], index, end, base, ast.unparse(given))

    def _is_of_other(self, base: int) -> bool:
        """Whether the address lies close behind another array that the line has: that one was left."""
        crash = self._view.crash
        others = [item for item in crash.arrays if item.data not in (None, base)] if crash is not None else []
        return any(0 <= self._addr - (item.data or 0) - _extent(item) < _CLOSE for item in others)

    def _is_at(self, start: int, end: int, rest: int, field: Field) -> bool:
        """Whether the address is that of the member of the element which the source names, where it names one."""
        member = _MEMBER.match(self._text, end + 1)
        name = member["member"] if member is not None else None
        element = self._structures.get(field.type.rpartition(" ")[2])
        held = _held_by(self._text, self._function.body, start)
        if held is not None and _is_given_again(self._text[end:], held, self._lines[self._number - 1]):
            return False
        if name is None and held is not None:
            line = self._lines[self._number - 1]
            used = {item["member"] for item in re.finditer(rf"\b{held}\s*->\s*(?P<member>\w+)", line)}
            name = used.pop() if len(used) == 1 else None
        if name is None or element is None:
            return True
        return any(item.name == name and item.offset == rest for item in element.fields)

    def _array(
        self, match: re.Match[str], structure: Structure, field: Field, index: int, end: int, base: int, given: str
    ) -> StructArray:
        written = self._text[match.end() : end].strip()
        name = re.fullmatch(_COUNTS.format(re.escape(match["owner"])), written)
        counter = next((item for item in structure.fields if name is not None and item.name == name["field"]), None)
        behind, count = field.offset + field.nbytes, field.count or 1
        follows = counter is not None and behind <= counter.offset < behind + field.nbytes // count
        line, (declared, size) = self._text.count("\n", 0, match.start()), declared_array(self._text, structure, field)
        body = self._text[self._function.body : closing(self._text, self._function.body)]
        number = _as_float(index, counter.nbytes) if counter is not None and follows else None
        whole = (base, base + structure.nbytes)
        return StructArray(
            line_in(self._file, line + 1, None),
            shortened(self._lines[line].strip(), _QUOTED),
            self._function.name,
            structure.name,
            field.name,
            count,
            size,
            line_in(self._file, declared, None),
            index,
            written,
            counter.name if counter is not None else None,
            follows,
            counter is not None
            and (is_compared(body, counter.name) or has_test(self._text, counter.name, size, count)),
            number,
            number is not None and _is_in_memory(self._view, index, whole),
            counter is not None and _is_set(self._text, counter.name),
            base,
            given,
            counter is None or is_reset(self._text, counter.name),
        )


def declared_array(text: str, structure: Structure, field: Field) -> tuple[int, str]:
    """The line of a field that is an array, and its size as written there: `64` or `MAX_POINTS`."""
    declared = re.compile(rf"\b{field.name}\s*\[\s*(?P<size>\w+)\s*\]")
    begin = sum(len(item) + 1 for item in text.split("\n")[: structure.line - 1])
    found = declared.search(text, begin)
    if found is None:
        return structure.line, str(field.count)
    return text.count("\n", 0, found.start()) + 1, found["size"]


def _held_by(text: str, low: int, start: int) -> str | None:
    """`p` of `point *p = &w->road[...]` and of `p = &w->road[...]`."""
    begin = max(text.rfind(mark, low, start) for mark in ";{}") + 1
    name = re.fullmatch(r"[\w\s]*?\*?\s*\b(?P<name>\w+)\s*=\s*&\s*", text[begin:start])
    return name["name"] if name is not None else None


def _is_held(text: str, low: int, start: int, running: str) -> bool:
    """Whether a statement gives a pointer to the element to a variable that the running line follows."""
    name = _held_by(text, low, start)
    return name is not None and re.search(rf"\b{name}\s*(?:->|\[)|\*\s*{name}\b", running) is not None


def is_compared(body: str, name: str) -> bool:
    """Whether a function compares a field with anything."""
    how = r"\s*(?:[<>]=?|[=!]=)"
    return re.search(rf"\b{name}\s*(?:[+-]\s*\w+)?{how}|[\w)]{how}[^;{{]*\b{name}\b", body) is not None


def has_test(text: str, name: str, size: str, count: int) -> bool:
    """Whether another function compares it with the size of the array: `return w->used >= MAX_POINTS;`."""
    how, limit = r"\s*(?:[<>]=?|[!=]=)\s*", rf"\b(?:{size}|{count})\b"
    return re.search(rf"\b{name}\s*(?:[+-]\s*\w+)?{how}{limit}|{limit}{how}[\w>.-]*\b{name}\b", text) is not None


def _is_bounded(written: str, index: int) -> bool:
    """Whether the expression cannot be such a number: `3`, `n & 63`, and `n % 64` where that is not negative."""
    return (
        written.strip().isdecimal() or re.search(r"(?<!&)&(?!&)", written) is not None or ("%" in written and index > 0)
    )


def _is_given_again(text: str, name: str, running: str) -> bool:
    """Whether a pointer may be another one where the running line follows it."""
    between = text[: text.find(running)] if running and running in text else ""
    return re.search(rf"\b{name}\s*(?:[-+]?=(?!=)|\+\+|--)|&\s*{name}\b", between) is not None


def _extent(array: HeldArray) -> int:
    strides = zip(array.shape, array.strides, strict=False)
    return sum((size - 1) * abs(stride) for size, stride in strides if size)


def _is_set(text: str, name: str) -> bool:
    clears = r"\bcalloc\s*\(|\bmemset\s*\(|\bnew\s+\w+\s*(?:\(\s*\)|\{\s*\})"
    return re.search(rf"\b{name}\s*=(?!=)|{clears}", text) is not None


def is_reset(text: str, name: str) -> bool:
    """Whether any line sets a field to something, but where its structure is made."""
    return re.search(rf"(?:->|\.)\s*{name}\s*=(?!=)|\bmemset\s*\(", text) is not None


def _as_float(index: int, nbytes: int) -> float | None:
    """What the bits of a counter of so many bytes are as a float; None of what nobody writes there."""
    code = _FLOATS.get(nbytes)
    if code is None or not -(1 << (8 * nbytes - 1)) <= index < 1 << (8 * nbytes) or abs(index) < _LEAST_BITS:
        return None
    value: float = struct.unpack(f"<{code}", (index % (1 << (8 * nbytes))).to_bytes(nbytes, "little"))[0]
    return value if _LEAST_FLOAT <= abs(value) <= _MOST_FLOAT else None


def _is_in_memory(view: ProcessView, index: int, structure: tuple[int, int]) -> bool:
    """Whether memory beside a register has the number: not code, the stack, nor the structure itself."""
    sought = (index % (1 << 32)).to_bytes(4, "little")
    blocks = view.crash.memory if view.crash is not None else ()
    others = (item for item in blocks if item.register not in ("rip", "rsp", "pc", "sp"))
    outside = (item for item in others if item.addr >= structure[1] or item.addr + len(item.content) <= structure[0])
    return any(sought in item.content for item in outside)
