"""Memory that C or C++ source makes for a pointer: by which function, in which line, for how many elements.

Read as text, without a compiler: `x = malloc(n * sizeof(int))`, calloc(), realloc(), aligned_alloc(), `new int[n]`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.own_code.c_text import closing, function_around, split
from pytracer.analyze.evidence.own_code.short_allocations import BY_BYTES, NEW_ARRAY

_SIZEOF = r"sizeof\s*(?:\(\s*(?P<type>[^()]*)\)|\*\s*\w+)"
_PRODUCT = Pattern(rf"^(?:(?P<before>.+?)\s*\*\s*)?{_SIZEOF}(?:\s*\*\s*(?P<behind>.+))?$", re.DOTALL)
_CHARACTERS = frozenset({"char", "unsigned char", "signed char", "int8_t", "uint8_t", "void", "bool"})
_NULL = Pattern(r"\s*(?:NULL|nullptr|0|\(void\s*\*\)\s*0)\s*[;,)]")
_POINTED = Pattern(r"(?:^|[;{}()=])\s*\*+\s*$")  # `*x = 1`, which sets what x points at
_ONE = "1"


class MadeMemory(msgspec.Struct, frozen=True):
    """`name` is made at offset `at`, in line `line` (from 1), by `by`: `count` elements of `element`, as written.

    `element` is None where the source does not show it. `end`: where the statement ends.
    """

    name: str
    by: str
    count: str
    element: str | None
    at: int
    end: int
    line: int


def made_memory(text: str, name: str, place: int) -> MadeMemory | None:
    """Of the pointer that a place in a source uses; None where anything but one allocation may have set it.

    A variable of the function that the place is in, set before that place; else one of the whole file.

    Args:
        text: The source, without its comments.
        name: Of a variable, no member of another one.
        place: An offset.
    """
    around = function_around(text, place)
    if around is None or around.place_of(name) is not None:
        return None
    end = closing(text, around.body) or len(text)
    sets = [item for item in _sets(text, name) if around.body < item < end]
    inside = bool(sets) or _is_declared(text[around.body : end], name)
    made = [item for item in allocations(text, name) if not inside or around.body < item.at < place]
    if not inside:
        sets = [item for item in _sets(text, name) if function_around(text, item) is not None]
        made = [] if any(_is_local(text, item.at) for item in made) else made
    return made[0] if len(made) == 1 == len(sets) else None


def allocations(text: str, name: str) -> Iterator[MadeMemory]:
    """All that are written for a name, in a text without comments."""
    for match in BY_BYTES.finditer(text):
        found = _counted(text, match) if match["name"] == name and not _is_member(text, match.start("name")) else None
        if found is not None:
            count, element, end = found
            yield _made(text, match, match["by"], count, element, end)
    for match in NEW_ARRAY.finditer(text):
        if match["name"] == name and not _is_member(text, match.start("name")):
            yield _made(text, match, "new", match["count"].strip(), match["type"], match.end())


def _made(text: str, match: re.Match[str], by: str, count: str, element: str | None, end: int) -> MadeMemory:
    at = match.start("name")
    count = " ".join(count.split())
    return MadeMemory(match["name"], by, count, element, at, end, text.count("\n", 0, at) + 1)


def _counted(text: str, match: re.Match[str]) -> tuple[str, str | None, int] | None:
    """How many elements, of which type, and where the call ends."""
    end = closing(text, match.end())
    given = split(text[match.end() + 1 : end]) if end is not None else ()
    kind = (match["cast"] or match["cpp"] or match["type"] or "").strip() or None
    if end is None or len(given) != (1 if match["by"] in ("malloc", "alloca") else 2):
        return None
    if match["by"] == "calloc":
        sized = [item for item in given if item.startswith("sizeof")]
        rest = [item for item in given if item not in sized and item != _ONE]
        if len(rest) != 1 or len(sized) != 1:
            return given[0], kind, end
        given = (f"{rest[0]} * {sized[0]}",)
    product = _PRODUCT.match(given[-1])
    if product is None:
        return (given[-1], kind, end) if kind in _CHARACTERS and "sizeof" not in given[-1] else None
    count = " * ".join(item for item in (product["before"], product["behind"]) if item)
    written = (product["type"] or "").strip()
    return count or _ONE, written if written and not written.startswith("*") else kind, end


def _sets(text: str, name: str) -> list[int]:
    """Where a variable is set or moved, or its address is taken; not where it is set to null."""
    own = re.escape(name)
    sets = re.finditer(rf"(?<![\w.>]){own}\s*=(?!=)(?P<value>[^;]*;)", text)
    steps = rf"(?<![\w.>]){own}\s*(?:\+=|-=|\+\+|--)|(?:\+\+|--|(?<!&)&)\s*{own}\b(?!\s*[\[.])"
    own_sets = [item.start() for item in sets if not _NULL.match(item["value"])]
    moved = [item.start() for item in re.finditer(steps, text)]
    return [at for at in own_sets if not _POINTED.search(text[:at])] + moved


def _is_declared(body: str, name: str) -> bool:
    """Whether a function has a variable of its own of that name."""
    types = r"(?:int|long|short|char|float|double|auto|unsigned|void|size_t|\w+_t|struct\s+\w+)"
    return re.search(rf"\b{types}\b[^;=(){{}}]*?\b{re.escape(name)}\s*[;=\[,]", body) is not None


def _is_local(text: str, at: int) -> bool:
    """Whether an assignment declares what it sets: `int *x = malloc(...)`."""
    before = text[:at].rsplit(";", 1)[-1].rsplit("{", 1)[-1].rsplit("}", 1)[-1]
    return re.search(r"\w\s*\*+\s*(?:\w+\s*)?$", before) is not None


def _is_member(text: str, at: int) -> bool:
    return re.search(r"(?:\.|->)\s*$", text[:at]) is not None
