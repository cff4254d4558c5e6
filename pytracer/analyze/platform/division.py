"""The divisor of an x86-64 integer division that the processor refused, read without a disassembler."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

_REGISTERS = (
    *("rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi"),
    *(f"r{n}" for n in range(8, 16)),
)
_OPERAND_SIZE, _REX, _REX_W, _REX_B = 0x66, 0x40, 0x08, 0x01
_BYTE_GROUP, _WIDE_GROUP = 0xF6, 0xF7  # opcode extensions 6 (div) and 7 (idiv)
_DIV, _IDIV = 6, 7


class Division(msgspec.Struct, frozen=True):
    """`signed` for idiv. `nbytes` is the operands' width; `register` is None when the divisor lies in memory.

    `divisor` is its bit pattern, None when it is not known; `inferred`: it must be 0, by the dividend. `of_smallest`:
    the dividend is the smallest integer, which -1 does not divide either.
    """

    signed: bool
    nbytes: int
    register: str | None
    divisor: int | None
    inferred: bool = False
    of_smallest: bool = False

    @property
    def is_minus_one(self) -> bool:
        """Whether the divisor is -1, by which the smallest integer cannot be divided."""
        return self.signed and self.divisor == (1 << 8 * self.nbytes) - 1


def decode_division(code: bytes, registers: Mapping[str, int]) -> Division | None:
    """Decode `div` or `idiv` at the beginning of `code`; None for anything else.

    Args:
        code: Machine code from the program counter on.
        registers: Values at the fault, by lower-case x86-64 name.
    """
    narrow = code[:1] == bytes([_OPERAND_SIZE])
    rest = code[1:] if narrow else code
    rex = rest[0] if rest and rest[0] & 0xF0 == _REX else 0
    rest = rest[1:] if rex else rest
    if len(rest) < 2 or rest[0] not in (_BYTE_GROUP, _WIDE_GROUP) or rest[1] >> 3 & 7 not in (_DIV, _IDIV):
        return None
    nbytes = 1 if rest[0] == _BYTE_GROUP else 8 if rex & _REX_W else 2 if narrow else 4
    signed = rest[1] >> 3 & 7 == _IDIV
    if rest[1] >> 6 != 3:
        return Division(signed, nbytes, None, None)
    number = (rest[1] & 7) | (8 if rex & _REX_B else 0)
    if nbytes == 1 and not rex and number >= 4:
        return Division(signed, nbytes, None, None)  # ah, ch, dh, bh
    name = _REGISTERS[number]
    value = registers.get(name)
    return Division(signed, nbytes, name, None if value is None else value & (1 << 8 * nbytes) - 1)


def by_dividend(division: Division, registers: Mapping[str, int]) -> Division:
    """What the dividend in rdx:rax shows of a divisor that is not known.

    The quotient of an integer of the divisor's width fits, unless it is the smallest by -1: else the divisor was 0.
    """
    low, high = registers.get("rax"), registers.get("rdx")
    if division.divisor is not None or division.nbytes == 1 or low is None or high is None:
        return division
    bits = 8 * division.nbytes
    low, high = low & (1 << bits) - 1, high & (1 << bits) - 1
    negative = division.signed and low >> bits - 1
    if high != ((1 << bits) - 1 if negative else 0):
        return division  # wider than the divisor, as C never divides
    if division.signed and low == 1 << bits - 1:
        return replace(division, of_smallest=True)
    return replace(division, divisor=0, inferred=True)
