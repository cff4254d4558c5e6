"""What PyArg_ParseTuple() and its kin store, by their format: "O!p" is a pointer of 8 bytes, then an int of 4.

Read as text. The sizes are those of 64-bit Linux.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.own_code.c_text import Function, closing, split
from pytracer.analyze.evidence.own_code.struct_fields import C_BYTES

_PARSERS = {"PyArg_ParseTuple": 1, "PyArg_ParseTupleAndKeywords": 2, "PyArg_Parse": 1}  # the place of the format
_CALL = Pattern(rf"\b(?P<name>{'|'.join(sorted(_PARSERS, reverse=True))})\s*\(")
_TEXTS = Pattern(r'^(?:\s*"[^"\\]*")+\s*$')
_TEXT, _POINTER = ("", 0), ("a pointer", 8)
_LENGTH = ("a Py_ssize_t", 8)
# Of each unit, what it takes in order; one without a size is only read.
_UNITS: dict[str, tuple[tuple[str, int], ...]] = {
    "b": (("an unsigned char", 1),), "B": (("an unsigned char", 1),), "c": (("a char", 1),), "h": (("a short", 2),),
    "H": (("an unsigned short", 2),), "i": (("an int", 4),), "I": (("an unsigned int", 4),), "p": (("an int", 4),),
    "C": (("an int", 4),), "f": (("a float", 4),), "l": (("a long", 8),), "k": (("an unsigned long", 8),),
    "L": (("a long long", 8),), "K": (("an unsigned long long", 8),), "n": (_LENGTH,), "d": (("a double", 8),),
    "D": (("a Py_complex", 16),), "O!": (_TEXT, _POINTER), "O&": (_TEXT, _TEXT), "es#": (_TEXT, _POINTER, _LENGTH),
    "et#": (_TEXT, _POINTER, _LENGTH), "es": (_TEXT, _POINTER), "et": (_TEXT, _POINTER),
    **{f"{unit}*": (("a Py_buffer", 80),) for unit in "szyw"}, **{f"{unit}#": (_POINTER, _LENGTH) for unit in "szy"},
    **dict.fromkeys("szyOSYU", (_POINTER,)),
}  # fmt: skip
_UNIT = Pattern("|".join(re.escape(item) for item in sorted(_UNITS, key=len, reverse=True)))
_SIZES = {
    **C_BYTES, "npy_bool": 1, "npy_int16": 2, "npy_uint16": 2, "npy_int": 4, "npy_int32": 4, "Py_ssize_t": 8,
    "npy_intp": 8, "npy_int64": 8, "npy_float64": 8, "long int": 8,
}  # fmt: skip
_DECLARATION = Pattern(
    r"^\s*(?P<type>(?:const\s+)*(?:(?:unsigned|signed|long|short|struct|std::)\s*\b)*[A-Za-z_][\w:]*"
    r"(?:\s+(?:int|long|char|double))?)(?:\s|(?=\*))\s*(?P<items>[*\s]*[A-Za-z_].*)$",
    re.DOTALL,
)
_ITEM = Pattern(r"^(?P<stars>[*\s]*)(?P<name>[A-Za-z_]\w*)\s*(?P<rows>\[.*\])?\s*(?:[={].*)?$", re.DOTALL)
_NO_TYPES = frozenset({"return", "else", "goto", "case", "delete", "throw", "static", "typedef", "extern", "new"})
_ADDRESS = Pattern(r"^(?:\([\w\s:*]*\)\s*)?&\s*(?P<name>[A-Za-z_]\w*)$")


class Variable(msgspec.Struct, frozen=True):
    """A local variable of `type`, of `nbytes`: 0 where that is not known. `at`: its place in the file."""

    name: str
    type: str
    nbytes: int
    at: int

    @property
    def is_pointer(self) -> bool:
        """Whether it holds an address."""
        return self.type.endswith("*")


class Stored(msgspec.Struct, frozen=True):
    """What a unit of a format stores into a variable: `what` (`an int`) of `nbytes`."""

    unit: str
    variable: str
    what: str
    nbytes: int


class Parse(msgspec.Struct, frozen=True):
    """A call of `function` at a place of the file; `stored`: in order, as far as it is plain variables."""

    function: str
    at: int
    stored: tuple[Stored, ...]


def parses(text: str, around: Function, end: int) -> Iterator[Parse]:
    """The calls in a function that begin before a place, with the formats that are written there."""
    for match in _CALL.finditer(text, around.body, end):
        close, place = closing(text, match.end() - 1), _PARSERS[match["name"]]
        given = split(text[match.end() : close]) if close is not None else ()
        first = place + 1 + (match["name"] == "PyArg_ParseTupleAndKeywords")  # behind the list of names
        if place < len(given) and _TEXTS.match(given[place]):
            found = _stored("".join(re.findall(r'"([^"]*)"', given[place])), given[first:])
            if found is not None:
                yield Parse(match["name"], match.start(), found)


def _stored(form: str, given: tuple[str, ...]) -> tuple[Stored, ...] | None:
    """None where a unit of the format is not known, or the number of arguments is another one."""
    form = re.sub(r"[()|$\s]", "", re.split(r"[:;]", form)[0])
    units = _UNIT.findall(form)
    takes = [(unit, *item) for unit in units for item in _UNITS[unit]]
    if "".join(units) != form or len(takes) != len(given):
        return None
    pairs = zip(takes, (_ADDRESS.match(item) for item in given), strict=True)
    return tuple(
        Stored(unit, match["name"], what, nbytes)
        for (unit, what, nbytes), match in pairs
        if match is not None and nbytes
    )


def locals_of(text: str, around: Function, end: int) -> dict[str, Variable]:
    """The variables that a function declares before a place, but for static ones; the last one of each name."""
    found: dict[str, Variable] = {}
    for part in re.finditer(r"[^;{}]+", text[around.body + 1 : end]):
        match = _DECLARATION.match(part[0])
        if match is None or match["type"].split()[0] in _NO_TYPES or "(" in match["items"].partition("=")[0]:
            continue
        kind = re.sub(r"\bconst\b|std::", "", match["type"]).strip()
        at = around.body + 1 + part.start() + match.start("items")
        for item in filter(None, map(_ITEM.match, split(match["items"]))):
            stars = item["stars"].count("*")
            nbytes = 8 if stars else _SIZES.get(" ".join(kind.split()), 0)
            found[item["name"]] = Variable(
                item["name"], f"{kind} {'*' * stars}".strip(), 0 if item["rows"] else nbytes, at
            )
    return found
