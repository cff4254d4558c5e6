"""A null pointer that another function returned to the program's own C, which uses it without asking.

`const Entry *e = table->find(word); return e->id;`. Read as text: only where the failing line goes through that one
pointer, and nothing but that call sets it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from pytracer._patterns import Pattern
from pytracer._text import shortened
from pytracer.analyze.evidence.native.fault_function import is_own_frame
from pytracer.analyze.evidence.native.native_stack import own_frames
from pytracer.analyze.evidence.own_code.c_text import (
    Function,
    closing,
    declared_name,
    defined,
    function_around,
    split,
    statement_span,
)
from pytracer.analyze.evidence.own_code.c_text import without_comments as plain
from pytracer.analyze.evidence.own_code.libc_nulls import null_when
from pytracer.analyze.evidence.own_code.made_memory import allocations
from pytracer.analyze.evidence.own_code.native_bounds import LOOP
from pytracer.analyze.evidence.own_code.native_source import own_source
from pytracer.analyze.evidence.own_code.passed_texts import passed_text
from pytracer.analyze.naming import LineWords, line_in
from pytracer.analyze.view import ProcessView
from pytracer.report.job import NativeFrame

THROUGH = Pattern(r"(?<![\w.>])(?P<name>[A-Za-z_]\w*)\s*(?:\[|->)|(?<![\w)\]])\s*\*\s*(?P<pointed>[A-Za-z_]\w*)\b")
FURTHER = Pattern(r"(?:->|\.)\s*\w+\s*(?:->|\[|\.)|[\])]\s*(?:->|\[|\.)|\*\s*\w+\s*(?:->|\[)|\*\s*\(")
_CALL = Pattern(r"^(?:\([\w\s:*]*\)\s*|(?:static|reinterpret|const)_cast<[^<>]*>\s*\(\s*)?(?P<called>[\w:.>-]+)\s*\(")
_CAST = r"(?:\([\w\s:]*\*[\s*]*(?:const\s*)?\)\s*|(?:static|reinterpret|const)_cast<[^<>]*>\s*\(\s*)"
_DEREFERENCE = rf"(?:^|(?<=[=(,;{{?:!])|(?<=return))\s*\*\s*(?:{_CAST})?"  # no product
_DIRECT = Pattern(rf"(?P<star>{_DEREFERENCE})?(?<![\w.>])(?P<called>(?!(?:sizeof|return)\b)[A-Za-z_][\w:]*)\s*\(")
_CONDITION = Pattern(r"^\s*(?:\w+\s*:\s*)?(?:if|else|while|for|do|switch|case)\b|[?]")
_NULL = Pattern(r"\breturn\b[^;]*\b(?:NULL|nullptr)\b[^;]*;|\breturn\s+0\s*;")
_NAME = Pattern(r"^[A-Za-z_]\w*$")
_GIVES = Pattern(r"\breturn\b\s*(?P<value>[^;]*);")
_ASKS = Pattern(r"\bif\s*\(\s*(?P<not>!)?\s*(?P<name>[A-Za-z_]\w*)\s*(?P<how>(?:==|<=?|>=?)\s*\d+)?\s*\)\s*\{?\s*$")
_OPENS = Pattern(r"\b(?!(?:if|while|for|switch|return|sizeof)\b)[A-Za-z_]\w*\s*\(")
_QUOTED = 60


class UncheckedResult(msgspec.Struct, frozen=True):
    """`name` of `function`, which `made_at` sets by `call`, is null, and `place` uses it.

    `returned`: the line by which what was called gives null. `given`: texts of the program that the call looks for.
    """

    name: str
    call: str
    function: str
    made_at: LineWords
    place: LineWords
    returned: LineWords | None = None
    given: str | None = None
    asks: str | None = None  # `n == 0`, by which it does, in words of `function`
    when: str = ""  # when a function of the C library returns null
    direct: bool = False  # the line goes through what the call returns, without a variable

    @property
    def summary(self) -> str:
        """For the headline."""
        if self.direct:
            return f"`{self.call}` returned null"
        given = f", for {self.given}" if self.given is not None else ""
        return f"`{self.name}` is null, as `{self.call}` at {self.made_at} returned it{given}"

    @property
    def advice(self) -> str:
        """The check that is missing."""
        asks = f" where `{self.asks}`" if self.asks is not None else ""
        returned = f", which returns null at {self.returned}{asks}" if self.returned is not None else ""
        what = f" Then look at {self.given}: it is what was asked for." if self.given is not None else ""
        if self.direct:
            return (
                f"Check what `{self.call}` returns before {self.place} goes through it: nothing does"
                f"{returned}. Let {self.function}() report that to its caller.{self.when}{what}"
            )
        return (
            f"Check `{self.name}` before {self.place} uses it: nothing does behind `{self.call}` at {self.made_at}"
            f"{returned}. Let {self.function}() report that to its caller.{self.when}{what}"
        )


def unchecked_result(view: ProcessView) -> UncheckedResult | None:
    """None where the null pointer may be another one, or the function tests it."""
    frame, instruction = next(iter(own_frames(view)), None), view.instruction
    source = own_source(frame) if frame is not None and is_own_frame(frame) else None
    if frame is None or source is None or source[0].line is None or instruction is None or instruction.base_value != 0:
        return None
    if not frame.lines or frame.lines[0] != source[0]:
        return None  # in a function that the compiler put into it
    file, number, text = source[0].file or "", source[0].line, plain("\n".join(source[1]))
    place, end = statement_span(text.split("\n"), number)
    around, name = function_around(text, place), _gone_through(text[place:end])
    if around is None:
        return None
    found = returned_null(view, frame, (file, text), name, place, end, number) if name is not None else None
    return found or _through_call(view, frame, (file, text), (place, end), around, number)


def returned_null(
    view: ProcessView, frame: NativeFrame, source: tuple[str, str], name: str, place: int, end: int, number: int
) -> UncheckedResult | None:
    """Of a local variable that a call sets, and nothing asks for up to `end`.

    Args:
        view: The process.
        frame: Whose function it is.
        source: Its file, and the text of that without comments.
        name: The variable.
        place: Where the statement begins that uses it.
        end: Up to where nothing may test it.
        number: The line of that statement.
    """
    file, text = source
    around = function_around(text, place)
    if around is None or around.place_of(name) is not None or next(allocations(text, name), None):
        return None
    body = text[around.body : closing(text, around.body)]
    sets = [*re.finditer(rf"(?<![\w.>]){re.escape(name)}\s*=(?!=)\s*(?P<value>[^;]*);", body)]
    if len(sets) != 1 or is_moved(body, name) or not _is_pointer(body, name, sets[0].start()):
        return None
    made, called = sets[0], _CALL.match(sets[0]["value"])
    at, behind = around.body + made.start(), around.body + made.end()
    last = closing(made["value"], called.end() - 1) if called is not None else None
    if called is None or last is None or made["value"][last:].strip(") ") or not at < place:
        return None
    if not _is_always(text, at, behind, place) or is_asked(text[behind:end], name):
        return None
    call = " ".join(made["value"].split())
    line = text.count("\n", 0, at) + 1
    given = split(made["value"][called.end() : last])
    function = re.split(r"::|->|\.", called["called"])[-1]
    returned, asks = _null_return(text, file, function, given)
    return UncheckedResult(
        name,
        shortened(call, _QUOTED),
        around.name,
        line_in(file, line, None),
        line_in(file, number, None),
        returned,
        _of_program(view, frame, given),
        asks,
        _when(view, text, file, function, given),
    )


def _through_call(
    view: ProcessView,
    frame: NativeFrame,
    source: tuple[str, str],
    span: tuple[int, int],
    around: Function,
    number: int,
) -> UncheckedResult | None:
    """`n = *(int *)dlsym(so, "N");`, `id = find(v, word)->id;`: where the line reads through nothing else."""
    file, text = source
    head, sets, value = text[span[0] : span[1]].partition("=")
    running = value if sets and not value.startswith("=") and not head.rstrip().endswith(tuple("=!<>")) else head
    found = [*_DIRECT.finditer(running)]
    access = view.fault.access if view.fault is not None else None
    if len(found) != 1 or access != "read" or _CONDITION.search(running) is not None:
        return None
    opens = found[0].end() - 1
    last = closing(running, opens)
    if last is None:
        return None
    inside, last = running[opens:last], last + 1
    member = re.match(r"[\s)]*->\s*\w+", running[last:])
    behind = running[last + (member.end() if member is not None else 0) :]
    again = re.match(r"[\s)]*(?:->|\[|\.)", behind) is not None
    if (
        again
        or bool(found[0]["star"]) == (member is not None)
        or any(THROUGH.search(part) or FURTHER.search(part) for part in (running[: found[0].start()], inside, behind))
    ):
        return None
    call, given = " ".join(running[found[0].start("called") : last].split()), split(inside[1:])
    function = re.split(r"::|\.", found[0]["called"])[-1]
    at = line_in(file, number, None)
    returned, asks = _null_return(text, file, function, given)
    when, shown = _when(view, text, file, function, given), shortened(call, _QUOTED)
    wanted = _of_program(view, frame, given) if returned is not None else None
    return UncheckedResult(shown, shown, around.name, at, at, returned, wanted, asks, when, direct=True)


def _when(view: ProcessView, text: str, file: str, function: str, given: Sequence[str]) -> str:
    """When it returns null: also of a function of the program that returns what one of the C library does."""
    found = null_when(view, text, function, given) or _unexported(text, file, function, given)
    functions = defined(text, function)
    end = closing(text, functions[0].body) if len(functions) == 1 else None
    if found or end is None:
        return found
    values = [item["value"].strip() for item in _GIVES.finditer(text, functions[0].body, end)]
    call = _CALL.match(values[0]) if len(values) == 1 else None
    last = closing(values[0], call.end() - 1) if call is not None else None
    if call is None or last is None or values[0][last:].strip(") "):
        return ""
    inner = null_when(view, text, call["called"], split(values[0][call.end() : last]))
    return f" {function}() returns what {call['called']}() does.{inner}" if inner else ""


def _unexported(text: str, file: str, function: str, given: Sequence[str]) -> str:
    """Of dlsym(): `static` names are in no table, nor are those of a library that does not have them."""
    name = given[1] if function in ("dlsym", "dlvsym") and len(given) > 1 else ""
    if not name:
        return ""
    asked = f"`{name[1:-1]}`" if name.startswith('"') else "the name"
    found = re.search(rf"\bstatic\b[^;{{}}()]*\b{re.escape(name[1:-1])}\b", text) if name.startswith('"') else None
    at = line_in(file, text.count("\n", 0, found.start()) + 1, None) if found is not None else None
    own = f": it is `static` at {at}, and a library that is built with that line does not" if at is not None else ""
    return f" {function}() returns null where the library does not export {asked} (`nm -D` lists what it does){own}."


def _gone_through(running: str) -> str | None:
    """The only pointer that a line goes through; None where one of its members may be null as well."""
    head = LOOP.search(running)
    if head is not None or FURTHER.search(running) is not None:
        return None
    found = {match["name"] or match["pointed"] for match in THROUGH.finditer(running)}
    name = found.pop() if len(found) == 1 else None
    return name if name is not None and not is_given(running, name) else None


def is_given(running: str, name: str) -> bool:
    """Whether a call or a macro is given what the pointer leads to: `strcmp(o->mode, ...)` reads another pointer."""
    own = rf"(?<![\w.>]){re.escape(name)}\b"
    for match in _OPENS.finditer(running):
        end = closing(running, match.end() - 1)
        if re.search(own, running[match.end() : end]) is not None:
            return True
    return False


def is_moved(body: str, name: str) -> bool:
    """Whether anything else may set it."""
    own = re.escape(name)
    steps = rf"(?<![\w.>]){own}\s*(?:[-+]=|\+\+|--)|(?:\+\+|--|(?<!&)&)\s*{own}\b(?!\s*(?:\[|->))"
    return re.search(steps, body) is not None


def _is_pointer(body: str, name: str, at: int) -> bool:
    """Whether it is declared as one, and not what it points at is set there."""
    before = re.split(r"[;{}]", body[:at])[-1]
    if before.strip():
        return re.search(r"\w\s*\*[\s*]*(?:const\s*)?$", before) is not None
    return re.search(rf"\w\s*\*\s*{re.escape(name)}\s*;", body[:at]) is not None


def _is_always(text: str, at: int, behind: int, place: int) -> bool:
    """Whether the call depends on no test, and a place is reached through it only."""
    before = re.split(r"[;{}]", text[:at])[-1]
    depth = lowest = 0
    for letter in text[behind:place]:
        depth += (letter == "{") - (letter == "}")
        lowest = min(lowest, depth)
    return lowest == 0 and _CONDITION.search(before) is None


def is_asked(between: str, name: str) -> bool:
    """Whether anything tests the pointer, or hands it to what may: all but its elements."""
    own = re.escape(name)
    return re.search(rf"(?<![\w.>*]){own}\b(?!\s*(?:\[|->))", between) is not None


def _null_return(text: str, file: str, called: str, given: Sequence[str]) -> tuple[LineWords | None, str | None]:
    """The only line by which the function of that name returns null, where all else that it returns is an address.

    With what it asks before, of one of its parameters, in terms of what it was given.
    """
    functions = defined(text, called)
    end = closing(text, functions[0].body) if len(functions) == 1 else None
    if end is None:
        return None, None
    found = [*_NULL.finditer(text, functions[0].body, end)]
    values = [item["value"] for item in _GIVES.finditer(text, functions[0].body, end)]
    body = text[functions[0].body : end]
    unknown = [item for item in values if not re.match(r"[\s(]*&", item) and not _is_made(body, item.strip())]
    if len(unknown) > 1 or len(found) != 1:
        return None, None  # such as an element of a table, which may be null as well
    line = line_in(file, text.count("\n", 0, found[0].start()) + 1, None)
    return line, _asked(text[functions[0].body : found[0].start()], functions[0], given)


def _is_made(body: str, name: str) -> bool:
    """Whether a function made what a variable points at."""
    return bool(_NAME.match(name)) and next(allocations(body, name), None) is not None


def _asked(before: str, function: Function, given: Sequence[str]) -> str | None:
    """`n == 0` of `if (count == 0) return NULL;`, where the call passes `n` for `count`."""
    match = _ASKS.search(before)
    name = match["name"] if match is not None else ""
    place = next((at for at, item in enumerate(function.parameters) if declared_name(item) == name), None)
    if (
        match is None
        or place is None
        or place >= len(given)
        or re.search(rf"(?<![\w.>]){name}\s*[-+*/]?=(?!=)", before)
    ):
        return None
    value = given[place] if _NAME.match(given[place]) else f"({given[place]})"
    if bool(match["not"]) == bool(match["how"]):
        return None
    return f"{value} {match['how']}" if match["how"] else f"!{value}"


def _of_program(view: ProcessView, frame: NativeFrame, given: Sequence[str]) -> str | None:
    return passed_text(view, frame, [item for item in given if _NAME.match(item)])
