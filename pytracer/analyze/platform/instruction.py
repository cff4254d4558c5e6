"""The faulting machine instruction: the memory that it accessed, and the registers that formed the address.

An address alone cannot distinguish a null pointer from a garbage one: torch 2.13 dies of a load at 0x331, which looks
like "null plus a small offset" although the base register holds 0x281. Decoding needs capstone (the optional extra
`disasm`), imported only here; without it the operands are unknown and the rules report that.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Protocol

import msgspec

from pytracer._text import hex_addr

PAGE_FAULT_TRAP = 14
_MASK = (1 << 64) - 1
_CLOSE_BYTES = 4096
_GENERAL = {"rax", "rbx", "rcx", "rdx", "rsi", "rdi", "rbp", "rsp"}
_GENERAL |= {f"r{number}" for number in range(8, 16)} | {f"x{number}" for number in range(31)}
_VECTORS = ("xmm", "ymm", "zmm")
_ERROR_WRITE = 1 << 1
_ERROR_EXECUTE = 1 << 4


class _Memory(Protocol):
    """capstone's X86OpMem: numbers of registers, 0 for none."""

    base: int
    index: int
    segment: int
    scale: int
    disp: int


class _Operand(Protocol):
    """capstone's X86Op."""

    type: int
    mem: _Memory
    size: int
    access: int


class _Decoded(Protocol):
    """capstone's CsInsn."""

    address: int
    size: int
    mnemonic: str
    op_str: str
    operands: Sequence[_Operand]

    def reg_name(self, number: int) -> str | None:
        """The name of a register by its number."""


class Instruction(msgspec.Struct, frozen=True):
    """One decoded instruction and its memory operand; register values are those at the fault.

    `addr` is the effective address, None when a needed register or a segment base is unknown. `size` is in bytes.
    `is_lane`: the index is one of several in a vector register, which is not recorded: it follows from the address.
    """

    text: str
    access: str | None
    size: int | None
    addr: int | None
    base: str | None
    base_value: int | None
    index: str | None
    index_value: int | None
    scale: int
    displacement: int
    is_lane: bool = False

    @property
    def words(self) -> str:
        """The instruction with the values of the registers that form the address."""
        index = None if self.is_lane else self.index_value
        values = [
            f"{name} = {hex_addr(value)}"
            for name, value in ((self.base, self.base_value), (self.index, index))
            if name is not None and value is not None
        ]
        return f"{self.text} ({', '.join(values)})" if values else self.text

    @property
    def expression(self) -> str | None:
        """How the registers form the address: `rdi + 0x18`, `rax + rcx*4 - 0x8`; None when that is not known."""
        terms = [self.base] if self.base is not None else []
        if self.index is not None:
            terms.append(f"{self.index}*{self.scale}" if self.scale != 1 else self.index)
        if not terms:
            return None
        displacement = self.displacement
        if self.index is None and self.base_value is not None and self.addr is not None:  # implicit operands
            displacement = signed(self.addr - self.base_value)
        return " + ".join(terms) + displacement_words(displacement)


def displacement_words(displacement: int) -> str:
    """` + 0x18`, ` - 0x8`, or nothing."""
    return f" {'-' if displacement < 0 else '+'} {abs(displacement):#x}" if displacement else ""


def signed(value: int) -> int:
    """A difference of addresses, modulo 2^64, as a signed number."""
    value &= _MASK
    return value - (1 << 64) if value >> 63 else value


def signed32(value: int) -> int:
    """The lower 32 bits of a number, as a signed number."""
    low = value & 0xFFFF_FFFF
    return low - (1 << 32) if low >> 31 else low


def address_expression(
    instruction: Instruction | None, registers: Mapping[str, int], addr: int
) -> tuple[str | None, str | None]:
    """How the address was formed, and how that is known: "exact" from the instruction, "guessed" from the registers.

    A guess is made only if a single general register is at most one page below the address.
    """
    if instruction is not None:
        return instruction.expression, "exact"
    close = {n: addr - v for n, v in registers.items() if n in _GENERAL and v and 0 <= addr - v < _CLOSE_BYTES}
    if len(close) != 1:
        return None, None
    name, displacement = next(iter(close.items()))
    return name + displacement_words(displacement), "guessed"


def disassembler() -> ModuleType | None:
    """The capstone module, or None when it is not installed."""
    try:
        return importlib.import_module("capstone")
    except ImportError:
        return None


def page_fault_access(trap: int | None, error_code: int | None) -> str | None:
    """Read, write or execute, from the error code of a page fault (Linux arch/x86/include/asm/trap_pf.h)."""
    if trap != PAGE_FAULT_TRAP or error_code is None:
        return None
    if error_code & _ERROR_EXECUTE:
        return "execute"
    return "write" if error_code & _ERROR_WRITE else "read"


def is_canonical(addr: int) -> bool:
    """Whether bits 63 to 47 of an x86-64 address agree, as the processor demands with four-level page tables."""
    return addr >> 47 in (0, (1 << 17) - 1)


def decode_instruction(
    code: bytes, registers: Mapping[str, int], pc: int, fault_addr: int | None
) -> Instruction | None:
    """Decode the instruction at `pc` of an x86-64 process; None without capstone, code bytes or a valid instruction.

    Args:
        code: Machine code from `pc` on.
        registers: Values at the fault, by lower-case x86-64 name.
        pc: Address of the instruction.
        fault_addr: What the kernel reported; among several memory operands the one that fits it is taken.
    """
    capstone = disassembler()
    if capstone is None or not code:
        return None
    engine = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
    engine.detail = True
    decoded: _Decoded | None = next(iter(engine.disasm(bytes(code), pc, 1)), None)
    if decoded is None:
        return None
    candidates = [
        _operand(capstone, decoded, operand, registers, fault_addr)
        for operand in decoded.operands
        if operand.type == capstone.x86.X86_OP_MEM and decoded.mnemonic not in ("lea", "nop")
    ]
    text = f"{decoded.mnemonic} {decoded.op_str}".strip()
    if not candidates:
        return Instruction(text, *_implicit(decoded.mnemonic, registers), None, None, 1, 0)
    return min(candidates, key=lambda item: _misfit(item, fault_addr))


def _misfit(item: Instruction, fault_addr: int | None) -> int:
    if item.addr is None or not fault_addr:
        return 0 if item.addr is None or is_canonical(item.addr) else -1
    return abs(item.addr - fault_addr)


def _operand(
    capstone: ModuleType, decoded: _Decoded, operand: _Operand, registers: Mapping[str, int], fault_addr: int | None
) -> Instruction:
    memory = operand.mem
    base = decoded.reg_name(memory.base) if memory.base else None
    index = decoded.reg_name(memory.index) if memory.index else None
    base_value = _value(base, registers, decoded)
    index_value = _value(index, registers, decoded)
    lane = _lane(memory, index, base_value, fault_addr)
    if index_value is None:
        index_value = lane
    known = (base is None or base_value is not None) and (index is None or index_value is not None)
    segment = decoded.reg_name(memory.segment) if memory.segment else None
    addr = None
    if known and segment not in ("fs", "gs"):
        addr = ((base_value or 0) + (index_value or 0) * memory.scale + memory.disp) & _MASK
    access = "write" if operand.access & capstone.CS_AC_WRITE and not operand.access & capstone.CS_AC_READ else "read"
    text = f"{decoded.mnemonic} {decoded.op_str}".strip()
    return Instruction(
        text,
        access,
        operand.size or None,
        addr,
        base,
        base_value,
        index,
        index_value,
        memory.scale,
        memory.disp,
        is_lane=lane is not None,
    )


def _lane(memory: _Memory, index: str | None, base_value: int | None, fault_addr: int | None) -> int | None:
    """Of a gather or scatter: the one index of its vector with which the address is what the kernel reported.

    That is the address of one element (Intel SDM, VGATHERDPS). None where it is no whole number of elements away, as
    of one that lies across two pages.
    """
    if index is None or not index.startswith(_VECTORS) or memory.segment or not base_value or not fault_addr:
        return None
    number, rest = divmod(signed(fault_addr - base_value - memory.disp), memory.scale)
    return number & _MASK if rest == 0 else None


def _value(name: str | None, registers: Mapping[str, int], decoded: _Decoded) -> int | None:
    if name is None:
        return None
    if name == "rip":
        return decoded.address + decoded.size
    if name in registers:
        return registers[name]
    wide = {"e": "r"}.get(name[0])
    if wide and (value := registers.get(wide + name[1:])) is not None:
        return value & 0xFFFF_FFFF
    return None


def _implicit(
    mnemonic: str, registers: Mapping[str, int]
) -> tuple[str | None, int | None, int | None, str | None, int | None]:
    """Access, size, address, base and its value of instructions that use the stack without saying so."""
    sp = registers.get("rsp")
    if sp is not None and mnemonic in ("push", "call"):
        return "write", 8, (sp - 8) & _MASK, "rsp", sp
    if sp is not None and mnemonic in ("pop", "ret"):
        return "read", 8, sp, "rsp", sp
    return None, None, None, None, None
