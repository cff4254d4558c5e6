"""C and C++ as text: arguments, the call around a place, the function around it, definitions by name."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec

from pytracer._patterns import Pattern

_HEAD = Pattern(
    r"(?P<name>~?\w+)\s*\((?P<parameters>(?:[^()]|\([^()]*\))*)\)\s*(?:const|noexcept|override|final|\s)*"
    r"(?::[^;{}]*)?(?:->[\w:<>*&\s]+)?$"
)
_COMMENT = Pattern(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_NO_CODE = Pattern(rf"{_COMMENT.pattern}|\"(?:\\.|[^\"\\\n])*\"", re.DOTALL)
NO_FUNCTIONS = frozenset({"if", "for", "while", "switch", "catch", "return", "sizeof"})
_MOST_BEFORE = 400
_MOST_LINES = 12  # of a call
_OPEN, _CLOSE = {"(": 1, "{": 1, "[": 1}, {")": 1, "}": 1, "]": 1}


class Function(msgspec.Struct, frozen=True):
    """`body`: where its braces open."""

    name: str
    parameters: tuple[str, ...]
    body: int

    def place_of(self, name: str) -> int | None:
        """Of a parameter of that name."""
        return next((n for n, item in enumerate(self.parameters) if re.search(rf"\b{re.escape(name)}$", item)), None)


def blanked(hidden: Pattern, text: str) -> str:
    """The text with spaces where the pattern matches: each other letter, and each line, stays at its place."""
    return hidden.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)


def without_comments(text: str) -> str:
    """The text with spaces in place of its comments."""
    return blanked(_COMMENT, text)


def without_texts(text: str) -> str:
    """The text with spaces in place of its comments and of what is quoted."""
    return blanked(_NO_CODE, text)


def without_parentheses(text: str) -> str:
    """Without those around all of it."""
    text = text.strip()
    while text.startswith("(") and closing(text, 0) == len(text) - 1:
        text = text[1:-1].strip()
    return text


def split(text: str) -> tuple[str, ...]:
    """The parts between commas that no bracket encloses."""
    parts, depth, before = [""], 0, ""
    for letter in text:
        depth += letter in "([{<"
        depth -= letter in ")]}>" and before + letter != "->"
        before = letter
        if letter == "," and depth <= 0:
            parts.append("")
        else:
            parts[-1] += letter
    return tuple(item.strip() for item in parts if item.strip())


def declared_name(text: str) -> str:
    """`x` of the parameter `const float *x = nullptr`; "" where it has none."""
    words: list[str] = re.findall(r"\w+", text.partition("=")[0])
    return words[-1] if words else ""


def closing(text: str, start: int) -> int | None:
    """Where the bracket that opens at `start` closes."""
    depth = 0
    for at in range(start, len(text)):
        depth += _OPEN.get(text[at], 0) - _CLOSE.get(text[at], 0)
        if depth == 0:
            return at
    return None


def call_around(text: str, place: int) -> tuple[str, int] | None:
    """The function that is called by the innermost open parenthesis before a place, and where that opens."""
    depth = 0
    for at in range(place - 1, max(place - _MOST_BEFORE, -1), -1):
        depth += _CLOSE.get(text[at], 0) - _OPEN.get(text[at], 0)
        if depth < 0:
            name = re.search(r"(\w+)(?:\s+\w+)?\s*$", text[max(at - _MOST_BEFORE, 0) : at]) if text[at] == "(" else None
            return (name[1], at) if name is not None else None
    return None


def statement_at(lines: Sequence[str], number: int) -> int:
    """The place in the file at which a line's own code begins: behind the brace of a function that begins in it."""
    text = lines[number - 1] if 0 < number <= len(lines) else ""
    return sum(len(item) + 1 for item in lines[: number - 1]) + text.find("{") + 1


def statement_span(lines: Sequence[str], number: int) -> tuple[int, int]:
    """The same place, and where the line ends."""
    return statement_at(lines, number), sum(len(item) + 1 for item in lines[:number])


def arguments_at(lines: Sequence[str], number: int, name: str) -> tuple[str, ...] | None:
    """Those of the only call of a function that a line is part of; None of several."""
    text = without_comments("\n".join(lines))
    starts = [0]
    for item in lines:
        starts.append(starts[-1] + len(item) + 1)
    if not 0 < number < len(starts):
        return None
    low, high = starts[max(number - 1 - _MOST_LINES, 0)], starts[number]
    found = []
    for match in re.finditer(rf"\b(?:std::)?{re.escape(name)}\s*\(", text[low:high]):
        end = closing(text, low + match.end() - 1)
        if end is not None and end >= starts[number - 1]:
            found.append(split(text[low + match.end() : end]))
    return found[0] if len(found) == 1 else None


def function_around(text: str, place: int) -> Function | None:
    """The innermost function with a name whose body has a place; not a lambda."""
    depth = 0
    for at in range(place - 1, -1, -1):
        if text[at] == "}":
            depth += 1
        elif text[at] == "{" and depth:
            depth -= 1
        elif text[at] == "{":
            head = _HEAD.search(text[max(at - _MOST_BEFORE, 0) : at])
            if head is not None and head["name"] not in NO_FUNCTIONS:
                return Function(head["name"], split(head["parameters"]), at)
    return None


def defined(text: str, name: str) -> list[Function]:
    """The functions of that name that have a body."""
    named = (_named(text, match) for match in _mentions(text, name))
    return [function for _, function in named if function is not None]


def calls_of(text: str, name: str) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Where a function is called, and with what."""
    for match in _mentions(text, name):
        given, function = _named(text, match)
        if given is not None and function is None:
            yield match.start(), given


def _mentions(text: str, name: str) -> Iterator[re.Match[str]]:
    return re.finditer(rf"(?<![\w~]){re.escape(name)}\s*\(", text)


def _named(text: str, match: re.Match[str]) -> tuple[tuple[str, ...] | None, Function | None]:
    """What is in the parentheses behind a name; with the function, where its body follows."""
    end = closing(text, match.end() - 1)
    if end is None:
        return None, None
    given, body = split(text[match.end() : end]), text.find("{", end)
    head = _HEAD.search(text[match.start() : body]) if body >= 0 else None
    whole = head is not None and head.start() == 0 and ";" not in text[end:body]
    return given, Function(match[0].rstrip("( \n"), given, body) if whole else None
