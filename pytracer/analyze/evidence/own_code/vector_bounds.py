"""A loop of the program's own C++ that counts by one container, and indexes another one, which is shorter.

`for (i = 0; i < (int)p.size(); i++) ... cost[i]`: std::vector checks no index. How long both are follows from the
source, back to the numbers that Python passed: `p(first, first + n)`, and `rows` times `cost.emplace_back(...)`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

import msgspec

from pytracer._patterns import Pattern
from pytracer._text import list_words, shortened
from pytracer.analyze.address_space.referrers import data_registers
from pytracer.analyze.evidence.lifetime.where_made import place_of
from pytracer.analyze.evidence.own_code.c_loops import Loop, loops_around
from pytracer.analyze.evidence.own_code.c_text import Function, arguments_at, closing, split
from pytracer.analyze.evidence.own_code.c_text import without_comments as plain
from pytracer.analyze.evidence.own_code.native_bounds import assigned_value, running_frame
from pytracer.analyze.evidence.own_code.passed_arrays import PassedArray, PassedArrays
from pytracer.analyze.evidence.own_code.passed_through import Level, is_assigned, levels
from pytracer.analyze.naming import LineWords
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import Crash
from pytracer.report.job import Evidence

_NAME = Pattern(r"^[A-Za-z_]\w*$")
_CAST = Pattern(r"^\(\s*(?:const\s+)?(?:unsigned\s+)?\w+\s*\)\s*|^static_cast<[\w: ]+>\s*(?=\()")
_SIZE = Pattern(r"^(?P<name>\w+)\s*\.\s*size\s*\(\s*\)$")
_CONDITION = Pattern(r"^\s*(?P<name>\w+)\s*(?:<|!=)\s*(?P<bound>.+?)\s*$")
_ADDS = r"\b{0}\s*\.\s*(?:emplace_back|push_back)\s*\("
_SETS = r"\b{0}\s*\.\s*(?:resize|assign)\s*\("
_CHANGES = r"\b{0}\s*\.\s*(?:insert|erase|pop_back|clear|swap|shrink_to_fit)\s*\("
_TESTS = Pattern(r"\b(?:if|while|\w*assert|\w*CHECK\w*|\w*ASSERT\w*)\s*\(")
_HOPS, _WORD, _MOST_BYTES, _QUOTED = 6, 8, 256, 60


class Length(msgspec.Struct, frozen=True):
    """`text` of the function that Python called: how many there are. `value`: None where that is not known.

    `given`: what the line passes for it; `of`: the array that the elements are copied from, `` `q` [471] ``.
    """

    text: str
    value: int | None
    given: str | None
    of: str | None = None
    made: str | None = None

    @property
    def words(self) -> str:
        """`` `n` = 471 (`len(vocab)` of the line) ``, without what is not known or says the same."""
        known = f" = {self.value}" if self.value is not None else ""
        given = f", for which the line passes `{self.given}`" if self.given not in (None, self.text) else ""
        return f"`{self.text}`{known}{given}"


class VectorBounds(msgspec.Struct, frozen=True):
    """`counter` goes up to `bound`, and is an index of `container`, which has `length` elements.

    `register` points at element `reached`; None where memory does not show the container.
    """

    function: str
    line: LineWords
    counter: str
    by: str
    container: str
    bound: Length
    length: Length
    data: str | None
    made: str | None  # the line that made it
    register: str | None
    reached: int | None

    @property
    def summary(self) -> str:
        """Behind the place in a headline."""
        limit = self.length.value
        reached = f"reached {self.reached}" if self.reached is not None else f"counts below {self.bound.words}"
        also = f", as it counts below {self.bound.words}" if self.reached is not None else ""
        return (
            f"`{self.counter}` {reached}{also}, and is an index of `{self.container}`, which has {limit} elements "
            f"(`{self.length.text}`{self._rows})"
        )

    @property
    def _rows(self) -> str:
        return f", from {self.data}" if self.data is not None else ""

    @property
    def evidence(self) -> Evidence | None:
        """What memory has of the container."""
        if self.register is None:
            return None
        sentence = (
            f"{self.register} points at element {self.reached} of memory whose bounds lie on the stack, as those of a "
            f"std::vector, and which has {self.length.value}"
        )
        return Evidence("address-sum", sentence, register=self.register, value=self.reached, limit=self.length.value)

    @property
    def advice(self) -> str:
        """The change to make."""
        pair = list_words([item for item in (self.bound.of, self.data) if item is not None])
        sizes = f": make {pair} for the same number of items" if self.bound.of and self.data else ""
        made = f": {self.data} is from {self.made}" if self.made is not None else ""
        given = f"`{self.bound.given}`" if self.bound.given is not None else self.bound.words
        length = f"`{self.length.given}`" if self.length.given is not None else f"`{self.length.text}`"
        return (
            f"Compare the two lengths that {self.line} passes, {given}{_is(self.bound)} for `{self.bound.text}` and "
            f"{length}{_is(self.length)} for `{self.length.text}`{sizes}. One may be kept from before the other "
            f"changed{made}. Let {self.function}() refuse them where `{self.bound.text}` is larger than "
            f"`{self.length.text}`."
        )


def _is(length: Length) -> str:
    return f" = {length.value}" if length.value is not None else ""


def vector_bounds(view: ProcessView) -> VectorBounds | None:
    """None where the source does not show both lengths, or they are not known to differ."""
    frame = running_frame(view)
    way = [*levels(view, frame)] if frame is not None and view.crash is not None else []
    found = [*_Search(view, way).all()] if way else []
    names = {item.container for item in found}
    return found[0] if len(names) == 1 else None


def container_length(view: ProcessView, way: Sequence[Level], name: str, level: int) -> Length | None:
    """How many elements the source makes a container of the function at a level of the way with."""
    return _Search(view, way).of_container(name, level)


class _Search:
    def __init__(self, view: ProcessView, way: Sequence[Level]) -> None:
        self._view, self._way = view, way
        self._arrays = PassedArrays(view)
        self._texts = [plain("\n".join(lines)) for _, lines, _ in way]

    def all(self) -> Iterator[VectorBounds]:
        """Of each loop around the running line, and each container that its counter is an index of."""
        function, lines, number = self._way[0]
        text = self._texts[0]
        place = sum(len(item) + 1 for item in lines[:number]) - 1
        for loop in loops_around(text, function.body, place):
            counter = _CONDITION.match(loop.condition)
            if counter is None or loop.least(counter["name"]) != 0:
                continue
            bound = self._length(counter["bound"], 0)
            used = re.finditer(rf"(?<![\w.>])(\w+)\s*\[\s*{counter['name']}\s*\]", text[loop.body : place])
            for container in dict.fromkeys(item[1] for item in used):
                length = self.of_container(container, 0) if bound is not None else None
                if bound is None or length is None or self._is_tested(container, length):
                    continue
                if not _is_compared(text, function, loop, counter["name"]):
                    yield from self._differing(counter["name"], counter["bound"], container, bound, length)

    def _is_tested(self, container: str, length: Length) -> bool:
        """Whether a function on the way compares the length with another one: then it may have refused it."""
        size = rf"\b(?:{re.escape(container)}\s*\.\s*size\s*\(|{re.escape(length.text)}\b)"
        return any(
            re.search(size, part) is not None and re.search(r"(?:[<>]=?|[!=]=)\s*\(?-?\d+\s*\)?$", part) is None
            for level in range(len(self._way))
            for part in _compared(self._body(level))
        )

    def _differing(
        self, counter: str, by: str, container: str, bound: Length, length: Length
    ) -> Iterator[VectorBounds]:
        spot, crash = self._arrays.back.spot(0), self._view.crash
        if length.value is None or spot is None or crash is None or bound.text == length.text:
            return
        is_longer = bound.value is not None and bound.value > length.value
        register, reached = _beyond(crash, length.value) if bound.value is None or is_longer else (None, None)
        if is_longer or register is not None:
            line = place_of(self._view, spot.file, spot.line)
            name = self._way[-1][0].name
            yield VectorBounds(
                name, line, counter, by, container, bound, length, length.of, length.made, register, reached
            )

    def _length(self, text: str, level: int, left: int = _HOPS) -> Length | None:
        """What a bound of a loop is: of the function at a level of the way."""
        text = _bare(text)
        size = _SIZE.match(text)
        if size is not None:
            return self.of_container(size["name"], level, left)
        if not left or not _NAME.match(text):
            return None
        function, lines, _ = self._way[level]
        place = function.place_of(text)
        if place is None:
            value = assigned_value([self._body(level)], text)
            return self._length(value, level, left - 1) if value is not None else None
        if is_assigned(function, lines, text):
            return None
        if level + 1 < len(self._way):
            given = self._given(level, place)
            return self._length(given, level + 1, left - 1) if given is not None else None
        passed = self._arrays.argument(function.name, _names(function), place)
        number = self._arrays.number(*passed) if passed is not None else None
        return Length(text, number, shortened(ast.unparse(passed[0]), _QUOTED) if passed is not None else None)

    def of_container(self, name: str, level: int, left: int = _HOPS) -> Length | None:
        """How many elements a std::vector of the function at a level has."""
        function = self._way[level][0]
        place = function.place_of(name)
        if not left or (place is not None and "*" in function.parameters[place]):
            return None
        if re.search(rf"\bmap\s*<[^;]*>\s*&?\s*{re.escape(name)}\b", self._whole(level)) is not None:
            return None  # which makes what it does not have
        if place is not None:
            given = self._given(level, place) if level + 1 < len(self._way) else None
            return self.of_container(_bare(given), level + 1, left - 1) if given is not None else None
        body = self._body(level)
        inner = self._way[level - 1][0].name if level else None
        if re.search(_CHANGES.format(re.escape(name)), body) or _may_change(body, name, inner):
            return None
        made = [*self._made(name, body, level)]
        adds = [*re.finditer(_ADDS.format(re.escape(name)), body)]
        if len(made) == 1 and not adds:
            count, start = made[0]
            length = self._length(count, level, left - 1)
            return self._with_array(length, start, level)
        return self._added(body, adds[0], level, left) if len(adds) == 1 and not made else None

    def _made(self, name: str, body: str, level: int) -> Iterator[tuple[str, str | None]]:
        """The number of elements that a constructor or resize() makes, and the pointer that they are copied from."""
        ways = (
            rf"[\w>:]\s*&?\s*\b{re.escape(name)}\s*\(",
            rf",\s*{re.escape(name)}\s*\(",
            _SETS.format(re.escape(name)),
        )
        for way in ways:
            for match in re.finditer(way, body):
                end = closing(body, match.end() - 1)
                given = split(body[match.end() : end]) if end is not None else ()
                copied = (
                    re.fullmatch(rf"{re.escape(given[0])}\s*\+\s*(?P<count>\w+)", given[1]) if len(given) == 2 else None
                )
                if copied is not None:
                    yield copied["count"], given[0]
                elif len(given) == 1 or (len(given) == 2 and "+" not in given[1]):
                    yield given[0], None

    def _added(self, body: str, add: re.Match[str], level: int, left: int) -> Length | None:
        """Of a loop that adds one element in each round."""
        around = [*loops_around(body, 0, add.start())]
        head = _CONDITION.match(around[0].condition) if len(around) == 1 else None
        if head is None or around[0].least(head["name"]) != 0 or "++" not in around[0].step:
            return None
        if re.search(r"\b(?:if|continue|break)\b", body[around[0].body : around[0].end]):
            return None
        length = self._length(head["bound"], level, left - 1)
        end = closing(body, add.end() - 1)
        names = re.findall(r"[A-Za-z_]\w*", body[add.end() : end])
        pointers = [item for item in names if self._is_pointer(item, level)]
        return self._with_array(length, pointers[0] if pointers else None, level)

    def _is_pointer(self, name: str, level: int) -> bool:
        function = self._way[level][0]
        place = function.place_of(name)
        return place is not None and "*" in function.parameters[place]

    def _with_array(self, length: Length | None, pointer: str | None, level: int) -> Length | None:
        """With the array that Python passes for a pointer."""
        function = self._way[level][0]
        place = function.place_of(pointer) if pointer is not None and level + 1 == len(self._way) else None
        if length is None or place is None:
            return length
        array = self._arrays.passed(function.name, _names(function), place)
        return (
            msgspec.structs.replace(length, of=array.words, made=self._made_at(array)) if array is not None else length
        )

    def _made_at(self, array: PassedArray) -> str | None:
        """The line of the call that made it."""
        made = self._arrays.back.made(array.node, array.spot, calls=False)
        if not isinstance(made.node, ast.Call):
            return None
        at = place_of(self._view, made.spot.file, made.line)
        return at.quoted(shortened(ast.unparse(made.node), _QUOTED))

    def _given(self, level: int, place: int) -> str | None:
        """What the caller passes."""
        _, lines, number = self._way[level + 1]
        given = arguments_at(lines, number, self._way[level][0].name)
        return given[place] if given is not None and place < len(given) else None

    def _whole(self, level: int) -> str:
        """The parameters and the body of a function."""
        return f"{'; '.join(self._way[level][0].parameters)}; {self._body(level)}"

    def _body(self, level: int) -> str:
        function, text = self._way[level][0], self._texts[level]
        return text[function.body : closing(text, function.body)]


def _compared(body: str) -> Iterator[str]:
    """The comparisons of each `if`, `assert` and CHECK."""
    for match in _TESTS.finditer(body):
        end = closing(body, match.end() - 1)
        for part in re.split(r"&&|\|\|", body[match.end() : end]):
            if re.search(r"[<>]=?|[!=]=", part) is not None:
                yield part.strip()


def _may_change(body: str, name: str, inner: str | None) -> bool:
    """Whether a container is given to another function than the inner one, to a reference, or set."""
    for match in re.finditer(rf"(?<![\w.>]){re.escape(name)}\b\s*", body):
        after = body[match.end() : match.end() + 2]
        if after[:1] == "=" and after != "==":
            return True
        begin = body.rfind(";", 0, match.start()) + 1
        if re.search(r"&\s*\w+\s*=\s*$|(?<!&)&\s*$", body[begin : match.start()]) is not None:
            return True
        if after[:1] in (",", ")") and not {inner, "for"}.intersection(_called_around(body, match.start())):
            return True
    return False


def _called_around(body: str, place: int) -> tuple[str, ...]:
    """The function in whose parentheses a place is; of `Tree tree(points)`, the class as well."""
    depth = 0
    for at in range(place - 1, -1, -1):
        depth += (body[at] == ")") - (body[at] == "(")
        if depth < 0:
            return tuple(re.findall(r"\w+", re.split(r"[;{}(),=]", body[:at])[-1])[-2:])
        if body[at] in ";{}" and not depth:
            return ()
    return ()


def _names(function: Function) -> tuple[str, ...]:
    return tuple(re.findall(r"\w+", item.partition("=")[0])[-1] for item in function.parameters)


def _bare(text: str) -> str:
    """`p.size()` of `(int)p.size()`."""
    text = _CAST.sub("", text.strip()).strip()
    return text[1:-1].strip() if text.startswith("(") and closing(text, 0) == len(text) - 1 else text


def _is_compared(text: str, function: Function, loop: Loop, counter: str) -> bool:
    """Whether the loop asks for more of its counter than its own condition does."""
    inside = text[loop.body : loop.end]
    return re.search(rf"\b{counter}\s*(?:[<>]=?|[!=]=)|(?:[<>]=?|[!=]=)\s*{counter}\b", inside) is not None


def _beyond(crash: Crash, count: int) -> tuple[str | None, int | None]:
    """A register that points behind memory of so many elements, whose bounds are on the stack; and at which element."""
    found = set()
    for block in crash.memory:
        if block.register not in ("rsp", "sp"):
            continue
        words = [
            int.from_bytes(block.content[at : at + _WORD], "little")
            for at in range(0, len(block.content) - _WORD + 1, _WORD)
        ]
        for low, high, end in zip(words, words[1:], words[2:], strict=False):
            nbytes, left = divmod(high - low, count) if 0 < low < high <= end and count else (0, 1)
            if left or not 0 < nbytes <= _MOST_BYTES or nbytes % _WORD:
                continue
            for name, value in data_registers(crash).items():
                if value >= high and value - high < nbytes * count and (value - low) % nbytes == 0:
                    found.add((name, (value - low) // nbytes))
    return min(found, key=lambda item: item[1]) if found else (None, None)
