"""A count of the program's own C that wrapped below zero: `size_t n = written - taken`, with less written than taken.

The difference of unsigned numbers is then almost 2**64, and what it bounds runs on to the end of accessible memory. The
source has the difference, a register or the stack the number; where the memory of a structure has one of the operands,
the other one follows, and what sets that back is looked for in the same source.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

import msgspec

from pytracer._text import function_words, list_words, shortened
from pytracer.analyze.address_space.referrers import STATE_REGISTERS
from pytracer.analyze.evidence.lifetime.variables import program_frames
from pytracer.analyze.evidence.own_code.c_divisions import Body, plain
from pytracer.analyze.evidence.own_code.c_fields import CFields
from pytracer.analyze.evidence.own_code.c_text import (
    Function,
    closing,
    defined,
    function_around,
    without_parentheses,
)
from pytracer.analyze.evidence.own_code.c_values import SETS, Term
from pytracer.analyze.evidence.own_code.native_bounds import assigned_value, running_frame
from pytracer.analyze.evidence.own_code.null_global import lines_that_call
from pytracer.analyze.evidence.own_code.own_signature import Definition, own_definition
from pytracer.analyze.evidence.own_code.passed_arrays import PassedArrays
from pytracer.analyze.evidence.own_code.struct_fields import c_structures
from pytracer.analyze.naming import LineWords
from pytracer.analyze.view import ProcessView
from pytracer.report.job import Evidence

_UNSIGNED = re.compile(
    r"(?<![\w:])(?P<type>unsigned(?:\s+(?:long(?:\s+long)?|int))?|(?:std::)?(?:size_t|uint(?:32|64)_t|uintptr_t))\s+"
    r"(?P<name>\w+)\s*(?==(?!=)|[;,])"
)
_OF_32_BITS = re.compile(r"unsigned(?:\s+int)?|(?:std::)?uint32_t")
_LOADS = re.compile(
    r"^(?:__)?atomic_load(?:_n|_explicit)?\s*\(\s*&?\s*(?P<of>[^,()]+)(?:,.*)?\)$|^(?P<own>.+)\.load\(.*\)$"
)
_CAST = re.compile(r"^\(\s*(?:u?int\d+_t|s?size_t|unsigned|long|int)(?:\s+\w+)*\s*\)\s*(?=[\w(])")
_FIELD = re.compile(r"^(?P<owner>\w+)\s*(?:->|\.)\s*(?P<field>\w+)$")
_COPIES = r"\b(?:mem(?:cpy|move|set)|mempcpy|fread|fwrite|read|copy_n|fill_n)\s*\([^;]*\b{}\b"
_FARTHEST = {32: 1 << 30, 64: 1 << 40}  # below 0: as counts differ
_LEAST_UNPROVEN = 2  # -1 is in registers for other reasons, such as an error
_QUOTED = 60
_MOST = 2
_SHARED = re.compile(r"\bMAP_SHARED\b|\bshm_open\b|\bshmget\b")


class Reset(msgspec.Struct, frozen=True):
    """`text` at `line` in `function` sets it to 0; `calls`: lines of the program that call that."""

    function: str
    text: str
    line: LineWords | str
    calls: tuple[LineWords, ...]


class WrappedCount(msgspec.Struct, frozen=True):
    """`name`, at `line` of `function`, is `less - more` and was `below` under zero, in `bits`.

    `numbers`: what `less` and `more` were, where the memory shows it. `resets`: what sets `less` to 0. `shared`: the
    source maps memory that other processes have, too.
    """

    name: str
    function: str
    line: LineWords | str
    below: int
    bits: int
    less: str
    more: str
    numbers: tuple[int, int] | None = None
    resets: tuple[Reset, ...] = ()
    shared: bool = False

    @property
    def summary(self) -> str:
        """Behind a colon."""
        less, more = self.numbers if self.numbers is not None else (None, None)
        of_less, of_more = (f" ({item})" if item is not None else "" for item in (less, more))
        return (
            f"`{self.name}` is 2**{self.bits} - {self.below}, as `{self.less}`{of_less} was less than "
            f"`{self.more}`{of_more} in the unsigned difference of {self.line}"
        )

    @property
    def advice(self) -> str:
        """What to look for, and the check that is missing."""
        check = (
            f"Compare `{self.less}` with `{self.more}` before the difference of {self.line}, and let `{self.name}` be "
            "no more than there is room for."
        )
        if not self.resets:
            why = "it was set back, or the other one counted too far"
            return f"Find what made `{self.less}` less than `{self.more}`: {why}. {check}"
        first = self.resets[0]
        calls = list_words(first.calls, _MOST) if first.calls else "nothing in the program's files"
        verb = "call" if len(first.calls) > 1 else "calls"
        shared = "let only the process that creates it do so, as the memory is shared"
        whose = shared if self.shared else f"set `{self.more}` back with it"
        return (
            f"{first.function}() sets `{self.less}` to 0 ({first.line}: `{shortened(first.text, _QUOTED)}`), and "
            f"{calls} {verb} it: {whose}. {check}"
        )

    @property
    def evidence(self) -> Evidence:
        """The number."""
        known = f"; memory has {self.numbers[1]} in `{self.more}`" if self.numbers is not None else ""
        return Evidence(
            "register-value",
            f"a register or the stack of {self.function}() has {(1 << self.bits) - self.below}, which is -{self.below} "
            f"for signed numbers{known}",
        )


def wrapped_count(view: ProcessView) -> WrappedCount | None:
    """Of the innermost function of the program's own; None where its count may be another number."""
    frame = running_frame(view)
    name = function_words(frame.function).rpartition("::")[2] if frame is not None and frame.function else ""
    found = own_definition(view, name) if name and view.crash is not None else None
    if found is None:
        return None
    counts = [item for item in _Search(view, found, name).counts() if item is not None]
    return counts[0] if len(counts) == 1 else None


class _Search:
    """In one function of the program's own."""

    def __init__(self, view: ProcessView, found: Definition, name: str) -> None:
        self._view, self._found = view, found
        self._text, self._whole = plain(found.body), plain(found.text)
        self._functions: list[Function] = defined(self._text, name)
        self._arrays = PassedArrays(view)
        self._fields = CFields(view, found.text, self._arrays)

    def counts(self) -> Iterator[WrappedCount | None]:
        """Each unsigned variable that is a difference and bounds something, without a check."""
        for match in _UNSIGNED.finditer(self._text):
            name, bits = match["name"], 32 if _OF_32_BITS.fullmatch(match["type"]) else 64
            value = assigned_value([self._text], name)
            parts = _difference(value) if value is not None else None
            begin = re.search(rf"(?<![\w.>]){name}\s*=(?!=)", self._text)
            if parts is None or begin is None or not _is_length(self._text[begin.end() :], name):
                continue
            if not _is_checked(self._text, name, parts):
                yield self._count(name, bits, *parts, begin.start())

    def _count(self, name: str, bits: int, less: str, more: str, at: int) -> WrappedCount | None:
        counts_down = re.search(rf"\b{name}\s*(?:--|-=)|--\s*{name}\b", self._text) is not None
        known = self._number(more, self._text[:at]) if not counts_down else None
        candidates = [item for item in self._words(bits) if known is None or item <= known]
        distinct = sorted(set(candidates))
        if len(distinct) != 1 or (known is None and distinct[0] < _LEAST_UNPROVEN):
            return None
        number = self._found.line + self._text.count("\n", 0, at)
        line = self._line(number)
        return WrappedCount(
            name,
            self._functions[0].name if self._functions else "the function",
            line,
            distinct[0],
            bits,
            less,
            more,
            (known - distinct[0], known) if known is not None else None,
            tuple(self._resets(less)),
            _SHARED.search(self._whole) is not None,
        )

    def _words(self, bits: int) -> Iterator[int]:
        """How far below zero: of registers, else of the words on the stack of the function."""
        crash = self._view.crash
        if crash is None:
            return
        held = [value for name, value in crash.registers.items() if name not in STATE_REGISTERS]
        found = [item for value in held if (item := _below_zero(value, bits)) is not None]
        yield from found or self._on_stack(bits)

    def _on_stack(self, bits: int) -> Iterator[int]:
        crash, nbytes = self._view.crash, 8
        sp, bp = (crash.registers.get(name, 0) if crash is not None else 0 for name in ("rsp", "rbp"))
        for block in crash.memory if crash is not None and 0 < bp - sp < 1024 else ():
            if block.register != "rsp":
                continue
            for at in range(max(sp - block.addr, 0), min(len(block.content), bp - block.addr) - nbytes + 1, bits // 8):
                below = _below_zero(int.from_bytes(block.content[at : at + bits // 8], "little"), bits)
                if below is not None:
                    yield below

    def _number(self, text: str, before: str) -> int | None:
        """Of an operand: what the structure that Python passed has in its field, or what Python passed itself."""
        if text.isdecimal():
            return int(text)
        function = self._functions[0] if len(self._functions) == 1 else None
        match = _FIELD.match(text)
        name = match["owner"] if match is not None else text
        place = function.place_of(name) if function is not None else None
        if function is None or place is None or re.search(rf"(?<![\w.>]){name}\s*(?:{SETS})", before):
            return None
        body = Body(function, self._text, self._whole)
        if match is None:
            given = self._arrays.argument(function.name, body.parameters, place)
            return self._arrays.number(*given) if given is not None else None
        if re.search(rf"(?:->|\.)\s*{match['field']}\s*(?:{SETS})", before):
            return None
        return self._fields.kept(Term(text, body, place, match["field"]))

    def _resets(self, text: str) -> Iterator[Reset]:
        """What sets a field to 0: by itself, or with its whole structure."""
        match = _FIELD.match(text)
        owners = [
            item.name
            for item in c_structures(self._found.text, "")
            if match is not None and any(field.name == match["field"] for field in item.fields)
        ]
        if match is None or len(owners) != 1:
            return
        field, owner = match["field"], re.escape(owners[0])
        ways = (
            r"\bmemset\s*\(\s*(?P<name>\w+)\s*,\s*0\s*,",
            rf"(?<![\w)])\*\s*(?P<name>\w+)\s*=\s*\(\s*(?:struct\s+)?{owner}\s*\)\s*\{{",
            rf"\b(?P<name>\w+)\s*->\s*{field}\s*=(?!=)\s*0[uUlL]*\s*;",
            rf"\batomic_store\w*\s*\(\s*&\s*(?P<name>\w+)\s*->\s*{field}\s*,\s*0",
        )
        for found in sorted((item for way in ways for item in re.finditer(way, self._whole)), key=re.Match.start):
            around = function_around(self._whole, found.start())
            own = self._functions[0].name if self._functions else ""
            if around is None or around.name == own or _is_conditional(self._whole[around.body + 1 : found.start()]):
                continue
            end = closing(self._whole, around.body) or len(self._whole)
            declared = (*around.parameters, self._whole[around.body : end])
            if any(re.search(rf"\b{owner}\s*\*\s*(?:const\s+)?{found['name']}\b", item) for item in declared):
                number = self._whole.count("\n", 0, found.start())
                calls = tuple(dict.fromkeys(lines_that_call(self._view, [around.name])))
                text = self._found.text.splitlines()[number].strip()
                yield Reset(around.name, text, self._line(number + 1), calls)

    def _line(self, number: int) -> LineWords | str:
        """`line 48` of C that the program has as text; `ring.c:36` of a file of its own."""
        own = next(iter(program_frames(self._view)), None)
        if own is not None and own.file is not None and os.path.basename(own.file) == self._found.file:
            return LineWords(f"line {number}", own.file, number)
        return f"{self._found.file}:{number}"


def _is_conditional(before: str) -> bool:
    """Whether what follows in a function is in a block, or behind an `if` of its own statement."""
    inside = before.count("{") > before.count("}")
    return inside or re.search(r"\b(?:if|else|while|for)\b[^;{}]*$", before) is not None


def _below_zero(value: int, bits: int) -> int | None:
    below = (1 << bits) - value
    return below if 0 < below <= _FARTHEST[bits] else None


def _difference(text: str) -> tuple[str, str] | None:
    """The operands of `a - b`, without what only loads or casts them; None of anything else."""
    text, depth, at = without_parentheses(text), 0, None
    for place, letter in enumerate(text):
        depth += (letter in "([") - (letter in ")]")
        before = text[:place].rstrip()
        if letter == "-" and depth == 0 and text[place + 1 : place + 2] not in (">", "-", "=") and before[-1:] != "-":
            at = place if re.search(r"[\w)\]]$", before) else at
        elif depth == 0 and letter in "?+*/%&|<" and not (letter == "&" and not before):
            return None
    if at is None:
        return None
    less, more = (_operand(item) for item in (text[:at], text[at + 1 :]))
    return (less, more) if less and more and "-" not in re.sub("->", "", less) else None


def _operand(text: str) -> str:
    """`head->written` of `__atomic_load_n(&head->written, __ATOMIC_ACQUIRE)` and of `(size_t)head->written`."""
    text = without_parentheses(_CAST.sub("", without_parentheses(text)))
    loaded = _LOADS.match(text)
    if loaded is not None:
        text = (loaded["of"] or loaded["own"]).strip()
    return " ".join(text.split())


def _is_length(text: str, name: str) -> bool:
    """Whether it bounds a loop or a copy."""
    bounds = rf"\b(?:for|while)\s*\([^{{}}]*(?:[<!]=?\s*{name}\b|\b{name}\s*(?:--|>|!=))|--\s*{name}\b"
    return re.search(bounds, text) is not None or re.search(_COPIES.format(name), text) is not None


def _is_checked(text: str, name: str, parts: tuple[str, str]) -> bool:
    """Whether an `if`, min() or ?: compares the count, or its operands with each other."""
    words = rf"\b{name}\b"
    if re.search(rf"\bmin\w*\s*(?:<[^>]*>)?\s*\([^;]*{words}|{words}\s*[<>]=?[^;]*\?|\?[^;:]*{words}", text, re.I):
        return True
    for match in re.finditer(r"\b(?:if|assert)\s*\(", text):
        end = closing(text, match.end() - 1)
        inside = text[match.end() : end] if end is not None else ""
        if re.search(rf"{words}\s*[<>]|[<>]=?\s*{words}", inside):
            return True
        if all(part in " ".join(inside.split()) for part in parts) and re.search(
            r"[<>](?!\w+>)", inside.replace("->", "")
        ):
            return True
    return False
