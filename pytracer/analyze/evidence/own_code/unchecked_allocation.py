"""Memory that the program's own C makes by malloc() and uses without asking whether there is any.

malloc() returns null for a size that no process can have, such as one that was computed from an empty array: minima
and maxima that no element has set, a count minus 1. Read as text: only where nothing else can have set the pointer.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import msgspec

from pytracer._patterns import Pattern
from pytracer._text import list_words, shortened
from pytracer.analyze.evidence.lifetime.variables import line_words, program_frames
from pytracer.analyze.evidence.lifetime.where_made import place_of
from pytracer.analyze.evidence.native.fault_function import is_own_frame
from pytracer.analyze.evidence.native.native_stack import own_frames
from pytracer.analyze.evidence.operators.filtered import KeptRows, kept_rows
from pytracer.analyze.evidence.own_code.arrays import array_words, held_array
from pytracer.analyze.evidence.own_code.c_text import (
    Function,
    declared_name,
    function_around,
    statement_at,
    without_comments,
)
from pytracer.analyze.evidence.own_code.lookups import has_unseen
from pytracer.analyze.evidence.own_code.made_memory import MadeMemory, made_memory
from pytracer.analyze.evidence.own_code.native_bounds import LOOP, NAME, running_frame
from pytracer.analyze.evidence.own_code.native_source import own_source
from pytracer.analyze.evidence.own_code.passed_arrays import PassedArrays
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.naming import LineWords, line_in
from pytracer.analyze.view import ProcessView

_USES = Pattern(
    r"(?<![\w.>])(?P<name>[A-Za-z_]\w*)\s*(?:\[|->)|(?<![\w)\]])\s*\*\s*(?P<pointed>[A-Za-z_]\w*)\b(?!\s*[,;=]\s*\*)"
)
_FILLS = Pattern(r"\bmem(?:set|cpy|move)\s*\(\s*(?P<name>[A-Za-z_]\w*)\s*,")
_ELEMENT = r"(?:\s*(?:\[(?:[^\[\]]|\[[^\[\]]*\])*\]|(?:->|\.)\s*\w+))+"
_WRITES = rf"(?<![\w.>])@{_ELEMENT}\s*(?:[-+*/|&^]?=(?!=)|\+\+|--)|\*\s*@\s*=(?!=)"
_SET_ONLY = rf"(?<![\w.>])@{_ELEMENT}\s*=(?!=)|\*\s*@\s*=(?!=)"
_CONDITION = Pattern(r"^\s*(?:\w+\s*:\s*)?(?:if|else|while|for|do|switch|case)\b|^[^(]*\)|[?]")
_MAKERS = ("malloc", "calloc", "realloc", "aligned_alloc")
_QUOTED, _MOST_ROUNDS = 40, 8
_MOST_ELEMENTS = 1 << 40
_COMMON_ELEMENTS = 1 << 30  # malloc(0) is not null in glibc, either


class EmptyArgument(msgspec.Struct, frozen=True):
    """`words` (`` `points` [0, 3] ``) is empty. `count`: the parameter that is passed its length, where one is.

    `rows`: the line that left nothing; `before`: the line of the same function that goes on with it.
    """

    name: str
    words: str
    count: str | None
    rows: KeptRows | None
    before: LineWords


class UncheckedAllocation(msgspec.Struct, frozen=True):
    """`made`, at `made_at` (`grid.c:18`) in `function`, is used at `place`. `line`: of the program, that calls it."""

    made: MadeMemory
    made_at: LineWords
    place: LineWords
    function: str
    line: str
    empty: tuple[EmptyArgument, ...] = ()
    numbers: tuple[str, ...] = ()  # what is passed, that is no size: `` `count` = -5 ``

    @property
    def summary(self) -> str:
        """Behind the headline."""
        size = f"`{shortened(self.made.count, _QUOTED)}` {self._elements}"
        told = f"`{self.made.name}`, which {self.made_at} makes by {self.made.by}() for {size}, is not checked"
        if not self.empty and self.numbers:
            return f"{told}; {self.line} passes {list_words(self.numbers)}"
        if not self.empty:
            return told
        words = list_words([item.words for item in self.empty])
        rows = next((item.rows for item in self.empty if item.rows is not None), None)
        kept = f", as {rows.summary}" if rows is not None else ""
        return f"{told}; {self.line} passes {words}, which {'is' if len(self.empty) == 1 else 'are'} empty{kept}"

    @property
    def _elements(self) -> str:
        kind = self.made.element
        return f"elements of {kind}" if kind is not None else "elements"

    @property
    def advice(self) -> str:
        """The change to make."""
        size = f"`{shortened(self.made.count, _QUOTED)}`"
        check = (
            f"check what {self.made.by}() returns at {self.made_at}: it is null for a size that cannot be had, and "
            f"{self.place} uses it"
        )
        if not self.empty:
            return (
                f"Check how {size} at {self.made_at} is computed from what {self.line} passes: {self.made.by}() "
                f"returned null for it. Let {self.function}() refuse such a size, and {check}."
            )
        first = self.empty[0]
        test = f"len({first.name}) == 0"
        test = f"if {test}: continue" if first.rows is not None and first.rows.in_loop else test
        none = f"`{first.count}` == 0" if first.count is not None else f"no element of {first.words}"
        return (
            f"Leave out the case of no elements before {first.before} (`{test}`): "
            f"{self.function}() computes {size} from an empty array. Let it return at once for {none}, and {check}."
        )


def unchecked_allocation(view: ProcessView) -> UncheckedAllocation | None:
    """None where the null pointer may be another one, or anything in the function asks for it."""
    frame, instruction = running_frame(view), view.instruction
    source = own_source(frame) if frame is not None else None
    if source is None or source[0].line is None:
        return None
    if instruction is not None and instruction.base_value not in (0, None):
        return None
    file, number, lines = source[0].file or "", source[0].line, source[1]
    text = without_comments("\n".join(lines))
    plain = text.split("\n")
    place = statement_at(plain, number)
    around = function_around(text, place)
    end = sum(len(item) + 1 for item in plain[:number])
    inner = frame is own_frames(view)[0]
    names = _used(view, text[place:end], inner=inner) if not has_unseen(text[place:end]) else []
    made = made_memory(text, names[0], place) if around is not None and len(names) == 1 else None
    if made is None or around is None or not around.body < made.at < place or made.by not in _MAKERS:
        return None
    if _is_asked(text[made.end : end if inner else place], made.name) or not _is_always(text, made, place):
        return None
    given = _Given(view, around, text[around.body : made.end], made)
    if given.is_common(made.count):
        return None
    return UncheckedAllocation(
        made,
        line_in(file, made.line, None),
        line_in(file, number, None),
        around.name,
        line_words(view),
        tuple(_empty(view, given)),
        tuple(given.numbers()),
    )


def _used(view: ProcessView, running: str, *, inner: bool) -> list[str]:
    """The pointers that a line goes through, by the kind of access; of a function of libc what it is told to fill."""
    head = LOOP.search(running)
    body = running if head is None else running[head.end() :]
    if not inner:
        return list(dict.fromkeys(match["name"] for match in _FILLS.finditer(body)))
    found = dict.fromkeys(match["name"] or match["pointed"] for match in _USES.finditer(body))
    if view.fault is not None and view.fault.access == "write":
        return [item for item in found if re.search(_WRITES.replace("@", re.escape(item)), body)]
    return [
        item for item in found if len(re.findall(_SET_ONLY.replace("@", re.escape(item)), body)) < _count(item, body)
    ]


def _count(name: str, body: str) -> int:
    return len(re.findall(rf"(?<![\w.>]){re.escape(name)}\b", body))


def _is_always(text: str, made: MadeMemory, place: int) -> bool:
    """Whether the allocation depends on no test, and a place is reached through it only: in a block around that."""
    before = re.split(r"[;{}]", text[: made.at])[-1]
    depth = lowest = 0
    for letter in text[made.end : place]:
        depth += (letter == "{") - (letter == "}")
        lowest = min(lowest, depth)
    return lowest == 0 and _CONDITION.search(before) is None


def _is_asked(between: str, name: str) -> bool:
    """Whether anything tests the pointer, or hands it to what may: all but its elements."""
    own = re.escape(name)
    plain = re.sub(rf"sizeof\s*\(?\s*\*?\s*{own}\b", "", between)
    return re.search(rf"(?<![\w.>*]){own}\b(?!\s*(?:\[|->))", plain) is not None


# ---- what is empty


class _Given:
    """What the line passes for the parameters that a size is computed from."""

    def __init__(self, view: ProcessView, around: Function, body: str, made: MadeMemory) -> None:
        arrays, names = PassedArrays(view), tuple(map(declared_name, around.parameters))
        self._arrays, self._reached = arrays, _computed_from(body, made.count)
        direct = [is_own_frame(item) for item in own_frames(view)].count(True) == 1
        given = [(item, arrays.argument(around.name, names, at)) for at, item in enumerate(names) if direct]
        self._known = [(parameter, found) for parameter, found in given if found is not None]

    def variables(self) -> Iterator[str]:
        """Of the arguments, each once."""
        found = (_variables(node) for parameter, (node, _) in self._known if parameter in self._reached)
        yield from dict.fromkeys(name for names in found for name in names)

    def count_of(self, name: str) -> str | None:
        """The parameter that is passed the length of an array."""
        return next((parameter for parameter, (node, _) in self._known if _is_length(node, name)), None)

    def is_common(self, count: str) -> bool:
        """Whether the size is a parameter that is passed a number of elements of which there can be as many."""
        given = next((found for parameter, found in self._known if parameter == count.strip()), None)
        value = self._arrays.number(*given) if given is not None else None
        return value is not None and 0 <= value < _COMMON_ELEMENTS

    def numbers(self) -> Iterator[str]:
        """Those that are below 0, or that no array of this process has as many elements."""
        for parameter, (node, spot) in self._known:
            value = self._arrays.number(node, spot) if parameter in self._reached else None
            if value is not None and not 0 <= value < _MOST_ELEMENTS:
                text = ast.unparse(node)
                yield f"`{text}`" if text == str(value) else f"`{text}` = {value}"


def _empty(view: ProcessView, given: _Given) -> Iterator[EmptyArgument]:
    """Arrays without elements that the line passes, directly or as their length, for what the size is computed from."""
    for name in given.variables():
        array = held_array(view, name)
        if array is not None and 0 in array.shape:
            words, rows = array_words(array).rpartition("]")[0] + "]", kept_rows(view, name)
            yield EmptyArgument(name, words, given.count_of(name), rows, _goes_on(view, rows))


def _computed_from(body: str, count: str) -> set[str]:
    """The variables that an expression was made of, over all that sets them: an element of an array stands for it."""
    reached = set(NAME.findall(count))
    for _ in range(_MOST_ROUNDS):
        found = set(reached)
        for name in reached:
            own = re.escape(name)
            for match in re.finditer(rf"(?<![\w.>]){own}\s*(?:\[[^\]]*\]\s*)?[-+*/]?=(?!=)(?P<value>[^;]*)", body):
                found |= set(NAME.findall(match["value"]))
        counters = [match for match in LOOP.finditer(body) if match["name"] in found]
        found |= {name for match in counters for name in NAME.findall(match["bound"])}
        if found == reached:
            break
        reached = found
    return reached


def _variables(node: ast.expr) -> list[str]:
    return [ast.unparse(item) for item in nodes_of(node) if isinstance(item, (ast.Name, ast.Attribute))]


def _is_length(node: ast.expr, name: str) -> bool:
    return ast.unparse(node) in (f"len({name})", f"{name}.shape[0]", f"{name}.size")


def _goes_on(view: ProcessView, rows: KeptRows | None) -> LineWords:
    """The running line of the function that left nothing; the failing one where that is not known."""
    frames = program_frames(view)
    frame = next((item for item in frames if rows is not None and rows.spot.is_of(item)), frames[0])
    return place_of(view, frame.file, frame.line)
