"""Functions of a C or C++ file that leave floating-point traps on, with those that call them, and what undoes that.

One that switches them off again before it ends is none, also by another function or by a destructor of its class; what
puts back the traps of before (`feenableexcept(old)`) enables nothing.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cached_property

import msgspec

from pytracer._patterns import Pattern
from pytracer._text import shortened
from pytracer.analyze.evidence.own_code.c_text import calls_of, closing, function_around, without_texts
from pytracer.analyze.evidence.own_code.source_files import Source

ENABLES = Pattern(r"\bfeenableexcept\s*\(|\bfesetenv\s*\(\s*FE_NOMASK_ENV\b|\b_MM_SET_EXCEPTION_MASK\s*\((?=[^;]*~)")
_DISABLES = (
    r"\bfedisableexcept\s*\(|\bfesetenv\s*\((?!\s*FE_NOMASK_ENV\b)|\bfeupdateenv\s*\("
    r"|\b_MM_SET_EXCEPTION_MASK\s*\((?![^;]*~)"
)
_OTHER_WAY = Pattern(r"\A\W*:|\belse\b|\breturn\b")  # between the two: not both of them run
_ELSE = Pattern(r"\A\W*(?::|else\b)")
_LOADED = Pattern(r"\bconstructor\b")
_SAVED = Pattern(r"(\w+)\s*[=({]\s*(?:fegetexcept|fedisableexcept|feenableexcept)\s*\(")
_BRACE = Pattern(r"[{}]")
_CLASS = Pattern(r"\b(?:class|struct)\s+(\w+)\b[^;{}()]*$")
_OWNED = Pattern(r"(\w+)\s*::\s*(~?\w+)\s*\(")
_FLAG = Pattern(r"\b(?:FE|_MM_MASK)_([A-Z_]+)\b")
_ALL = ("ALL_EXCEPT", "NOMASK_ENV", "MASK")
# By the code of the signal: names of fenv.h and of xmmintrin.h.
FLAGS = {
    3: ("DIVBYZERO", "DIV_ZERO"),
    4: ("OVERFLOW",),
    5: ("UNDERFLOW",),
    6: ("INEXACT",),
    7: ("INVALID",),
}
_ZEROS = frozenset({"0", "false", "NULL", "nullptr"})
_QUOTED, _MOST_CALLERS, _MOST_BEFORE = 60, 8, 400


class Enabler(msgspec.Struct, frozen=True):
    """A function that enables the trap by `call`, which begins `text`."""

    function: str
    place: str
    text: str
    call: str
    names: frozenset[str]
    """Of the function and of those that call it, and leave the traps on."""
    undoers: frozenset[str]
    loaded: bool


def enablers(source: Source, code: int, running: Collection[str]) -> Iterator[Enabler]:
    """Those of one file, of the exception of a signal.

    Args:
        source: The file.
        code: Of the signal.
        running: Functions on the stack, which have not undone it yet.
    """
    path, lines = source
    shown = "\n".join(lines)
    file = _File(without_texts(shown), running)
    met = set[str]()
    for match in file.enabling:
        function, end = file.around(match.start()), closing(file.text, file.text.find("(", match.start()))
        if function is None or end is None or function.name in met or function.owner in file.guards:
            continue
        if not _traps(file.text[match.start() : end], file.text[function.start : match.start()], code):
            continue
        if file.is_undone(file.text[end : function.end], _OTHER_WAY) and function.name not in running:
            continue
        met.add(function.name)
        whole = shown[match.start() : end + 1]
        yield Enabler(
            function.name,
            f"{os.path.basename(path)}:{file.text.count(chr(10), 0, match.start()) + 1}",
            shortened(" ".join(whole.split()), _QUOTED),
            match[0].partition("(")[0].strip(),
            frozenset(file.callers(function.name)),
            file.undoers,
            _LOADED.search(file.head(function)) is not None,
        )


def _traps(call: str, before: str, code: int) -> bool:
    """Whether the exception is among those that it names; where it names none, it may be."""
    flags = set(_FLAG.findall(call)) or set(_FLAG.findall(before))
    return not flags or bool(flags & {*FLAGS[code], *_ALL})


class _Body(msgspec.Struct, frozen=True):
    """A function whose braces are at `start` and `end`; `owner`: the class that it is a member of."""

    name: str
    owner: str | None
    start: int
    end: int


@dataclass(frozen=True)
class _File:
    """`text`: without comments and strings. `running`: functions on the stack."""

    text: str
    running: Collection[str]

    @cached_property
    def bodies(self) -> tuple[_Body, ...]:
        """Its functions."""
        return tuple(_bodies(self.text))

    @cached_property
    def enabling(self) -> list[re.Match[str]]:
        """What enables traps that were off."""
        saved = {"fegetexcept", *(match[1] for match in _SAVED.finditer(self.text))}
        return [match for match in ENABLES.finditer(self.text) if saved.isdisjoint(self._words_in_call(match.start()))]

    def _words_in_call(self, start: int) -> list[str]:
        opens = self.text.find("(", start)
        return re.findall(r"\w+", self.text[opens : closing(self.text, opens)])

    @cached_property
    def undoers(self) -> frozenset[str]:
        """Functions that only switch traps off, also by others of these; `~Guard` is a destructor."""
        on = {body.name for match in self.enabling if (body := self.around(match.start())) is not None}
        counts = Counter(body.name for body in self.bodies)
        called = {
            body.name: set(re.findall(r"(\w+)\s*\(", self._text_of(body)))
            for body in self.bodies
            if body.name not in on and counts[body.name] == 1
        }
        off = {item.name for item in self.bodies if item.name in called and re.search(_DISABLES, self._text_of(item))}
        while more := {name for name, inner in called.items() if inner & off and not inner & on} - off:
            off |= more
        return frozenset(off)

    @cached_property
    def guards(self) -> frozenset[str]:
        """Classes whose destructor switches traps off."""
        return frozenset(name[1:] for name in self.undoers if name.startswith("~"))

    @cached_property
    def _off(self) -> re.Pattern[str]:
        names = "|".join(re.escape(name) for name in sorted(self.undoers))
        return re.compile(rf"{_DISABLES}|\b(?:{names})\s*\(" if names else _DISABLES)

    def is_undone(self, rest: str, other_way: Pattern) -> bool:
        """Whether the traps are switched off again further down, on each way there."""
        off = self._off.search(rest)
        return off is not None and other_way.search(rest, 0, off.start()) is None

    def callers(self, name: str) -> set[str]:
        """The function itself, and those of the file that call it, also through others, and leave the traps on."""
        found, waiting = {name}, [name]
        while waiting and len(found) < _MOST_CALLERS:
            called = waiting.pop()
            for place, given in calls_of(self.text, called):
                around = self.around(place)
                zeros = bool(given) and _ZEROS.issuperset(given)
                if around is not None and around.name not in found and not zeros and self._leaves_on(around, place):
                    found.add(around.name)
                    waiting.append(around.name)
        return found

    def _leaves_on(self, body: _Body, place: int) -> bool:
        """Whether nothing behind a call undoes it, the same call with zeros included."""
        if body.name in self.running:
            return True
        end = closing(self.text, self.text.find("(", place)) or place
        rest, name = self.text[end : body.end], re.match(r"\w+", self.text[place:end])
        again = calls_of(rest, name[0]) if name is not None else iter(())
        by_zeros = any(given and _ZEROS.issuperset(given) for _, given in again)
        return body.owner not in self.guards and not self.is_undone(rest, _ELSE) and not by_zeros

    def around(self, place: int) -> _Body | None:
        """The innermost function whose body has a place."""
        inside = [item for item in self.bodies if item.start < place < item.end]
        return max(inside, key=lambda item: item.start, default=None)

    def head(self, body: _Body) -> str:
        """What is before its brace, behind the one before."""
        start = max(self.text.rfind("}", 0, body.start), self.text.rfind(";", 0, body.start)) + 1
        return self.text[start : body.start]

    def _text_of(self, body: _Body) -> str:
        return self.text[body.start : body.end]


def _bodies(text: str) -> Iterator[_Body]:
    """The functions of a file, read once; one that does not end is none."""
    opened: list[tuple[int, str | None, str | None]] = []  # where, the function and the class around it
    for match in _BRACE.finditer(text):
        at = match.start()
        if match[0] == "{":
            name, owner = _headed(text[max(at - _MOST_BEFORE, 0) : at + 1])
            outer = opened[-1][2] if opened else None
            opened.append((at, name, owner or outer))
        elif opened:
            start, name, owner = opened.pop()
            if name is not None:
                yield _Body(name, owner, start, at)


def _headed(text: str) -> tuple[str | None, str | None]:
    """The function whose brace ends the text, and the class that the text names: its own, or that of the function."""
    function = function_around(text, len(text))
    if function is None or function.body != len(text) - 1:
        found = _CLASS.search(text[:-1])
        return None, found[1] if found is not None else None
    owned = [owner for owner, name in _OWNED.findall(text) if name == function.name]
    return function.name, owned[-1] if owned else None
