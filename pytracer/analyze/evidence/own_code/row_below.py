"""A row before the first one: `x[(y - 1) * width + k]`, in a loop that comes to `y` = 0.

Read as text: only where the innermost function of the program's own has the loop around the failing line, and neither
the loop nor the line asks for that number. Where another index goes down with the loop, as when a path is traced back,
also when it is still above 0 there: by the two lengths that they begin with.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from pytracer._patterns import Pattern
from pytracer._text import capital, shortened
from pytracer.analyze.address_space.lookup import GUESSED
from pytracer.analyze.evidence.lifetime.variables import line_words
from pytracer.analyze.evidence.operators.operator import find_operator
from pytracer.analyze.evidence.own_code.c_loops import Loop, asks_for, loops_around
from pytracer.analyze.evidence.own_code.c_text import function_around, statement_at, without_comments
from pytracer.analyze.evidence.own_code.lookups import Lookup, Scope, lookups
from pytracer.analyze.evidence.own_code.native_bounds import running_frame
from pytracer.analyze.evidence.own_code.native_source import own_source
from pytracer.analyze.evidence.own_code.passed_arrays import PassedArray, PassedArrays
from pytracer.analyze.view import ProcessView

_BEFORE = Pattern(r"(?<![\w.>])(?P<name>[A-Za-z_]\w*)\s*-\s*(?P<by>\d+)\b")
_LIMITED = Pattern(r"%|\?|(?i:max|clamp|clip|wrap|mod)\w*\s*\(")  # row -1 may be meant, and another one be taken
_CAST = Pattern(r"\(\s*(?:const\s+)?(?:(?:un)?signed|short|int|long|s?size_t|ptrdiff_t|u?int\d+_t)(?:\s+\w+)*\s*\)")
_ELEMENT = Pattern(r"(?<![\w.>])(?P<array>[A-Za-z_]\w*)\s*\[(?P<index>[^\[\]]*)\]$")
_LENGTH = Pattern(r"^(?P<name>[A-Za-z_]\w*)\s*-\s*1$")
_QUOTED = 60
_HALF = 1 << 32


class Lengths(msgspec.Struct, frozen=True):
    """`index` begins with one less than `longer`, and goes down at most once in each of `rounds` rounds.

    `of_longer`, `of_rounds`: the arrays of the line that these are read from, item by item.
    """

    index: str
    begins: str
    longer: str
    rounds: str
    of_longer: PassedArray | None
    of_rounds: PassedArray | None

    def words(self, line: str) -> str:
        """Sentences: when it is still above 0, and where to look."""
        said = (
            f" `{self.index}` begins with `{self.begins}` and goes down at most once in each of the `{self.rounds}` "
            f"rounds: it is still above 0 there where `{self.longer}` is more than `{self.rounds}`."
        )
        longer, rounds = self.of_longer, self.of_rounds
        if longer is None or rounds is None:
            return f"{said} Look for such an item in what {line} passes, and leave it out, or cut both alike."
        passed = f"{said} {capital(line)} passes these in `{longer.name}` and `{rounds.name}`"
        if longer.high is not None and rounds.high is not None and longer.high > rounds.high:
            return (
                f"{passed}; `{longer.name}` goes to {longer.high} and `{rounds.name}` to {rounds.high} at most, so "
                f"that some item has more in `{longer.name}`: leave such items out, or cut both alike."
            )
        return (
            f"{passed}: look for items with more in `{longer.name}` than in `{rounds.name}`, and leave them out, or "
            "cut both alike."
        )


class RowBelow(msgspec.Struct, frozen=True):
    """`place` (`ops.c:28`) takes `element`; `loop_line` begins the loop that comes to `counter` = `least`.

    `by` is subtracted from that; `times`: whether what it gives counts rows.
    """

    place: str
    element: str
    counter: str
    least: int
    by: int
    times: bool
    loop_line: int
    lengths: Lengths | None

    def advice(self, view: ProcessView) -> str:
        """What is before the first one, and what keeps the line from it."""
        what = f"row {self.least - self.by}" if self.times else f"index {self.least - self.by}"
        line = line_words(view)
        more = self.lengths.words(line) if self.lengths is not None else ""
        return (
            f"{self.place} takes `{self.element}`, and the loop of its line {self.loop_line} comes to `{self.counter}` "
            f"= {self.least}, where `{self.counter} - {self.by}` is {what}: ask for `{self.counter}` first.{more}"
        )


def row_below(view: ProcessView, index: int | None) -> RowBelow | None:
    """None where another element of the line may be meant, or the source asks for the counter.

    Args:
        view: The process; its access was before the first element.
        index: What was added to the address of that, in elements; None where it is not known.
    """
    frame, found = running_frame(view), lookups(view)
    source = own_source(frame) if frame is not None else None
    if found is None or source is None or source[0].line is None:
        return None
    text = without_comments("\n".join(source[1]))
    lines = text.split("\n")
    place = statement_at(lines, source[0].line)
    around = function_around(text, place)
    if around is None:
        return None
    loops, end = [*loops_around(text, around.body, place)], place + len(lines[source[0].line - 1])
    for item in found.found:
        for name, by, times in _subtracted(item):
            loop = next((one for one in loops if one.least(name) is not None), None)
            least = loop.least(name) if loop is not None else None
            if loop is None or least is None or least >= by or not _fits(index, least - by, times=times):
                continue
            if asks_for(name, text[loop.body : end]) or asks_for(name, found.statement):
                continue
            if any(other.by and not _is_of(other, name) for other in found.found):
                return None  # by a number that was read from memory
            lengths = _lengths(view, item, loop, name, text, around.body)
            line = text.count("\n", 0, loop.start) + 1
            return RowBelow(found.place, shortened(item.text, _QUOTED), name, least, by, times, line, lengths)
    return None


def row_before_storage(view: ProcessView, count: int | None) -> RowBelow | None:
    """The same of an access before a storage. `count`: what the instruction added to an address in it."""
    place, instruction = view.place, view.instruction
    if place is None or place.kind != "before-storage" or place.found == GUESSED or find_operator(view) is not None:
        return None
    first = place.storage is not None and instruction is not None and instruction.base_value == place.storage.base
    return row_below(view, count if first else None)


def _is_of(item: Lookup, name: str) -> bool:
    return re.search(rf"(?<![\w.>]){re.escape(name)}\b", item.text) is not None


def _fits(index: int | None, least: int, *, times: bool) -> bool:
    """Whether such an index may have been that number; of rows, how many elements these have is not known."""
    if index is None or times:
        return True
    below = index if index < 0 else index - _HALF  # of an unsigned number
    return least <= below < 0


def _subtracted(item: Lookup) -> Iterator[tuple[str, int, bool]]:
    """`y` and 1, of `x[y - 1]` and of `x[(y - 1) * width + k]`; and whether it counts rows."""
    inner = item.text[item.text.find("[") + 1 :]
    if _LIMITED.search(inner):
        return
    for match in _BEFORE.finditer(inner):
        before, behind = _CAST.sub("", inner[: match.start()]).rstrip(), inner[match.end() :].lstrip()
        whole = (not before or before.endswith("[")) and behind.startswith("]")
        row = before.endswith("(") and behind.startswith(")")
        factor = row and (re.match(r"\)+\s*\*", behind) or re.search(r"\*\s*\(+$", before)) is not None
        more = behind.startswith("]") and behind.rstrip("] ") != ""  # x[y - 1][k]
        if whole or factor:
            yield match["name"], int(match["by"]), factor or more


def _lengths(view: ProcessView, item: Lookup, loop: Loop, counter: str, text: str, body: int) -> Lengths | None:
    """Of another index in the element that goes down by one, at most once in each round."""
    rounds = loop.rounds(counter)
    if rounds is None:
        return None
    names = dict.fromkeys(re.findall(r"(?<![\w.>])[A-Za-z_]\w*\b(?!\s*[\[(])", item.text))
    for name in names:
        begins = loop.begins(name, text[body : loop.start]) if name != counter else None
        match = _LENGTH.match(begins) if begins is not None else None
        if begins is not None and match is not None and match["name"] != rounds and loop.steps_down_once(name, text):
            longer = match["name"]
            arrays = PassedArrays(view)
            by_item = _element_of(longer, item.scope, arrays), _element_of(rounds, item.scope, arrays)
            (of_longer, place), (of_rounds, other) = by_item
            alike = of_longer is not None and of_rounds is not None and of_longer.elements == of_rounds.elements
            if not alike or place != other:
                return Lengths(name, begins, longer, rounds, None, None)
            return Lengths(name, begins, longer, rounds, of_longer, of_rounds)
    return None


def _element_of(name: str, scope: Scope, arrays: PassedArrays) -> tuple[PassedArray | None, str]:
    """The array that the function which Python called takes a number from, for a parameter of one that it calls.

    With the index of that number, as it is written.
    """
    while name in scope.parameters and scope.outer is not None:
        place = scope.parameters.index(name)
        given = _CAST.sub("", scope.given[place]).strip() if place < len(scope.given) else ""
        scope, match = scope.outer, _ELEMENT.search(given)
        if match is not None and match["array"] in scope.parameters and scope.outer is None:
            found = arrays.passed(scope.name, scope.parameters, scope.parameters.index(match["array"]))
            return (found if found is not None and found.is_integer else None), match["index"]
        name = given
    return None, ""
