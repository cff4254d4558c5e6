"""Indices that the failing line of the program's own C or C++ read from memory: `col[start]`, `start = rowptr[idx[i]]`.

Read as text, without a compiler: over assignments, the heads of loops, and what one function of the file passes to
another. What is reached by members or pointer arithmetic is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import msgspec

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.own_code.c_text import (
    calls_of,
    closing,
    declared_name,
    defined,
    function_around,
    statement_at,
    without_comments,
)
from pytracer.analyze.evidence.own_code.native_bounds import LOOP, NAME, assigned_value, running_frame
from pytracer.analyze.evidence.own_code.native_source import own_source
from pytracer.analyze.naming import short_file
from pytracer.analyze.view import ProcessView

_LEVELS, _HOPS, _MOST_LINES = 8, 4, 3
_ARRAY = Pattern(r"(?<![\w.>\]])(?P<name>[A-Za-z_]\w*)\s*(?=\[)")
_TEMPLATE = Pattern(r"(?<=\w)<[\w:, ]*>(?=\s*\()")  # `kernel<float>(x)`
_PLUS = Pattern(r"\+\s*(\d+)\s*$")
_SETS = Pattern(r"\s*(?:(?P<only>=(?!=))|(?:[-+*/|&^%]|<<|>>)=|\+\+|--)")
_TIMES = Pattern(r"\*\s*(?:\(|\w+\s*\[)")  # something that was computed or read
_CALL = Pattern(r"(?P<name>\w+)\s*\(")
_MOVED = Pattern(r"[-+*/%&|^?\[](?!>)")
_GOES_THROUGH = Pattern(r"->|\w\s*\(|(?:^|[=(,;+\-/%&|!<>?:{])\s*\*+\s*[A-Za-z_(]")  # a pointer, or a call
_ENDS = (";", "{", "}", ")", ":", ">")


class Scope(msgspec.Struct, frozen=True):
    """A function of a file, up to a place. `given`: what `outer` passes for its parameters."""

    name: str
    parameters: tuple[str, ...]
    texts: tuple[str, ...]
    file: str
    given: tuple[str, ...] = ()
    outer: Scope | None = None


@dataclass(frozen=True)
class Lookup:
    """`text`: `rowptr[idx[i]]`, an element of `array`, by an index that the elements `by` lead to.

    `variable`: that the element was kept in; `of_loop`: that counts from it, or up to it. `offset`: what is added to
    such an index at most, where that is written. `scaled`: whether the index is of a row, and not of an element.
    `moved`: whether it is a sum with other variables. `reads`, `writes`: what the line does with the element.
    """

    array: str
    text: str
    variable: str | None
    scope: Scope = field(repr=False)
    by: tuple[Lookup, ...] = ()
    offset: int = 0
    scaled: bool = False
    reads: bool = True
    writes: bool = False
    of_loop: bool = False
    moved: bool = False

    @property
    def value(self) -> str:
        """`` `start` ``, as the source calls the element."""
        return f"the range of `{self.variable}`" if self.of_loop else f"`{self.variable or self.text}`"


# Of a member (`g->col[e]`), of what a function returned, of a row (`x[i][j]`): what it goes through is not told.
_UNSEEN = Pattern(r"(?:\.|->)\s*\w+\s*\[|\)\s*(?:\[|\.\s*\w|->)|\]\s*(?:\[|->)")


def has_unseen(statement: str) -> bool:
    """Whether a statement also takes elements that are reached by members, calls or rows."""
    return _UNSEEN.search(statement) is not None


class Lookups(msgspec.Struct, frozen=True):
    """All elements that the line at `place` (`ops.c:10`) takes, the first one first. `statement`: its text."""

    place: str
    found: tuple[Lookup, ...]
    statement: str


def lookups(view: ProcessView) -> Lookups | None:
    """Of the innermost function of the program's own; None where its source is not known."""
    frame = running_frame(view)
    source = own_source(frame) if frame is not None else None
    if source is None or source[0].line is None:
        return None
    number, lines = source[0].line, source[1]
    text = _TEMPLATE.sub("", without_comments("\n".join(lines)))
    plain = text.split("\n")
    around = function_around(text, statement_at(plain, number))
    if around is None:
        return None
    first, last = _statement(plain, number)
    end = sum(len(item) + 1 for item in plain[:last])
    body = text[around.body + 1 : end]
    scope = _called(Scope(around.name, _names(around.parameters), (body,), text), _HOPS)
    statement = " ".join(plain[first:last])
    head = statement.rfind("{") if around.body >= sum(len(item) + 1 for item in plain[:first]) else -1
    found = tuple(_elements(statement[head + 1 :], scope)) or tuple(_moved_elements(statement[head + 1 :], scope))
    return Lookups(f"{short_file(source[0].file or '')}:{number}", found, statement) if found else None


def reads_index(view: ProcessView) -> bool:
    """Whether the failing line of the program's own native code has an index that was read from memory."""
    found = lookups(view)
    return found is not None and any(item.by for item in found.found)


def is_filled(lookup: Lookup) -> bool:
    """Whether the function itself writes elements of the array, before the place: `order[k++] = i`."""
    writes = rf"(?<![\w.>]){re.escape(lookup.array)}\s*\[[^;=]*\]\s*=(?!=)"
    return any(re.search(writes, text) for text in lookup.scope.texts)


def parameter_of(lookup: Lookup) -> tuple[str, tuple[str, ...], int] | None:
    """The function that the program called, its parameters, and which of them an array is."""
    return _parameter(lookup.array, lookup.scope, _HOPS)


def _parameter(name: str, scope: Scope, left: int) -> tuple[str, tuple[str, ...], int] | None:
    if left == 0:
        return None
    if name in scope.parameters:
        place = scope.parameters.index(name)
        if scope.outer is None:
            return scope.name, scope.parameters, place
        given = scope.given[place] if place < len(scope.given) else ""
        return _of_text(given, scope.outer, left)
    value = assigned_value(scope.texts, name)
    return _of_text(value, scope, left) if value is not None else None


def _of_text(value: str, scope: Scope, left: int) -> tuple[str, tuple[str, ...], int] | None:
    """Of the only parameter that an expression such as `(int *) x` or `x.data_ptr<int64_t>()` is of."""
    if _MOVED.search(re.sub(r"\*\s*(?=[>)])|->|<[^<>]*>", "", value)):
        return None
    found = {item for name in NAME.findall(value) if (item := _parameter(name, scope, left - 1)) is not None}
    return found.pop() if len(found) == 1 else None


def _called(scope: Scope, left: int) -> Scope:
    """With what the only call in the file passes, of a function that another one calls."""
    calls = [*calls_of(scope.file, scope.name)] if left else []
    around = function_around(scope.file, calls[0][0]) if len(calls) == 1 else None
    if around is None or around.name == scope.name:
        return scope
    before = scope.file[around.body + 1 : calls[0][0]]
    outer = _called(Scope(around.name, _names(around.parameters), (before,), scope.file), left - 1)
    return Scope(scope.name, scope.parameters, scope.texts, scope.file, calls[0][1], outer)


def _elements(text: str, scope: Scope, levels: int = _LEVELS) -> Iterator[Lookup]:
    """Each `x[...]` of an expression, and those within, in the order in which they are read."""
    for name, indices, start, end in _subscripts(text):
        for index in indices:
            yield from _elements(index, scope, levels - 1) if levels else ()
        sets = _SETS.match(text, end)
        yield _lookup(
            name,
            indices,
            text[start:end],
            None,
            scope,
            levels,
            reads=sets is None or sets["only"] is None,
            writes=sets is not None,
        )


def _moved_elements(statement: str, scope: Scope) -> Iterator[Lookup]:
    """Of variables in a line that takes none itself: an optimizing compiler moves a load to where its value is used."""
    if _GOES_THROUGH.search(statement) is not None:
        return
    for name in dict.fromkeys(NAME.findall(statement)):
        value = assigned_value(scope.texts, name)
        if value is not None:
            yield from _elements(value, scope)


def _lookup(
    name: str, indices: Sequence[str], text: str, kept: str | None, scope: Scope, levels: int, **how: bool
) -> Lookup:
    by = tuple(dict.fromkeys(_read(indices[0], scope, levels - 1, None))) if levels else ()
    offset = _offset(name, indices[0], scope) if len(indices) == 1 else 0
    scaled = len(indices) > 1 or "*" in re.sub(r"\([\w\s]*\*+\s*\)", "", indices[0])
    moved = not scaled and re.search(r"\+\s*[A-Za-z_(]", _without_subscripts(indices[0])) is not None
    return Lookup(name, " ".join(text.split()), kept, scope, by, offset, scaled, moved=moved, **how)


def _offset(name: str, index: str, scope: Scope) -> int:
    """What the function adds to such an index at most: 1 of `x[v]`, where `x[v + 1]` is beside it."""
    alike = [index]
    for other, indices, _, _ in _subscripts("\n".join(scope.texts)):
        if other == name and len(indices) == 1 and NAME.findall(indices[0]) == NAME.findall(index):
            alike.append(indices[0])
    return max(int(plus[1]) if (plus := _PLUS.search(item)) is not None else 0 for item in alike)


def _read(text: str, scope: Scope, levels: int, kept: str | None, *, of_loop: bool = False) -> Iterator[Lookup]:
    """What an index was read from: `x[...]` in it, or in what its variables were made of."""
    if levels <= 0:
        return
    rest, at = "", 0
    for name, indices, start, end in _subscripts(text):
        local = _local_elements(name, scope)
        for value in local or ():
            yield from _read(value, scope, levels - 1, kept, of_loop=of_loop)
        if local is None and not _is_size(text, indices, start, end):
            yield _lookup(name, indices, text[start:end], kept, scope, levels, of_loop=of_loop)
        rest, at = rest + text[at:start], end
    rest += text[at:]
    for name in dict.fromkeys(NAME.findall(rest)):
        for value, where, counts in _values(name, scope):
            yield from _read(value, where, levels - 1, name, of_loop=counts)
    for call in _CALL.finditer(rest):
        yield from _returned(rest, call, scope, levels - 1, kept)


def _local_elements(name: str, scope: Scope) -> list[str] | None:
    """What a function puts into an array of its own, `int c[3]`: it holds nothing of the caller's. None of others."""
    own = re.escape(name)
    declared = re.compile(rf"\b(?!return\b|else\b|case\b|delete\b|throw\b)\w+\s+{own}\s*\[[^\]]*\]\s*[;,={{]")
    if name in scope.parameters or not any(declared.search(item) for item in scope.texts):
        return None
    sets = re.compile(rf"(?<![\w.>]){own}\s*\[[^\]]*\]\s*=(?!=)([^;]*);")
    return [match[1] for text in scope.texts for match in sets.finditer(text)]


def _is_size(text: str, indices: Sequence[str], start: int, end: int) -> bool:
    """`grid[1]` of `c[2] * grid[1]`: one at a fixed place that something is multiplied by is a stride or a size."""
    before, after = text[:start].rstrip(), text[end:].lstrip()
    times = (before.endswith("*") and before[:-1].rstrip()[-1:] in (")", "]")) or _TIMES.match(after) is not None
    return times and all(item.strip().isdigit() for item in indices)


def _returned(text: str, call: re.Match[str], scope: Scope, levels: int, kept: str | None) -> Iterator[Lookup]:
    """What a function of the file returns, where it has one `return`."""
    functions = defined(scope.file, call["name"])
    given = next((given for _, given in calls_of(text[call.start() :], call["name"])), None)
    end = closing(scope.file, functions[0].body) if len(functions) == 1 else None
    if given is None or end is None:
        return
    body = scope.file[functions[0].body + 1 : end]
    values = re.findall(r"\breturn\b([^;]*);", body)
    if len(values) == 1:
        inner = Scope(call["name"], _names(functions[0].parameters), (body,), scope.file, given, scope)
        yield from _read(values[0], inner, levels, kept)


def _values(name: str, scope: Scope) -> Iterator[tuple[str, Scope, bool]]:
    """What a variable was made of; of a loop's, from where and up to where it counts, and True."""
    loops = [match for text in scope.texts for match in LOOP.finditer(text) if match["name"] == name]
    if loops:
        yield loops[-1]["start"], scope, True
        yield loops[-1]["bound"], scope, True
    elif name in scope.parameters:
        place = scope.parameters.index(name)
        if scope.outer is not None and place < len(scope.given):
            yield scope.given[place], scope.outer, False
    else:
        value = assigned_value(scope.texts, name)
        if value is not None and name not in NAME.findall(value):
            yield value, scope, False


def _subscripts(text: str) -> Iterator[tuple[str, list[str], int, int]]:
    """`x`, its indices, and where it begins and ends: those that are in no other one."""
    at = 0
    while (match := _ARRAY.search(text, at)) is not None:
        indices, end = [], match.end()
        while text[end : end + 1] == "[" and (close := closing(text, end)) is not None:
            indices.append(text[end + 1 : close])
            end = close + 1
        if indices:
            yield match["name"], indices, match.start(), end
        at = max(end, match.end() + 1)


def _without_subscripts(text: str) -> str:
    """Without what is in the brackets of others."""
    rest, at = "", 0
    for name, _, start, end in _subscripts(text):
        rest, at = f"{rest}{text[at:start]}{name}", end
    return rest + text[at:]


def _statement(lines: Sequence[str], number: int) -> tuple[int, int]:
    """The lines of the statement that goes on at a line: from where, up to where."""
    first, last = number - 1, number
    while first > 0 and number - first <= _MOST_LINES and (text := lines[first - 1].strip()) and text[-1] not in _ENDS:
        first -= 1
    while last < len(lines) and last - number < _MOST_LINES and not re.search(r"[;{}]", lines[last - 1]):
        last += 1
    return first, last


def _names(parameters: Sequence[str]) -> tuple[str, ...]:
    return tuple(map(declared_name, parameters))
