"""Why the program's own native code must not free what it freed: who allocated it, by its source.

Of a deleter (a capsule's, from_blob()'s) the pointer is the first argument beside it, which is followed back to what
made it. Of a destructor it is a member: two objects have it where the class is copied, or where pybind11 takes it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.own_code.c_text import (
    call_around,
    calls_of,
    closing,
    defined,
    function_around,
    split,
    without_comments,
)
from pytracer.analyze.evidence.own_code.freed_reasons import (
    CopiedOwner,
    FreedPointer,
    LiteralFreed,
    OtherAllocator,
    OwnedByObject,
    TakenMember,
)
from pytracer.analyze.evidence.own_code.freeing_line import FreeingLine, bare, freeing_line
from pytracer.analyze.evidence.own_code.moved_result import moved_result
from pytracer.analyze.view import ProcessView

_CALL = Pattern(r"^(?P<name>(?:\w+::)*\w+)\s*\(")
_DATA = Pattern(r"^&?(?P<name>\w+)(?:\.(?P<how>data|data_ptr|mutable_data_ptr|begin)\s*(?:<[^>]*>)?\s*\(\)|\[0\])$")
_CONTAINER = r"(?P<type>std::(?:vector|array|string|deque)\b[^;(){{}}]*?|(?:at|torch)::Tensor|auto)[\s&]+{}\b"
_ALLOCATES, _RELEASES = (
    r"alloc(?:ate)?|create|new|make|open|acquire",
    r"free|dealloc(?:ate)?|release|destroy|delete|close",
)
_DELETERS = ("from_blob", "capsule", "for_blob", "PyCapsule_New")
_RETURNED = Pattern(r"\breturn\s+(?P<value>[^;]+);")
_MOVED = Pattern(r"[\w)\]]\s*[+-]\s*[\w(]")
_MAPPED = Pattern(r"\bmmap\s*\(")
_RETURNS_ONE = r"(?m)^\s*(?P<method>{owner}\s+\w+\s*\([^;{}]*\)(?:\s*const)?)\s*\{\s*return\s+\w+\s*;"
_HOPS = 5


def freed_pointer(view: ProcessView) -> FreedPointer | None:
    """None where the line that frees is not known, or its source shows no second owner and no other allocator."""
    line = freeing_line(view)
    if line is None:
        return None
    around = function_around(line.text, line.start)
    if around is not None and around.name.startswith("~"):
        return _of_member(line, around.name[1:])
    given = next(_given_away(line), None)
    if given is not None:
        return _of_value(line, *given)
    return _of_literal(line) or moved_result(view, line)


def _of_literal(line: FreeingLine) -> LiteralFreed | None:
    """Of a field that one line sets to a text of the program itself, and others to what they allocate."""
    around, field = function_around(line.text, line.start), re.split(r"->|\.", line.name)[-1]
    if field == line.name or around is None:
        return None
    text = without_comments(line.text)
    found = [*re.finditer(rf"(?P<name>\w+(?:->|\.){re.escape(field)})\s*=\s*(?P<value>\"[^\"\n]*\")\s*;", text)]
    return LiteralFreed(line, found[0]["name"], found[0]["value"], line.place_at(found[0].start())) if found else None


# ---- of a deleter


def _given_away(line: FreeingLine) -> Iterator[tuple[str, int]]:
    """What is passed with the deleter, and where: `state` of `py::capsule(state, [](void *p) { ... })`."""
    text = line.text
    lambdas = [*re.finditer(rf"\[[^\]]*\]\s*\([^()]*\b{re.escape(line.name)}\s*\)", text[: line.start])]
    if lambdas and function_name_between(text, lambdas[-1].end(), line.start) is None:
        call = call_around(text, lambdas[-1].start())
        if call is not None and call[0] in _DELETERS:
            yield split(text[call[1] + 1 : lambdas[-1].start()])[0], call[1]
        return
    around = function_around(text, line.start)
    if around is None or around.place_of(line.name) != 0 or len(around.parameters) != 1:
        return
    for match in re.finditer(rf"[,(]\s*&?{re.escape(around.name)}\s*[,)]", text):
        call = call_around(text, match.start() + (match[0][0] == "("))
        if call is not None and call[0] in _DELETERS:
            yield split(text[call[1] + 1 : match.start()])[0], call[1]


def function_name_between(text: str, start: int, end: int) -> str | None:
    """Of a function that begins between two places: then a lambda before has nothing to do with what is behind."""
    around = function_around(text, end)
    return around.name if around is not None and around.body > start else None


def _of_value(line: FreeingLine, value: str, at: int) -> FreedPointer | None:
    """Followed back over variables, and over a parameter of a function with one caller."""
    text, name = line.text, None
    for _ in range(_HOPS):
        value = bare(value)
        data = _DATA.match(value)
        if data is not None:
            return _of_object(line, data["name"], value, at)
        if not re.fullmatch(r"\w+", value):
            return _of_maker(line, name or value, value, at)
        name = name or value
        around = function_around(text, at)
        if around is None:
            return None
        bound = [*re.finditer(rf"\b{re.escape(value)}\s*=\s*(?P<value>[^=;][^;]*);", text[around.body : at])]
        place = around.place_of(value)
        if bound:
            at, value = around.body + bound[-1].start(), bound[-1]["value"]
        elif place is not None:
            calls = [item for item in calls_of(text, around.name) if len(item[1]) == len(around.parameters)]
            if len(calls) != 1:
                return None
            at, value = calls[0][0], calls[0][1][place]
        else:
            return None
    return None


def _of_object(line: FreeingLine, name: str, given: str, at: int) -> FreedPointer | None:
    around = function_around(line.text, at)
    before = line.text[around.body : at] if around is not None else ""
    container = re.compile(_CONTAINER.format(re.escape(name)))
    own = container.search(before) or container.search(line.text)
    if own is None or own["type"] == "auto":
        return None
    declared = f"`{' '.join(own['type'].split())} {name}`"
    return OwnedByObject(line, name, declared, given, line.place_at(at))


def _of_maker(line: FreeingLine, name: str, value: str, at: int) -> FreedPointer | None:
    """A call of an allocator of the program's own, to which another way belongs."""
    call = _CALL.match(value)
    right = release_of(line.text, call["name"]) if call is not None else None
    if call is None or right is None or not hands_out_inside(line.text, call["name"]):
        return None
    return OtherAllocator(line, name, call["name"], line.place_at(at), right)


def hands_out_inside(text: str, maker: str) -> bool:
    """Whether a function returns an address that is not the first of a block of malloc(), or of what it calls."""
    found = defined(text, maker.rpartition("::")[2])
    end = closing(text, found[0].body) if len(found) == 1 else None
    if end is None:
        return False
    body = text[found[0].body : end]
    values = [bare(match["value"]) for match in _RETURNED.finditer(body)]
    if len(values) != 1:
        return False
    if _MAPPED.search(body) or _MOVED.search(values[0]):
        return True
    if not re.fullmatch(r"\w+", values[0]):
        return False
    if re.search(rf"\b{values[0]}\s*[+-]=", body):
        return True
    bound = [bare(match["value"]) for match in re.finditer(rf"\b{values[0]}\s*=\s*(?P<value>[^=;][^;]*);", body)]
    call = _CALL.match(bound[0]) if len(bound) == 1 else None
    return call is not None and call["name"] != maker and hands_out_inside(text, call["name"])


def release_of(text: str, allocator: str) -> str | None:
    """`detail::free` of `detail::allocate`, `spectrum_free` of `spectrum_alloc` and `spectrum`: where it is defined."""
    qualifier, _, plain = allocator.rpartition("::")
    stem = _stem(plain, _ALLOCATES)
    names = {match[1] for match in re.finditer(rf"\b(\w*(?:{_RELEASES})\w*)\s*\(", text, re.IGNORECASE)}
    alike = [name for name in sorted(names) if name != plain and _stem(name, _RELEASES) == stem]
    found = [name for name in alike if _takes_pointer(text, name)]
    if len(found) != 1:
        return None
    return f"{qualifier}::{found[0]}" if qualifier else found[0]


def _stem(name: str, words: str) -> str:
    return re.sub(rf"(?:{words})", "", name, count=1, flags=re.IGNORECASE).replace("_", "").lower()


def _takes_pointer(text: str, name: str) -> bool:
    return any(len(item.parameters) == 1 and "*" in item.parameters[0] for item in defined(text, name))


# ---- of a destructor


def _of_member(line: FreeingLine, owner: str) -> FreedPointer | None:
    text, member = line.text, line.name
    for method in re.finditer(rf"\b(?P<name>\w+)\s*\(\)\s*(?:const\s*)?\{{\s*return\s+{re.escape(member)}\s*;", text):
        taken = re.search(rf"&{re.escape(owner)}::{method['name']}\b[^;]*?\btake_ownership\b", text)
        if taken is not None:
            return TakenMember(line, f"{owner}::{method['name']}", owner, line.place_at(taken.end()))
    if re.search(rf"(?<![~\w]){re.escape(owner)}\s*\(\s*(?:const\s+)?{re.escape(owner)}\s*&", text):
        return None  # has a copy constructor, or none on purpose
    copies = [*re.finditer(_RETURNS_ONE.replace("{owner}", re.escape(owner)), text)]
    if len(copies) != 1:
        return None
    text, at = " ".join(copies[0]["method"].split()), copies[0].start("method")
    return CopiedOwner(line, owner, text, line.place_at(at))
