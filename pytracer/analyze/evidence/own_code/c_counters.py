"""Writes of C by a counter that a loop advances: `for (i = 0; i < n; i++) if (...) out[kept++] = i;`.

Read as text: only where the function does nothing else with the counter, and no test but of the loop's data decides
about the write. Up to `n` elements are then written, whatever room there is.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from itertools import islice

import msgspec

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.own_code.c_text import closing
from pytracer.analyze.evidence.own_code.native_bounds import LOOP
from pytracer.analyze.evidence.own_code.short_allocations import statement_end

_WRITE = Pattern(
    r"(?<![\w.>])(?P<name>\w+)\s*\[\s*(?P<counter>\w+)\s*\+\+\s*\]\s*(?:=(?!=)|(?:\.|->)\s*\w+\s*=(?!=))"
    r"|=\s*&\s*(?P<of>\w+)\s*\[\s*(?P<at>\w+)\s*\+\+\s*\]\s*;|=\s*(?P<base>\w+)\s*\+\s*(?P<step>\w+)\s*\+\+\s*;"
)
_FOR, _OTHER_LOOPS = Pattern(r"\bfor\s*\("), Pattern(r"\b(?:do|goto|static)\b")
_WHILE = Pattern(r"\bwhile\s*\(")
_IF, _TESTS = Pattern(r"\bif\s*\("), Pattern(r"\b(?:if|while|assert)\s*\(")
_LEAVES, _SWITCHES = Pattern(r"\b(?:break|continue|return|goto|exit|abort)\b"), Pattern(r"\b(?:switch|longjmp|throw)\b")
_AND_OR = Pattern(r"&&|\|\|")
_GIVES, _HOPS = Pattern(r"\b(\w+)\s*=\s*([^;=]*);"), 3
_VALUES = Pattern(r"\]\s*=(?!=)[^;]*;")  # what is written, and not whether
_MOST = 32  # writes of a function that are looked at
_EMPTY = r"!\s*{0}|{0}\s*(?:<=?|==|>)\s*[01]"  # no limit: `n <= 0`


class CounterWrite(msgspec.Struct, frozen=True):
    """`name` is written up to `bound` elements by `counter`; `start`: of the write in the text."""

    name: str
    counter: str
    bound: str
    start: int


def counter_writes(text: str, names: Collection[str]) -> Iterator[CounterWrite]:
    """Those of a function without comments into one of these parameters, as far as another of them."""
    for match in islice(_WRITE.finditer(text), _MOST):
        name = match["name"] or match["of"] or match["base"]
        counter, loop = match["counter"] or match["at"] or match["step"], _loop(text, match.start())
        bound = loop["bound"].strip() if loop is not None else ""
        if loop is None or name not in names or bound not in names:
            continue
        if not (
            _is_set(text, name)
            or _is_used(text, counter, match.start())
            or _is_limited(text, bound)
            or _may_end(text, loop, match.start())
        ):
            yield CounterWrite(name, counter, bound, match.start())


def _loop(text: str, place: int) -> re.Match[str] | None:
    """The only loop around a place, which counts from 0: `for (int i = 0; i < n; i++)`."""
    whiles = any(_spans(text, match, place) for match in _WHILE.finditer(text, 0, place))
    if whiles or _OTHER_LOOPS.search(text, 0, place) is not None:
        return None
    around = [match for match in LOOP.finditer(text, 0, place) if _spans(text, match, place)]
    if len(around) != 1 or len(_FOR.findall(text, 0, place)) != len(LOOP.findall(text, 0, place)):
        return None
    loop = around[0]
    counts = re.match(rf"\s*(?:{loop['name']}\s*\+\+|\+\+\s*{loop['name']})\s*[,)]", text[loop.end() :]) is not None
    return loop if counts and loop["how"] == "<" and loop["start"].strip() == "0" else None


def _spans(text: str, loop: re.Match[str], place: int) -> bool:
    """Whether a place is in the body of a loop: a block, or one statement."""
    head = closing(text, text.index("(", loop.start()))
    if head is None:
        return False
    return head < place <= statement_end(text, head + 1)


def _is_set(text: str, name: str) -> bool:
    """Whether the function may make the buffer another one: `cells = malloc(...)`, `grow(&cells)`."""
    own = rf"(?<![\w.>]){re.escape(name)}"
    sets = rf"{own}\s*(?:[-+]?=(?!=)|\+\+|--)|(?<!&)&\s*{own}\s*[,)]"
    return re.search(sets, text[text.index("{") if "{" in text else 0 :]) is not None


def _is_used(text: str, counter: str, place: int) -> bool:
    """Whether more is done with the counter than to start it, count by it, and give it back: that may be a limit."""
    own = rf"(?<![\w.>]){re.escape(counter)}\b"
    plain = (
        rf"\b\w+\s+{own}\s*(?:=\s*0)?\s*[;,]", rf",\s*{own}\s*=\s*0\s*[;,]", rf"[;{{}}]\s*{own}\s*=\s*0\s*;",
        rf"\[\s*{own}\s*\+\+\s*\]\s*=(?!=)", rf"[\w\])]\s*=\s*{own}\s*;", rf"\breturn\s+{own}\s*;",
        rf"\w\s*\[\s*{own}\s*\]\s*=\s*(?:0|'\\0')\s*;",  # the end of a text
    )  # fmt: skip
    known = {place for kind in plain for match in re.finditer(kind, text) for place in range(*match.span())}
    heads = re.compile(rf"\bfor\s*\([^;()]*;\s*\w+\s*<\s*{own}\s*;")  # of a later loop over what was written
    known |= {at for match in heads.finditer(text, place) for at in range(*match.span())}
    known |= {at for match in _WRITE.finditer(text) for at in range(*match.span())}
    places = [match.start() for match in re.finditer(own, text)]
    starts = len(re.findall(rf"{own}\s*=(?!=)", text))
    return starts > 1 or any(place not in known for place in places)


def _is_limited(text: str, bound: str) -> bool:
    """Whether the function changes how far the loop goes, or tests that: `if (n > MAX) n = MAX;`."""
    own = rf"(?<![\w.>]){re.escape(bound)}\b"
    if re.search(rf"{own}\s*(?:[-+*/%&|^]|<<|>>)?=(?!=)|{own}\s*(?:\+\+|--)|(?:\+\+|--|&)\s*{own}", text) is not None:
        return True
    tests = (item for match in _TESTS.finditer(text) if (item := _condition(text, match)) is not None)
    return any(re.search(own, test) and not re.fullmatch(_EMPTY.format(own), test.strip()) for test in tests)


def _may_end(text: str, loop: re.Match[str], place: int) -> bool:
    """Whether a test in the loop that may be of anything but its data decides about the write."""
    head = closing(text, text.index("(", loop.start())) or loop.end()
    end = statement_end(text, head + 1)
    body = text[head:end]
    if "?" in _VALUES.sub("", body) or _SWITCHES.search(body) is not None:
        return True
    for match in _IF.finditer(text, head, end):
        test, after = _condition(text, match), closing(text, text.index("(", match.start()))
        if test is None or after is None:
            return True
        last = statement_end(text, after + 1)
        decides = after < place <= last or _LEAVES.search(text, after, last) is not None
        other = text[last:].lstrip(" \n\t;}").startswith("else")
        if (decides or other) and not all(_is_data(body, part, loop["name"]) for part in _AND_OR.split(test)):
            return True
    return False


def _condition(text: str, test: re.Match[str]) -> str | None:
    start = text.index("(", test.start())
    end = closing(text, start)
    return text[start + 1 : end] if end is not None else None


def _is_data(body: str, part: str, name: str) -> bool:
    """Whether a test is of an element by the loop's variable, or of what a line of the loop made of one."""
    if "++" in part or "--" in part or re.search(r"(?<![=!<>])=(?!=)", part) is not None:
        return False
    element = rf"\w\s*\[[^\]]*\b{re.escape(name)}\b"
    made = set(re.findall(rf"\b(\w+)\s*=\s*[^;=]*{element}[^;]*;", body))
    for _ in range(_HOPS):
        made |= {to for to, value in _GIVES.findall(body) if any(re.search(rf"\b{one}\b", value) for one in made)}
    return re.search(element, part) is not None or any(re.search(rf"\b{one}\b", part) for one in made)
