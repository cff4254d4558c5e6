"""Allocations of C and C++ source whose count was lost or is too small for what the same function does with them.

`new float(n)` in place of `new float[n]`, `malloc(n)` of wider elements, `malloc(sizeof(pointer))`, a loop that goes up
to and including the count, or beyond it. Read as text: only where allocation and use have the count in the same words.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.own_code.c_text import closing, function_around, split, without_texts
from pytracer.analyze.evidence.own_code.fixed_rooms import FixedRoom, fixed_room
from pytracer.analyze.evidence.own_code.native_bounds import LOOP, assigned_value

_NUMBER = (
    r"(?:std::)?(?:unsigned\s+(?:char|short|int|long(?:\s+long)?)|long\s+long|float|double|half|bool|char|short|int|long"
    r"|unsigned|size_t|u?int(?:8|16|32|64)_t)"
)
_ONE = Pattern(
    rf"(?P<name>\w+)\s*(?:=\s*|\(\s*)(?:new\s*(?:\(\s*std::nothrow\s*\)\s*)?(?P<type>{_NUMBER})\s*(?:\((?P<count>[^;]*)\))?"
    rf"|std::make_(?:unique|shared)<\s*(?P<made>{_NUMBER})\s*>\s*\((?P<given>[^;]*)\))\s*\)?\s*;"
)
BY_BYTES = Pattern(
    r"(?:\b(?P<type>[A-Za-z_][\w:]*)\s*\*\s*(?:const\s+|(?:__)?restrict(?:__)?\s+)?)?\b(?P<name>\w+)\s*=\s*"
    r"(?:\(\s*(?:const\s+)?(?P<cast>[\w: ]+?)\s*\*\s*\)\s*"
    r"|(?:static|reinterpret)_cast<\s*(?P<cpp>[\w: ]+?)\s*\*\s*>\s*\(\s*)?"
    r"(?:std::)?(?P<by>malloc|calloc|realloc|alloca|aligned_alloc)\s*(?=\()"
)
NEW_ARRAY = Pattern(r"(?P<name>\w+)\s*(?:=|\()\s*new\s+(?P<type>[\w:]+(?:\s+\w+)?)\s*\[(?P<count>[^\]]+)\]")
_VECTOR = Pattern(r"\bvector\s*<[^;<>]*>\s+(?P<name>\w+)\s*\((?P<count>[^;{}]*)\)\s*;")
_RESERVED = Pattern(r"\b(?P<name>\w+)\s*\.\s*reserve\s*\((?P<count>[^;]*)\)\s*;")
_GROWS = "push_back|emplace_back|resize|assign|insert|swap|emplace"
_ONE_BYTE = frozenset({"char", "unsigned char", "signed char", "int8_t", "uint8_t", "bool", "void", "byte"})
_COPIES = r"(?:memcpy|memset|memmove|copy|copy_n|fill|fill_n|iota|sort)\s*\(\s*"
_LITERAL = Pattern(r"^[01][uUlL]*$")
_ONLY_ONE = "1"


class ShortAllocation(msgspec.Struct, frozen=True):
    """`text` at line `line` of the source, in `function`, makes `makes`; line `use` does `used` with it.

    `instead`: what to write. Lines count from 1. `room`: that is too short only for a larger argument of a call.
    """

    function: str
    line: int
    text: str
    makes: str
    use: int
    used: str
    instead: str
    room: FixedRoom | None = None


class _Loop(msgspec.Struct, frozen=True):
    name: str
    includes: bool
    bound: str
    start: int
    end: int


class _Body(msgspec.Struct, frozen=True):
    """The text behind an allocation, up to the end of its function; `at`: where in the source it begins."""

    text: str
    at: int
    function: str
    before: str


def short_allocations(source: str) -> Iterator[ShortAllocation]:
    """Of a source, each once."""
    plain = without_texts(source)
    for pattern, find in ((_ONE, _one), (BY_BYTES, _of_bytes), (NEW_ARRAY, _of_array), (_RESERVED, _reserved)):
        for match in pattern.finditer(plain):
            body = _behind(plain, match)
            found = find(plain, match, body) if body is not None else None
            if found is None or body is None:
                continue
            makes, use, used, instead = found
            line, lines = plain.count("\n", 0, match.start("name")), source.splitlines()
            yield ShortAllocation(
                body.function,
                line + 1,
                lines[line].strip(),
                makes,
                plain.count("\n", 0, body.at + use) + 1,
                used,
                instead,
            )


def short_rooms(source: str) -> Iterator[ShortAllocation]:
    """Allocations with room for a fixed number per item, which are used for as many as an argument of a call has."""
    plain = without_texts(source)
    lines = source.splitlines()
    for name, count, at in _made(plain):
        function = function_around(plain, at)
        end = closing(plain, function.body) if function is not None else None
        begin = plain.find(";", at) + 1
        room = fixed_room(plain, function, name, count, begin, end) if function is not None and end else None
        if room is None or function is None:
            continue
        line, whole = plain.count("\n", 0, at), f"{room.count} * {room.argument}"
        makes = f"makes room for `{room.count} * {room.room}` elements" + (
            f" (`{room.room}` is {room.most})" if room.room != str(room.most) else ""
        )
        use = plain.count("\n", 0, room.at) + 1
        instead = f"`{whole}` as its count, or refuse more than {room.most}"
        used = f"uses `{whole}` elements"
        yield ShortAllocation(function.name, line + 1, lines[line].strip(), makes, use, used, instead, room)


def _made(plain: str) -> Iterator[tuple[str, str, int]]:
    """Buffers, by how many elements they have, and where."""
    for match in BY_BYTES.finditer(plain):
        end = closing(plain, match.end())
        if end is not None:
            yield match["name"], "*".join(split(plain[match.end() + 1 : end])), match.start("name")
    for match in (*NEW_ARRAY.finditer(plain), *_VECTOR.finditer(plain)):
        yield match["name"], (split(match["count"]) or ("",))[0], match.start("name")


_Found = tuple[str, int, str, str]


def _one(_: str, match: re.Match[str], body: _Body) -> _Found | None:
    """`new float(n)` that is used as an array."""
    kind, count = match["type"] or match["made"], _plain(match["count"] or match["given"] or "")
    use = _used_as_array(body, match["name"])
    if use is None:
        return None
    value = f", of the value `{count}`" if count else ""
    n = count if count and not _LITERAL.match(count) else "n"
    if match["made"] is not None:
        instead = f"`std::vector<{kind}>({n})`"
    else:
        instead = f"`new {kind}[{n}]`, freed by `delete[] {match['name']}`, or a std::vector<{kind}>"
    return f"makes one {kind}{value}", use, "uses it as an array", instead


def _of_bytes(plain: str, match: re.Match[str], body: _Body) -> _Found | None:
    """malloc() and the like: the number of bytes, or of elements."""
    kind, name = (match["cast"] or match["cpp"] or match["type"] or "").replace("std::", "").strip(), match["name"]
    end = closing(plain, match.end())
    given = split(plain[match.end() + 1 : end]) if end is not None else ()
    by = match["by"]
    if not kind or len(given) != (1 if by in ("malloc", "alloca") else 2):
        return None
    nbytes = given[-1]
    if by == "calloc":
        one = [item for item in given if item != _ONLY_ONE]
        nbytes = one[0] if len(one) == 1 else " * ".join(given)
    known = assigned_value([body.before], nbytes) if re.fullmatch(r"\w+", nbytes) else None
    nbytes = _plain(nbytes)
    whole = _plain(known or nbytes)
    if re.fullmatch(rf"sizeof\s*\(?\s*(?:{re.escape(name)}|{re.escape(kind)}\s*\*)\s*\)?", whole):
        return _of_loop(body, name, "makes room for a pointer, 8 bytes", f"`{by}({{}} * sizeof(*{name}))`")
    if re.fullmatch(rf"sizeof\s*\(?\s*(?:\*\s*{re.escape(name)}|{re.escape(kind)})\s*\)?", whole):
        return _of_loop(body, name, f"makes room for one {kind}", f"`{by}({{}} * sizeof(*{name}))`")
    if "sizeof" not in whole:
        if kind in _ONE_BYTE:
            return _at_count(body, name, nbytes)
        if re.search(r"\*\s*(?:[248]|16)\b|\b(?:[248]|16)\s*\*|<<", whole):
            return None
        for loop in _loops(body):
            use = _indexed(body, loop, name)
            if use is not None and _plain(loop.bound) in (nbytes, whole):
                makes = f"makes room for `{nbytes}` bytes, not for `{nbytes}` elements of {kind}"
                return makes, use, f"goes through `{_plain(loop.bound)}` elements", f"`{by}({nbytes} * sizeof({kind}))`"
        return None
    parts = [_plain(item) for item in whole.split("*")] if whole.count("*") == 1 else []
    counts = [item for item in parts if "sizeof" not in item]
    return _beyond(body, name, counts[0]) if len(counts) == 1 else None


def _at_count(body: _Body, name: str, count: str) -> _Found | None:
    """`out[n] = 0` of `malloc(n)`: the end of a text, of which only the letters were counted."""
    written = re.search(rf"(?<![\w.>]){re.escape(name)}\s*\[\s*{re.escape(count)}\s*\]\s*=(?!=)", body.text)
    either = rf"(?:{re.escape(count)}|{re.escape(name)})(?![\w.>])"
    changed = re.search(
        rf"(?<![\w.>]){either}\s*(?:[-+*/]?=(?!=)|\+\+|--)|(?:\+\+|--)\s*{either}|(?<!&)&\s*{either}(?!\s*\[)",
        body.text,
    )
    if written is None or changed is not None or not re.fullmatch(r"[\w.>-]+", count):
        return None
    if re.search(rf"\bif\s*\([^;{{}}]*(?<![\w.>]){re.escape(count)}(?![\w.>])", body.text[: written.start()]):
        return None  # only where there is room, perhaps
    return (
        f"makes room for `{count}` bytes",
        written.start(),
        f"writes `{name}[{count}]`, too",
        f"`malloc({count} + 1)`",
    )


def _of_array(_: str, match: re.Match[str], body: _Body) -> _Found | None:
    return _beyond(body, match["name"], _plain(match["count"]))


def _reserved(plain: str, match: re.Match[str], body: _Body) -> _Found | None:
    """A std::vector that has no element, whose elements are set: beyond what was reserved."""
    name = re.escape(match["name"])
    if not re.search(rf"vector\s*<[^;]*>\s*{name}\s*;", body.before):
        return None
    if re.search(rf"\b{name}\s*\.\s*(?:{_GROWS})\b|\b{name}\s*=[^=]", body.before + body.text):
        return None
    found = _beyond(body, match["name"], _plain(match["count"]))
    if found is None:
        return None
    makes, use, used, _ = found
    return makes, use, used, f"`{match['name']}.resize(...)` with the count of that loop"


def _of_loop(body: _Body, name: str, makes: str, instead: str) -> _Found | None:
    """Where a loop goes through more than one element."""
    for loop in _loops(body):
        use = _indexed(body, loop, name)
        if use is not None and (loop.includes or loop.bound.strip() != _ONLY_ONE):
            bound = _plain(loop.bound)
            return makes, use, f"goes through `{bound}` elements", instead.format(bound)
    return None


def _beyond(body: _Body, name: str, count: str) -> _Found | None:
    """Where a loop over an array of `count` elements goes beyond its last one, in the same words."""
    for loop in _loops(body):
        bound, use = _plain(loop.bound), _indexed(body, loop, name)
        if use is None:
            continue
        makes = f"makes room for `{count}` elements"
        if loop.includes and bound == count:
            return (
                makes,
                use,
                f"uses index `{bound}`, too",
                f"`{loop.name} < {bound}` in that loop, or make room for one more",
            )
        if re.fullmatch(rf"\(?{re.escape(bound)}\)?\s*[-/]\s*\d+", count) and not count.endswith(("/ 1", "- 0")):
            return makes, use, f"goes through `{bound}` elements", f"`{bound}` as its count"
    return None


def _behind(plain: str, match: re.Match[str]) -> _Body | None:
    function = function_around(plain, match.start("name"))
    end = closing(plain, function.body) if function is not None else None
    if function is None or end is None:
        return None
    at = plain.find(";", match.start("name")) + 1
    text = plain[at:end]
    again = re.search(rf"(?<![\w.>]){re.escape(match['name'])}\s*=[^=]", text)  # another memory from there on
    text = text[: again.start()] if again is not None else text
    return _Body(text, at, function.name, plain[function.body : at])


def _loops(body: _Body) -> Iterator[_Loop]:
    for match in LOOP.finditer(body.text):
        head = closing(body.text, body.text.index("(", match.start()))
        if head is None or match["how"] == "!=":
            continue
        yield _Loop(match["name"], match["how"] == "<=", match["bound"], head + 1, statement_end(body.text, head + 1))


def statement_end(text: str, start: int) -> int:
    """Where the statement that begins at a place ends: its block, or its semicolon, that of an inner loop too."""
    at = start
    while at < len(text):
        if text[at] == "(":
            at = closing(text, at) or len(text)
        elif text[at] == "{":
            return closing(text, at) or len(text)
        elif text[at] == ";":
            return at
        at += 1
    return at


def _indexed(body: _Body, loop: _Loop, name: str) -> int | None:
    """Where the loop uses `name[i]`, in the text behind the allocation."""
    match = re.compile(rf"(?<![\w.>]){re.escape(name)}\s*\[\s*{re.escape(loop.name)}\s*\]").search(
        body.text, loop.start, loop.end
    )
    return match.start() if match is not None else None


def _used_as_array(body: _Body, name: str) -> int | None:
    """An index other than 0, an address behind the first element, or a copy of several there."""
    own = rf"(?<![\w.>]){re.escape(name)}(?:\s*\.\s*get\s*\(\s*\))?"
    patterns = (rf"{own}\s*\[(?!\s*0\s*\])", rf"(?:{_COPIES}){own}\b", rf"[=(,]\s*{own}\s*\+\s*\w")
    places = [match.start() for text in patterns if (match := re.search(text, body.text)) is not None]
    return min(places, default=None)


def _plain(text: str) -> str:
    return " ".join(text.split())
