"""An element of an empty container: `points[0]`, `found.front()`. std::vector asks for nothing, and then has no memory.

Read as text along the native stack: the failing line takes the element itself, or was given a reference to one by its
caller. Only where nothing else in that line can be the null pointer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec

from pytracer._patterns import Pattern
from pytracer._text import shortened
from pytracer.analyze.behind import Place
from pytracer.analyze.evidence.lifetime.variables import line_words
from pytracer.analyze.evidence.native.native_stack import own_frames
from pytracer.analyze.evidence.own_code.c_text import Function, arguments_at, closing, declared_name
from pytracer.analyze.evidence.own_code.c_text import without_comments as plain
from pytracer.analyze.evidence.own_code.empty_filler import Filler, filler
from pytracer.analyze.evidence.own_code.empty_passed import emptied_by
from pytracer.analyze.evidence.own_code.native_bounds import running_frame
from pytracer.analyze.evidence.own_code.native_source import own_sources
from pytracer.analyze.evidence.own_code.passed_through import Level, levels
from pytracer.analyze.evidence.own_code.register_rows import register_rows
from pytracer.analyze.evidence.own_code.short_allocations import statement_end
from pytracer.analyze.evidence.own_code.vector_bounds import Length, container_length
from pytracer.analyze.naming import LineWords, line_in
from pytracer.analyze.view import ProcessView
from pytracer.report.job import NativeFrame

_TAKES = Pattern(r"(?<![\w.>])(?P<name>[A-Za-z_]\w*)\s*(?P<how>\[[^\[\]]*\]|\.\s*(?:front|back)\s*\(\s*\))(?!\s*\[)")
_NESTED = Pattern(r"[\w\])]\s*\[[^\[\]]*\[")
_FURTHER = Pattern(r"\s*\.\s*\w+\s*\[")
_POINTS = Pattern(r"->|(?<![\w)\]&*])\s*\*\s*\(*\s*[A-Za-z_]")  # `*p` and `->`: other pointers
_TYPES = r"(?:std\s*::\s*)?(?:vector|deque|basic_string|string)\b(?:\s*<[^;(){{}}]*>)?"
_ALIAS = Pattern(
    rf"\btypedef\s+{_TYPES.format()}\s+(?P<old>\w+)\s*;|\busing\s+(?P<new>\w+)\s*=\s*{_TYPES.format()}\s*;"
)
_NAME, _REFERENCE = Pattern(r"^[A-Za-z_]\w*$"), Pattern(r"&\s*(?:const\s+)?\w+\s*$")
_QUOTED = 60


class EmptyContainer(msgspec.Struct, frozen=True):
    """`taken` at `place` is an element of `name`, which has none. `line`: what the program's line is called.

    `length`: how many the source makes it with; `of`: the array without elements that the line takes that from;
    `filler`: the only call that adds to it, where the source has one; `rows`: of the arrays that are passed.
    """

    name: str
    taken: str
    function: str
    entered: str
    place: LineWords
    line: str
    length: Length | None = None
    of: str | None = None
    filler: Filler | None = None
    rows: str | None = None

    @property
    def summary(self) -> str:
        """For the headline."""
        return f"`{self.name}` is empty{self._why}, and {self.place} takes `{self.taken}` of it"

    @property
    def _why(self) -> str:
        if self.length is None:
            return ""
        return f" ({self.length.words}{f', of {self.of}' if self.of is not None else ''})"

    @property
    def advice(self) -> str:
        """The check that is missing, and why there is nothing."""
        if self.length is not None:
            what = self.of or "an empty input"
            return (
                f"Skip {what} before {self.line} passes it, as it has no elements; or let {self.entered}() return "
                f"early where `{self.length.text}` is 0: {self.place} takes `{self.taken}` without asking."
            )
        filled = f" {self.filler.words}" if self.filler is not None else ""
        rows = f": {self.rows}" if self.rows is not None else ""
        return (
            f"Ask `{self.name}.empty()` in {self.function}() before {self.place} takes `{self.taken}`.{filled} "
            f"Then check the values that {self.line} passes, which lead to that{rows}."
        )

    @property
    def places(self) -> tuple[Place, ...]:
        """The lines that the advice names."""
        lines = [self.place, *(self.filler.lines if self.filler is not None else ())]
        return tuple((item.file, item.line) for item in lines if item.line is not None)


class _Taken(msgspec.Struct, frozen=True):
    """`text` is an element of the container `name` of the function at a level of the way."""

    name: str
    text: str
    level: int


def empty_container(view: ProcessView) -> EmptyContainer | None:
    """None where another pointer of the line may be null, or the container is not known to be one."""
    frame, instruction = running_frame(view), view.instruction
    if frame is None or instruction is None or instruction.base_value != 0:
        return None
    way = [*levels(view, frame)]
    found = _taken(way, 0) if way else None
    if found is None or len(found) != 1:
        return None
    taken = found[0]
    name, level = _home(way, taken.name, taken.level)
    length = container_length(view, way, name, level)
    if length is not None and length.value != 0:
        return None
    function, _, number = way[taken.level]
    files = _files(view, frame)
    place = line_in(files[taken.level], number, None)
    by = filler(way[level], name, files[level]) if length is None else None
    of = emptied_by(view, length.given or length.text) if length is not None else None
    rows = register_rows(view) if length is None else None
    entered, line = way[-1][0].name, line_words(view)
    return EmptyContainer(taken.name, taken.text, function.name, entered, place, line, length, of, by, rows)


def _taken(way: Sequence[Level], level: int, only: str | None = None) -> list[_Taken] | None:
    """The elements of containers that the line of a level takes; None where something else may be null.

    Args:
        way: The functions from the innermost one outwards.
        level: Of that line.
        only: The argument that is asked about, where the line calls the function of the level before.
    """
    function, lines, number = way[level]
    text = plain("\n".join(lines))
    running = only if only is not None else text.split("\n")[number - 1]
    if _POINTS.search(running):
        return None
    found: dict[str, _Taken] = {}
    if _NESTED.search(running):
        return None  # `out[order[i]]`: either may be the empty one
    for match in _TAKES.finditer(running):
        if not _is_container(text, function, match["name"]) or _FURTHER.match(running, match.end()):
            return None  # a pointer, an array, or an element's own pointer
        if _is_asked(text, function, number, match["name"]):
            return None
        words = shortened(" ".join(match[0].split()), _QUOTED)
        found.setdefault(match["name"], _Taken(match["name"], words, level))
    for parameter in _references(function, running):
        further = _given(way, level, parameter)
        if further is None:
            return None
        found.update((item.name, item) for item in further)
    return [*found.values()]


def _references(function: Function, running: str) -> Iterator[str]:
    """The parameters by reference that a line uses."""
    for item in function.parameters:
        name = declared_name(item)
        if _REFERENCE.search(item.partition("=")[0].strip()) and re.search(rf"(?<![\w.>]){name}\b", running):
            yield name


def _given(way: Sequence[Level], level: int, parameter: str) -> list[_Taken] | None:
    """What the caller gives for a reference: nothing for a variable, which exists; None of what is not known."""
    place = way[level][0].place_of(parameter)
    if place is None or level + 1 == len(way):
        return None
    _, lines, number = way[level + 1]
    given = arguments_at(lines, number, way[level][0].name) or _constructed(lines, number, way[level][0].name)
    if given is None or place >= len(given):
        return None
    if not _NAME.match(given[place]):
        return _taken(way, level + 1, given[place]) or None
    function = way[level + 1][0]
    at = function.place_of(given[place])
    if at is None or not _REFERENCE.search(function.parameters[at].partition("=")[0].strip()):
        return []
    return _given(way, level + 1, given[place])


def _constructed(lines: Sequence[str], number: int, name: str) -> tuple[str, ...] | None:
    """The arguments of `Tree tree(points, 10);`."""
    text = plain(lines[number - 1]) if 0 < number <= len(lines) else ""
    match = re.search(rf"\b{re.escape(name)}\s+\w+\s*(?=[({{])", text)
    end = closing(text, match.end()) if match is not None else None
    if match is None or end is None:
        return None
    return arguments_at([f"f({text[match.end() + 1 : end]})"], 1, "f")


def _is_container(text: str, function: Function, name: str) -> bool:
    """Whether its only declarations make it a std::vector, or another one without checks."""
    aliases = [re.escape(match["old"] or match["new"]) for match in _ALIAS.finditer(text)]
    types = "|".join([_TYPES.format(), *(rf"\b{item}\b" for item in aliases)])
    own = re.escape(name)
    at = function.place_of(name)
    if at is not None:
        return re.search(rf"^(?:const\s+)?(?:{types})\s*(?:const\s*)?&?\s*{own}$", function.parameters[at]) is not None
    declared = rf"(?:{types})\s*(?:const\s*)?&?\s*(?:\w+\s*,\s*)*{own}\b\s*[;,({{=]"
    other = rf"\w\s*\*+\s*(?:const\s+)?{own}\s*[;,=)]|\w\s+{own}\s*\["
    body = text[function.body : closing(text, function.body)]
    here = re.search(declared, body) or re.search(rf"^(?:static\s+)?{declared}", text, re.MULTILINE)
    return here is not None and re.search(other, text) is None  # of a member, the object itself may be null


def _is_asked(text: str, function: Function, number: int, name: str) -> bool:
    """Whether the line is reached only where the container has elements: a test of it before, or a loop over it."""
    lines = text.split("\n")
    place = sum(len(item) + 1 for item in lines[: number - 1])
    end = place + len(lines[number - 1])
    asks = rf"(?<![\w.>]){re.escape(name)}\s*\.\s*(?:empty|size)\s*\("
    if re.search(rf"\b(?:if|while|\w*assert|\w*CHECK\w*)\s*\([^;{{}}]*{asks}", text[function.body : end]):
        return True
    for match in re.finditer(r"\bfor\s*(?=\()", text[function.body : end]):
        opens = function.body + match.end()
        head = closing(text, opens)
        if head is not None and re.search(asks, text[opens:head]) and place <= statement_end(text, head + 1):
            return True
    return False


def _home(way: Sequence[Level], name: str, level: int) -> tuple[str, int]:
    """The variable that a container is, and the level at which it is no parameter."""
    while (place := way[level][0].place_of(name)) is not None and level + 1 < len(way):
        _, lines, number = way[level + 1]
        given = arguments_at(lines, number, way[level][0].name) or _constructed(lines, number, way[level][0].name)
        if given is None or place >= len(given) or not _NAME.match(given[place]):
            break
        name, level = given[place], level + 1
    return name, level


def _files(view: ProcessView, frame: NativeFrame) -> list[str]:
    """The files of the levels from a frame on."""
    frames = own_frames(view)
    return [line.file or "" for item in frames[frames.index(frame) :] for line, _ in own_sources(item)]
