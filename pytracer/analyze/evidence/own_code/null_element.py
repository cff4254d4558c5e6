"""A null pointer that the program's own C read from a table of pointers, at a place that nothing has filled yet.

`Item *t = r->data[leaf - r->capacity + 1]; copy(t->state)`, where another function fills `r->data[r->write]`. Read as
text: only where the failing line goes through that one pointer, and nothing asks for it.
"""

from __future__ import annotations

import re

import msgspec

from pytracer._patterns import Pattern
from pytracer._text import shortened
from pytracer.analyze.evidence.native.fault_function import is_own_frame
from pytracer.analyze.evidence.native.native_stack import own_frames
from pytracer.analyze.evidence.own_code.c_text import (
    closing,
    declared_name,
    defined,
    function_around,
    statement_span,
    without_comments,
)
from pytracer.analyze.evidence.own_code.native_bounds import NAME, assigned_value
from pytracer.analyze.evidence.own_code.native_source import own_source
from pytracer.analyze.evidence.own_code.unchecked_result import THROUGH, is_asked, is_given, is_moved
from pytracer.analyze.naming import LineWords, line_in
from pytracer.analyze.view import ProcessView

_ELEMENT = Pattern(r"^(?P<table>[A-Za-z_]\w*\s*->\s*(?P<member>\w+))\s*\[(?P<index>.*)\]$")
_FILLS = r"->\s*{0}\s*\[[^;]*?\]\s*=(?!=)\s*(?P<value>[^;]*);"
_NOTHING = Pattern(r"^(?:NULL|nullptr|0)$")
_CALL = Pattern(r"^(?P<called>\w+)\s*\(")
_FLOAT = Pattern(r"\b(?:float|double)\b")
_QUOTED = 60


class NullElement(msgspec.Struct, frozen=True):
    """`name` is null, `element` of a table, read at `made_at`; `filler` fills such elements, at `filled_at`.

    `origin`: what a variable of the index is; `compares`: the function of the file that gives it, with the float that
    it compares.
    """

    name: str
    element: str
    index: str
    function: str
    made_at: LineWords
    filler: str
    filled_at: LineWords
    origin: tuple[str, str] | None
    compares: tuple[str, str] | None

    @property
    def summary(self) -> str:
        """Behind the headline."""
        made = f"; `{self.origin[0]}` is `{self.origin[1]}`" if self.origin is not None else ""
        return (
            f"`{self.name}` is null, as the element `{self.element}` ({self.made_at}) was, which {self.filler}() "
            f"({self.filled_at}) has not filled{made}"
        )

    @property
    def advice(self) -> str:
        """Where the index comes from, and the check that is missing."""
        nan = ""
        if self.compares is not None:
            nan = (
                f" {self.compares[0]}() compares `{self.compares[1]}`, a float: if that, or what it is compared with, "
                "is NaN, no comparison holds, and it goes one way only. Ask isfinite() of the numbers that are passed."
            )
        return (
            f"Look at how `{self.index}` comes to an element that {self.filler}() has not filled.{nan} Let "
            f"{self.function}() compare it with how many there are, and refuse a null element."
        )


def null_element(view: ProcessView) -> NullElement | None:
    """None where another pointer may be the null one, or something clears elements."""
    frame, instruction = next(iter(own_frames(view)), None), view.instruction
    source = own_source(frame) if frame is not None and is_own_frame(frame) else None
    if source is None or source[0].line is None or instruction is None or instruction.base_value != 0:
        return None
    file, number, text = source[0].file or "", source[0].line, without_comments("\n".join(source[1]))
    place, end = statement_span(text.split("\n"), number)
    around = function_around(text, place)
    used = {match["name"] or match["pointed"] for match in THROUGH.finditer(text[place:end])}
    for name in sorted(used) if around is not None else ():
        body = text[around.body : closing(text, around.body)] if around is not None else ""
        sets = [*re.finditer(rf"\*\s*{name}\s*=(?!=)\s*(?P<value>[^;]*);", body)]
        made = _ELEMENT.match(sets[0]["value"].strip()) if len(sets) == 1 else None
        if around is None or made is None or is_moved(body, name) or _leads_further(text, text[place:end], name):
            continue
        at = around.body + sets[0].start()
        if not at < place or is_asked(text[around.body + sets[0].end() : place], name):
            continue
        fills = [*re.finditer(_FILLS.format(made["member"]), text)]
        makers = {item.name for one in fills if (item := function_around(text, one.start())) is not None}
        if len(makers) != 1 or any(_NOTHING.match(one["value"].strip()) for one in fills):
            return None
        origin = _origin(made["index"], body)
        return NullElement(
            name,
            shortened(" ".join(sets[0]["value"].split()), _QUOTED),
            shortened(made["index"].strip(), _QUOTED),
            around.name,
            line_in(file, text.count("\n", 0, at) + 1, None),
            makers.pop(),
            line_in(file, text.count("\n", 0, fills[-1].start()) + 1, None),
            (origin[0], shortened(origin[1], _QUOTED)) if origin is not None else None,
            _compared(text, origin[1]) if origin is not None else None,
        )
    return None


def _leads_further(text: str, running: str, name: str) -> bool:
    """Whether a call is given a member that may be another pointer: an array in the structure is none."""
    members = set(re.findall(rf"(?<![\w.>]){name}\s*->\s*(\w+)", running))
    arrays = {item for item in members if re.search(rf"\w\s+{item}\s*\[[^\]]*\]\s*;", text)}
    return is_given(running, name) and members != arrays


def _origin(index: str, body: str) -> tuple[str, str] | None:
    """The only variable of the index that a call gives, and the call."""
    found = [
        (name, value)
        for name in dict.fromkeys(NAME.findall(index))
        if (value := assigned_value([body], name)) is not None and _CALL.match(value) is not None
    ]
    return found[0] if len(found) == 1 else None


def _compared(text: str, call: str) -> tuple[str, str] | None:
    """The function of the file that is called, and its float parameter that it compares."""
    match = _CALL.match(call)
    functions = defined(text, match["called"]) if match is not None else []
    if len(functions) != 1:
        return None
    body = text[functions[0].body : closing(text, functions[0].body)]
    for item in functions[0].parameters:
        name = declared_name(item)
        if "*" not in item and _FLOAT.search(item) and re.search(rf"\b{name}\s*[<>]|[<>]=?\s*{name}\b", body):
            return functions[0].name, name
    return None
