"""A count of the program's own C that wrapped below zero: `size_t n = written - taken`, with less written than taken.

The difference of unsigned numbers is then almost 2**64, and what it bounds runs on to the end of accessible memory. The
source has the difference. A small negative number in a register may be another one: it is the count only where memory
has both operands, and their difference is that number. What sets the first one back is looked for in the same source.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator

import msgspec

from pytracer._patterns import Pattern
from pytracer._text import function_words, list_words, shortened
from pytracer.analyze.address_space.referrers import STATE_REGISTERS
from pytracer.analyze.evidence.lifetime.variables import program_frames
from pytracer.analyze.evidence.native.native_stack import memory_word
from pytracer.analyze.evidence.own_code.c_divisions import Body, plain
from pytracer.analyze.evidence.own_code.c_fields import CFields
from pytracer.analyze.evidence.own_code.c_text import (
    Function,
    closing,
    declared_name,
    defined,
    function_around,
    without_parentheses,
)
from pytracer.analyze.evidence.own_code.c_values import SETS, Term
from pytracer.analyze.evidence.own_code.calling_lines import lines_that_call
from pytracer.analyze.evidence.own_code.native_bounds import assigned_value, running_frame
from pytracer.analyze.evidence.own_code.own_signature import Definition, own_definition
from pytracer.analyze.evidence.own_code.passed_arrays import PassedArrays
from pytracer.analyze.evidence.own_code.struct_fields import c_structures
from pytracer.analyze.naming import LineWords
from pytracer.analyze.view import ProcessView
from pytracer.report.job import Evidence

_UNSIGNED = Pattern(
    r"(?<![\w:])(?P<type>unsigned(?:\s+(?:long(?:\s+long)?|int))?|(?:std::)?(?:size_t|uint(?:32|64)_t|uintptr_t))\s+"
    r"(?P<name>\w+)\s*(?==(?!=)|[;,])"
)
_UNSIGNED_FIELD = Pattern(r"\bunsigned\b|\bsize_t\b|\buint|\buintptr")
_OF_32_BITS = Pattern(r"unsigned(?:\s+int)?|(?:std::)?uint32_t")
_LOADS = Pattern(
    r"^(?:__)?atomic_load(?:_n|_explicit)?\s*\(\s*&?\s*(?P<of>[^,()]+)(?:,.*)?\)$|^(?P<own>.+)\.load\(.*\)$"
)
_CAST = Pattern(r"^\(\s*(?:u?int\d+_t|s?size_t|unsigned|long|int)(?:\s+\w+)*\s*\)\s*(?=[\w(])")
_FIELD = Pattern(r"^(?P<owner>\w+)\s*(?:->|\.)\s*(?P<field>\w+)$")
_COPIES = Pattern(r"\b(?:mem(?:cpy|move|set)|mempcpy|fread|fwrite|read|copy_n|fill_n)\s*\(")
_LOOPS = Pattern(r"\b(?P<how>for|while)\s*\(")
_CHECKS = Pattern(r"\b(?:if|\w*(?P<macro>CHECK|ASSERT|ENSURE|EXPECTS)\w*)\s*\(", re.I)
_COMPARES = Pattern(r"(?<![<>-])[<>](?![<>])=?|[!=]=|&&|\|\||\b(?:and|or)\b")
_LONGEST = 1000  # letters in parentheses
_MADE = r"(?<![\w.>]){}\s*=(?!=)[^;]*\b(?:malloc|calloc|new|make_unique|make_shared)\b"
_FARTHEST = {32: 1 << 30, 64: 1 << 40}  # below 0: as counts differ
_LEAST_UNPROVEN = 2  # -1 is in registers for other reasons, such as an error
_QUOTED = 60
_MOST = 2
_SHARED = Pattern(r"\bMAP_SHARED\b|\bshm_open\b|\bshmget\b")


class Reset(msgspec.Struct, frozen=True):
    """`text` at `line` in `function` sets it to 0; `calls`: lines of the program that call that."""

    function: str
    text: str
    line: LineWords | str
    calls: tuple[LineWords, ...]


class WrappedCount(msgspec.Struct, frozen=True):
    """`name`, at `line` of `function`, is `less - more`; a number that is `below` under zero, in `bits`, may be it.

    `numbers`: what memory has in `less` and `more`. `resets`: what sets `less` to 0. `shared`: the source maps memory
    that other processes have, too.
    """

    name: str
    function: str
    line: LineWords | str
    below: int
    bits: int
    less: str
    more: str
    numbers: tuple[int | None, int | None] = (None, None)
    resets: tuple[Reset, ...] = ()
    shared: bool = False

    @property
    def proven(self) -> bool:
        """Whether memory has both operands, and the number is their difference."""
        less, more = self.numbers
        return less is not None and more is not None and more - less == self.below

    @property
    def summary(self) -> str:
        """Behind a colon."""
        of_less, of_more = (f" ({item})" if item is not None else "" for item in self.numbers)
        if not self.proven:
            return (
                f"`{self.name}` may have wrapped below zero in the unsigned difference of {self.line}: it does where "
                f"`{self.less}`{of_less} is less than `{self.more}`{of_more}"
            )
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
            made = "made" if self.proven else "may have made"
            return f"Find what {made} `{self.less}` less than `{self.more}`: {why}. {check}"
        first = self.resets[0]
        calls = list_words(first.calls, _MOST) if first.calls else "no line of Python"
        verb = "call" if len(first.calls) > 1 else "calls"
        shared = "let only the process that creates it do so, as the memory is shared"
        whose = shared if self.shared else f"set `{self.more}` back with it"
        return (
            f"{first.function}() sets `{self.less}` to 0 ({first.line}: `{shortened(first.text, _QUOTED)}`), and "
            f"{calls} {verb} it: {whose}. {check}"
        )

    @property
    def evidence(self) -> Evidence | None:
        """The number; None where it may be another one."""
        if not self.proven:
            return None
        return Evidence(
            "register-value",
            f"a register or the stack of {self.function}() has {(1 << self.bits) - self.below}, which is -{self.below} "
            f"for signed numbers; memory has {self.numbers[0]} in `{self.less}`, and {self.numbers[1]} in "
            f"`{self.more}`",
            function=self.function,
            value=(1 << self.bits) - self.below,
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
            if any(self._is_pointer(item) for item in parts):
                continue
            if not _is_checked(self._text, name, parts):
                yield self._count(name, bits, *parts, begin.start())

    def _count(self, name: str, bits: int, less: str, more: str, at: int) -> WrappedCount | None:
        counts_down = re.search(rf"\b{name}\s*(?:--|-=)|--\s*{name}\b", self._text) is not None
        held = (self._number(less, at), self._number(more, at)) if not counts_down else (None, None)
        distinct = {item for item in self._words(bits) if held[1] is None or item <= held[1]}
        if len(distinct) != 1 or (None not in held and held[0] >= held[1]):  # type: ignore[operator]
            return None
        found = WrappedCount(
            name,
            self._functions[0].name if self._functions else "the function",
            self._line(self._found.line + self._text.count("\n", 0, at)),
            distinct.pop(),
            bits,
            less,
            more,
            held,
            tuple(self._resets(less, more)),
            _SHARED.search(self._whole) is not None,
        )
        return found if found.proven or found.below >= _LEAST_UNPROVEN else None

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

    def _number(self, text: str, at: int) -> int | None:
        """Of an operand at a place: of the structure that Python passed or that this points at, or passed itself."""
        if text.isdecimal():
            return int(text)
        function = self._functions[0] if len(self._functions) == 1 else None
        match, before = _FIELD.match(text), self._text[:at]
        name = match["owner"] if match is not None else text
        if function is None or (match is not None and _sets_field(before, match["field"])):
            return None
        place = function.place_of(name)
        if match is not None and place is None:
            return self._through(function, name, match["field"])
        if place is None or re.search(rf"(?<![\w.>]){name}\s*(?:{SETS})", before):
            return None
        body = Body(function, self._text, self._whole)
        if match is None:
            given = self._arrays.argument(function.name, body.parameters, place)
            return self._arrays.number(*given) if given is not None else None
        return self._fields.kept(Term(text, body, place, match["field"]))

    def _through(self, function: Function, name: str, field: str) -> int | None:
        """Of a field of what a variable points at, which a field of a parameter says: `header_t *head = ring->head`."""
        made = _FIELD.match(assigned_value([self._text], name) or "")
        declared = re.search(rf"\b(?P<type>\w+)\s*\*\s*{name}\s*=(?!=)", self._text)
        place = function.place_of(made["owner"]) if made is not None else None
        if made is None or declared is None or place is None or _sets_field(self._text, made["field"]):
            return None
        given = self._arrays.argument(function.name, tuple(map(declared_name, function.parameters)), place)
        owner = re.match(r"(?:const\s+)?(?:struct\s+)?(?P<type>\w+)\s*\*[^*]*$", function.parameters[place])
        start = self._arrays.number(*given) if given is not None else None
        if start is None or owner is None:
            return None
        pointed = self._word(start, owner["type"], made["field"], pointer=True)
        return self._word(pointed, declared["type"], field, pointer=False) if pointed is not None else None

    def _word(self, start: int, structure: str, name: str, *, pointer: bool) -> int | None:
        """What memory has in a field of a structure: an unsigned number, or a pointer."""
        fields = [
            field
            for item in c_structures(self._found.text, "")
            for field in item.fields
            if item.name == structure and field.name == name and field.pointer == pointer
        ]
        crash, field = self._view.crash, fields[0] if len(fields) == 1 else None
        if crash is None or field is None or not (pointer or _UNSIGNED_FIELD.search(field.type)):
            return None
        return memory_word(crash, start + field.offset, field.nbytes)

    def _is_pointer(self, text: str) -> bool:
        """Whether an operand is declared with `*`, or is an address: a difference of pointers is signed."""
        match = _FIELD.match(text)
        if re.search(r"[&*]", text):
            return True
        if match is not None:
            return re.search(rf"\*\s*(?:\w+\s+)?{match['field']}\s*[;,\[]", self._whole) is not None
        given = [item for function in self._functions for item in function.parameters if declared_name(item) == text]
        declared = rf"(?:^|[;{{}}])\s*[\w:]+(?:[ \t]+[\w:]+){{0,4}}\s*\*[\s*]*(?:\w+\s+)?{re.escape(text)}\s*[=;,]"
        also = rf"[,(=]\s*\*\s*{re.escape(text)}\b"
        return any("*" in item or "[" in item for item in given) or any(
            re.search(way, " ".join(self._text.split())) is not None for way in (declared, also)
        )

    def _owner(self, text: str) -> tuple[str, str] | None:
        """The only structure that has the field of an operand, and the field."""
        match = _FIELD.match(text)
        owners = [
            item.name
            for item in c_structures(self._found.text, "")
            if match is not None and any(field.name == match["field"] for field in item.fields)
        ]
        return (owners[0], match["field"]) if match is not None and len(owners) == 1 else None

    def _resets(self, less: str, more: str) -> Iterator[Reset]:
        """What sets a field to 0, by itself or with its whole structure, and does not set the other operand."""
        first, second = self._owner(less), self._owner(more)
        if first is None or (second is None and _FIELD.match(more) is not None):
            return
        own = self._functions[0].name if self._functions else ""
        for start, name in sorted(_whole_setters(self._whole, first[0]) + _field_resets(self._whole, first[1])):
            around = function_around(self._whole, start)
            if around is None or around.name == own or _is_conditional(self._whole[around.body + 1 : start]):
                continue
            body = self._whole[around.body : closing(self._whole, around.body) or len(self._whole)]
            if not _points_at(name, first[0], (*around.parameters, body)) or _sets_other(body, name, first, second):
                continue
            number = self._whole.count("\n", 0, start)
            calls = tuple(dict.fromkeys(lines_that_call(self._view, [around.name])))
            text = self._found.text.splitlines()[number].strip()
            yield Reset(around.name, text, self._line(number + 1), calls)

    def _line(self, number: int) -> LineWords | str:
        """`line 48` of C that the program has as text; `ring.c:36` of a file of its own."""
        own = next(iter(program_frames(self._view)), None)
        if own is not None and own.file is not None and os.path.basename(own.file) == self._found.file:
            return LineWords(f"line {number}", own.file, number)
        return f"{self._found.file}:{number}"


def _whole_setters(text: str, owner: str) -> list[tuple[int, str]]:
    """Where a whole structure is set, and by which pointer."""
    ways = (
        r"\bmemset\s*\(\s*(?P<name>\w+)\s*,\s*0\s*,",
        rf"(?<![\w)])\*\s*(?P<name>\w+)\s*=\s*\(\s*(?:struct\s+)?{re.escape(owner)}\s*\)\s*\{{",
    )
    return [(item.start(), item["name"]) for way in ways for item in re.finditer(way, text)]


def _field_resets(text: str, field: str) -> list[tuple[int, str]]:
    """Where a field is set to 0, and by which pointer."""
    ways = (
        rf"\b(?P<name>\w+)\s*->\s*{field}\s*=(?!=)\s*0[uUlL]*\s*;",
        rf"\batomic_store\w*\s*\(\s*&\s*(?P<name>\w+)\s*->\s*{field}\s*,\s*0",
    )
    return [(item.start(), item["name"]) for way in ways for item in re.finditer(way, text)]


def _points_at(name: str, owner: str, declared: Iterable[str]) -> bool:
    """Whether a variable is declared as a pointer to a structure."""
    return any(re.search(rf"\b{re.escape(owner)}\s*\*\s*(?:const\s+)?{name}\b", item) for item in declared)


def _sets_other(body: str, name: str, first: tuple[str, str], second: tuple[str, str] | None) -> bool:
    """Whether a function that sets `first` by `name` sets `second`, too: but of what it has just allocated."""
    if second is None:
        return False
    owner, field = second
    whole = {other for _, other in _whole_setters(body, owner)}
    if owner == first[0] and name in whole:
        return True
    stores = (
        rf"\b(?P<by>\w+)\s*(?:->|\.)\s*{field}\s*(?:{SETS})|\b(?:store|exchange)\w*\s*\(\s*&\s*(?P<of>\w+)->{field}"
    )
    sets = {item["by"] or item["of"] for item in re.finditer(stores, body.replace("atomic_", ""))}
    return any(other == name or re.search(_MADE.format(other), body) is None for other in sets | (whole - {name}))


def _sets_field(text: str, field: str) -> bool:
    return re.search(rf"(?:->|\.)\s*{field}\s*(?:{SETS})", text) is not None


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


def _inside(text: str, opens: re.Match[str]) -> str:
    """What is in the parentheses that a match opens; empty where that is too long."""
    part = text[opens.end() - 1 : opens.end() + _LONGEST]
    end = closing(part, 0)
    return part[1:end] if end is not None else ""


def _is_length(text: str, name: str) -> bool:
    """Whether it bounds a loop or a copy."""
    bounds = rf"[<!]=?\s*{name}\b|\b{name}\s*(?:--|>|!=)|--\s*{name}\b"
    return any(re.search(bounds, _inside(text, match)) for match in _LOOPS.finditer(text)) or any(
        re.search(rf"\b{name}\b", _inside(text, match)) for match in _COPIES.finditer(text)
    )


def _is_checked(text: str, name: str, parts: tuple[str, str]) -> bool:
    """Whether an `if`, a check, min() or ?: compares the count or its operands, or a loop's condition has another."""
    words = rf"\b{name}\b"
    ways = (
        rf"\bmin\w*\s*(?:<[^>;]{{0,99}}>)?\s*\([^;]{{0,{_LONGEST}}}{words}",
        rf"{words}\s*[<>]=?[^;]{{0,{_LONGEST}}}\?|\?[^;:]{{0,{_LONGEST}}}{words}",
    )
    if any(re.search(way, text, re.I) for way in ways):
        return True
    checks = ((_inside(text, match), match["macro"] is not None) for match in _CHECKS.finditer(text))
    return any(_compares(inside, name, parts, any_way=is_macro) for inside, is_macro in checks) or any(
        _has_second(_inside(text, match), match["how"], name) for match in _LOOPS.finditer(text)
    )


def _compares(inside: str, name: str, parts: tuple[str, str], *, any_way: bool) -> bool:
    """Whether a condition compares the count, or its operands with each other; `any_way`: by whatever it calls."""
    words = rf"\b{name}\b"
    if re.search(words if any_way else rf"{words}\s*[<>]|[<>]=?\s*{words}", inside):
        return True
    compares = any_way or re.search(r"[<>](?!\w+>)", inside.replace("->", "")) is not None
    return compares and all(part in " ".join(inside.split()) for part in parts)


def _has_second(inside: str, how: str, name: str) -> bool:
    """Whether the condition of a loop has more than the one comparison, with the count."""
    steps = inside.split(";")
    condition = steps[1] if how == "for" and len(steps) > 1 else inside
    return re.search(rf"\b{name}\b", condition) is not None and len(_COMPARES.findall(condition)) > 1
