"""A pointer in a structure of the program's own C that an array before it was written over: `s->peaks[s->count++]`.

The line that dies only uses the pointer: it holds numbers of the kind that the array has, and the array, of a fixed
size, lies before it in the same structure and is written by an index that nothing bounds.
"""

from __future__ import annotations

import re

import msgspec

from pytracer._patterns import Pattern
from pytracer._text import shortened
from pytracer.analyze.evidence.own_code.c_text import closing, function_around, statement_span
from pytracer.analyze.evidence.own_code.c_text import without_comments as plain
from pytracer.analyze.evidence.own_code.native_bounds import running_frame
from pytracer.analyze.evidence.own_code.native_source import own_source
from pytracer.analyze.evidence.own_code.pointer_content import numbers_in_pointer
from pytracer.analyze.evidence.own_code.struct_arrays import declared_array, has_test, is_compared, is_reset
from pytracer.analyze.evidence.own_code.struct_fields import Field, Structure, c_structures
from pytracer.analyze.naming import LineWords, line_in
from pytracer.analyze.view import ProcessView
from pytracer.report.job import Evidence

_THROUGH = Pattern(r"\b(?P<owner>[A-Za-z_]\w*)\s*->\s*(?P<field>\w+)\s*(?:\[|->)")
_WRITES = r"\b[A-Za-z_]\w*\s*->\s*{0}\s*(?=\[)"
_COUNTER = Pattern(r"^(?:\+\+\s*)?[A-Za-z_]\w*\s*->\s*(?P<field>\w+)\s*(?:\+\+)?$")
_KINDS = {"float": "float32", "double": "float64", "int": "int32", "int32_t": "int32"}
_QUOTED = 60


class OverrunField(msgspec.Struct, frozen=True):
    """`field` of `structure` holds `numbers`; `line` at `place`, in `function`, writes `array` before it.

    `counter`: the field that is the index. `is_reset`: some line sets it back.
    """

    structure: str
    field: str
    numbers: str
    array: str
    count: int
    declared: LineWords
    place: LineWords
    line: str
    function: str
    counter: str
    is_reset: bool

    @property
    def summary(self) -> str:
        """Behind the place in a headline."""
        return (
            f"`{self.field}` of {self.structure} holds {self.numbers}, as `{self.array}`, which lies before it and has "
            f"{self.count} elements ({self.declared}), was written beyond its end by {self.place} (`{self.line}`)"
        )

    @property
    def evidence(self) -> Evidence | None:
        """The headline has it all."""
        return None

    @property
    def advice(self) -> str:
        """What to change."""
        refuse = f"Let {self.function}() refuse what has no room in `{self.array}` before {self.place} writes it"
        if self.is_reset:
            return f"{refuse}: `{self.counter}` counts up without a test, and there is room for {self.count} elements."
        return (
            f"Set `{self.counter}` to 0 where a new round begins, if it is not to count over all calls: no line sets "
            f"it back, and there is room for {self.count} elements. {refuse}."
        )


def overrun_field(view: ProcessView) -> OverrunField | None:
    """None where the pointer holds no such numbers, or more than one array may have been written over it."""
    frame, numbers = running_frame(view), numbers_in_pointer(view)
    source = own_source(frame) if frame is not None and numbers is not None else None
    if source is None or source[0].line is None or numbers is None:
        return None
    text = plain("\n".join(source[1]))
    place, end = statement_span(text.split("\n"), source[0].line)
    around = function_around(text, place)
    structures = {item.name: item for item in c_structures(text, "")}
    found = []
    for match in _THROUGH.finditer(text, place, end) if around is not None else ():
        at = around.place_of(match["owner"]) if around is not None else None
        kind = re.search(r"(\w+)\s*\*", around.parameters[at]) if around is not None and at is not None else None
        structure = structures.get(kind[1]) if kind is not None else None
        field = next((item for item in structure.fields if item.name == match["field"]), None) if structure else None
        if structure is not None and field is not None and field.pointer:
            found += [_told(text, source[0].file, structure, field, one, numbers) for one in structure.fields]
    told = {item.array: item for item in found if item is not None}
    return next(iter(told.values())) if len(told) == 1 else None


def _told(
    text: str, file: str | None, structure: Structure, field: Field, array: Field, numbers: str
) -> OverrunField | None:
    """Of an array that lies before the pointer, and that a line writes by an index without a bound."""
    kind = _KINDS.get(array.type.rpartition(" ")[2])
    if array.count is None or array.pointer or array.offset >= field.offset or kind is None or kind not in numbers:
        return None
    declared, size = declared_array(text, structure, array)
    for match in re.finditer(_WRITES.format(array.name), text):
        last = closing(text, match.end())
        around = function_around(text, match.start())
        if last is None or around is None or re.match(r"\s*[-+*/]?=(?!=)", text[last + 1 :]) is None:
            continue
        index = text[match.end() + 1 : last].strip()
        body = text[around.body : closing(text, around.body)]
        counter = _COUNTER.match(index)
        if counter is None or "++" not in index or is_compared(body, counter["field"]):
            continue
        if has_test(text, counter["field"], size, array.count):
            continue  # by who calls it
        line = text.count("\n", 0, match.start()) + 1
        return OverrunField(
            structure.name, field.name, numbers, array.name, array.count, line_in(file, declared, None),
            line_in(file, line, None), shortened(text.split("\n")[line - 1].strip(), _QUOTED), around.name,
            counter["field"], is_reset(text, counter["field"]),
        )  # fmt: skip
    return None
