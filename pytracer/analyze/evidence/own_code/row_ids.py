"""Ids that the program's own C uses as columns of a block of rows: `diff[i * classes + label]`, of `batch * classes`.

An id that is no column is one of the next row, unseen; in the last row it lies behind the block.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.own_code.c_text import closing, split, without_comments, without_parentheses
from pytracer.analyze.evidence.own_code.native_bounds import last_value

_COUNTED = (
    r"(?P<block>\w+)\s*=[^;=]*?\b(?:malloc|calloc|alloca|realloc)\s*\((?P<bytes>[^;]*)\)\s*\)?\s*;",
    r"(?P<block>\w+)\s*=\s*new\s+[\w:]+\s*\[(?P<new>[^\];]+)\]",
    r"\bvector\s*<[^;()]*>\s*(?P<block>\w+)\s*\((?P<vector>[^;]*)\)\s*;",
)
_CASTS = Pattern(
    r"\b(?:static|reinterpret|const)_cast\s*<[^<>]*>\s*(?=\()|\((?:std::)?(?:size_t|long|int|u?int\d+_t)\)\s*"
)
_SIZES = Pattern(r"\bsizeof\s*(?:\([^()]*\)|\*?\s*\w+)")
_NAME = Pattern(r"[A-Za-z_]\w*")
_SETS = Pattern(r"\s*(?:=(?!=)|(?:[-+*/|&^]|<<|>>)=|\+\+|--)")


class IdUse(msgspec.Struct, frozen=True):
    """Line `line` of a function, from 1, uses `array` as index of `block`, which line `made` makes of `count`.

    `of_rows`: elements of `array` are the columns, in rows of `count`.
    """

    array: str
    block: str
    count: str
    line: int
    made: int
    of_rows: bool = False


def row_uses(body: str, names: tuple[str, ...]) -> Iterator[IdUse]:
    """Writes that nothing checks, of a function with these parameters, by the lines of its body."""
    text = _CASTS.sub("", without_comments(body))
    names = tuple(item for item in names if item and not _is_set(text, item))
    for block, factors, at in _blocks(text, names):
        for place, column, count in _columns(text, block):
            array = _array_of(text[:place], column)
            if array not in names or count not in factors or _is_chosen(text, place, array, column):
                continue
            if not _is_checked(text, array, column, count):
                line, made = text.count("\n", 0, place) + 1, text.count("\n", 0, at) + 1
                yield IdUse(array, block, count, line, made, of_rows=True)


def _blocks(text: str, names: tuple[str, ...]) -> Iterator[tuple[str, set[str], int]]:
    """Each with the parameters that its number of elements is the product of."""
    for pattern in _COUNTED:
        for match in re.finditer(pattern, text):
            groups = match.groupdict()
            size = groups.get("bytes") or groups.get("new") or next(iter(split(groups.get("vector") or "")), "")
            plain = _SIZES.sub("1", size)
            words = set(_NAME.findall(plain))
            if len(words) > 1 and words <= {*names} and re.search(r"[-+/%<>?]", plain) is None:
                yield match["block"], words, match.start("block")


def _columns(text: str, block: str) -> Iterator[tuple[int, str, str]]:
    """Where an element of a row is written: its column, and what may be the length of a row."""
    for at, index in _written(text, block):
        sums = [without_parentheses(item) for item in _summands(index)]
        products = [item for item in sums if re.fullmatch(r"\w+\s*\*\s*\w+", item)]
        others = [item for item in sums if item not in products]
        if len(products) == len(others) == 1:
            yield from ((at, others[0], count) for count in _NAME.findall(products[0]))
    for row, factors in _rows(text, block):
        for at, index in _written(text, row):
            yield from ((at, index, count) for count in factors)


def _written(text: str, name: str) -> Iterator[tuple[int, str]]:
    """Where an element of a pointer is set or changed, and its index."""
    for match in re.finditer(rf"(?<![\w.>]){re.escape(name)}\s*\[", text):
        end = closing(text, match.end() - 1)
        before = text[: match.start()].rstrip()[-2:]
        if end is not None and (_SETS.match(text, end + 1) or before in ("++", "--")):
            yield match.start(), without_parentheses(text[match.end() : end])


def _rows(text: str, block: str) -> Iterator[tuple[str, list[str]]]:
    """`row` of `float *row = diff + i * classes`, with the two factors."""
    for match in re.finditer(rf"\*\s*(?P<row>\w+)\s*=\s*&?\s*{re.escape(block)}\b(?P<index>[^;]*);", text):
        inner = match["index"].strip()
        inner = without_parentheses(inner[1:-1] if inner.startswith("[") else inner.lstrip("+ "))
        if re.fullmatch(r"\w+\s*\*\s*\w+", inner):
            yield match["row"], _NAME.findall(inner)


def _summands(text: str) -> list[str]:
    """Those of a sum, outside of its brackets."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "([") - (letter in ")]")
        if letter == "+" and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [item.strip() for item in parts]


def _array_of(before: str, column: str) -> str:
    """`labels` of `labels[i]`, also by the variable that was last given it and not changed since; else ""."""
    if re.fullmatch(_NAME.pattern, column):
        column = without_parentheses(last_value(before, column))
    match = re.match(r"^(\w+)\s*\[", column)
    return match[1] if match is not None and closing(column, match.end() - 1) == len(column) - 1 else ""


def _is_set(text: str, name: str) -> bool:
    """Whether the function gives a parameter, or an element of it, another value."""
    own = rf"(?<![\w.>]){re.escape(name)}"
    return re.search(rf"(?:\+\+|--)\s*{own}\b|{own}\s*(?:\[[^;\]]*\]\s*)?{_SETS.pattern.lstrip()}", text) is not None


def _is_chosen(text: str, place: int, array: str, column: str) -> bool:
    """Whether a condition before a write has the id or an element, other than to ask for one below 0, or has the write.

    `if (label == ignored) continue;`, `if (valid[i]) { ... }`: the ids that lead out may be the ones left out.
    """
    one = rf"(?:\b{re.escape(array)}\s*\[[^;\]]*\]|\b{re.escape(column)}\b)"
    below = rf"^\s*{one}\s*(?:<\s*0|==\s*-\s*\d+|>=\s*0|!=\s*-\s*\d+|>\s*-\s*1)\s*$"
    for match in re.finditer(r"\b(?:if|\w*(?:assert|ASSERT|CHECK)\w*)\s*\(", text[:place]):
        close = closing(text, match.end() - 1)
        head = text[match.end() : close] if close is not None else ""
        if close is None or re.fullmatch(below, head):
            continue
        start = close + 1 + len(text[close + 1 :]) - len(text[close + 1 :].lstrip())
        end = closing(text, start) if text[start : start + 1] == "{" else text.find(";", start)
        inside = end is None or start <= place <= end
        leaves = re.search(r"\b(?:continue|return|break|goto|throw)\b", text[start:end]) or match[0][:2] != "if"
        if inside or (leaves and re.search(rf"{one}|\w\s*\[|\b{re.escape(array)}\b", head)):
            return True
    return False


def _is_checked(text: str, array: str, column: str, count: str) -> bool:
    """Whether the column, or the element, is compared with the length of a row, cut to it, or below 0 as an exit."""
    text = re.sub(r"\bfor\s*\([^{};]*;[^{};]*;[^{}]*?\)\s*(?=[\w{])", " ", text)
    number, one = re.escape(count), rf"(?:\b{re.escape(array)}\s*\[[^;\]]*\]|\b{re.escape(column)})\s*\)*"
    return (
        re.search(rf"{one}\s*(?:<|<=|>|>=|==|!=|%)\s*\(*\s*{number}\b|\b{number}\s*(?:<|>)=?\s*\(*\s*{one}", text)
        is not None
        or re.search(rf"\b(?:min|max|clamp)\w*\s*(?:<[^<>]*>)?\s*\([^;]*{one}[^;]*\b{number}\b", text) is not None
    )
