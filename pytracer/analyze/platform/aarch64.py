"""AArch64: the operand of an instruction in memory, the syndrome of an exception, and which addresses there are.

Instructions are decoded by capstone, whose kinds of access are wrong for many of these (in 5.0 a store-release reads):
here the kind follows from the name.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import Protocol

from pytracer._patterns import Pattern
from pytracer.analyze.platform.instruction import Instruction, disassembler

_MASK = (1 << 64) - 1
# ESR_EL1, Arm ARM D24.2: the exception's class, and whether a data abort was a write; cache maintenance counts as one.
_CLASS_SHIFT, _CLASS_MASK = 26, 0x3F
_INSTRUCTION_ABORT, _DATA_ABORT = 0x20, 0x24  # from user mode
_WRITE, _CACHE_MAINTENANCE = 1 << 6, 1 << 8
# The upper byte is ignored if bit 55 is 0 (TBI, always on for processes of Linux). Page tables reach 52 bits at most.
_SELECTS_HALF = 1 << 55
_IGNORED = 0xFF << 56
_MOST_BITS = 52
_REGISTER_BYTES = {"b": 1, "h": 2, "s": 4, "w": 4, "d": 8, "x": 8, "q": 16}
_ALIASES = {"fp": "x29", "lr": "x30"}
_READS = Pattern(r"ld(?!add|clr|eor|set|smax|smin|umax|umin)")
_READ_WRITES = Pattern(r"((ld|st)(add|clr|eor|set|smax|smin|umax|umin)|swp|cas)")
_NARROW = {"b": 1, "h": 2}
# Instructions that not every processor has, by the name or the registers; capstone 5 does not know all of them.
_EXTENSIONS = (
    (
        Pattern(r"((ld|st)(add|clr|eor|set|smax|smin|umax|umin)|swp|cas)(a|l|al)?[bhp]?\b"),
        "LSE, the atomics of ARMv8.1",
    ),
    (Pattern(r"\w+ .*\b[zp]\d+[./]"), "SVE"),
    (Pattern(r"[us]dot\b"), "dot products of ARMv8.2"),
    (Pattern(r"bf(dot|mmla|mlalb|mlalt|cvt\w*)\b"), "BF16"),
)


class _Memory(Protocol):
    """capstone's Arm64OpMem: numbers of registers, 0 for none."""

    base: int
    index: int
    disp: int


class _Shift(Protocol):
    value: int


class _Operand(Protocol):
    """capstone's Arm64Op."""

    type: int
    mem: _Memory
    reg: int
    imm: int
    shift: _Shift
    ext: int


class _Decoded(Protocol):
    """capstone's CsInsn."""

    mnemonic: str
    op_str: str
    operands: list[_Operand]

    def reg_name(self, number: int) -> str | None:
        """The name of a register by its number."""


def untagged(addr: int) -> int:
    """The address without the byte that the processor ignores: tags of MTE, of HWASan, of a program's own."""
    return addr if addr & _SELECTS_HALF else addr & ~_IGNORED


def has_address(addr: int) -> bool:
    """Whether page tables can hold the address, of a process or of the kernel."""
    return untagged(addr) >> _MOST_BITS in (0, (1 << 64 - _MOST_BITS) - 1)


def abort_access(syndrome: int | None) -> str | None:
    """Read, write or execute, from the syndrome of an abort; None of another exception, or without one."""
    if syndrome is None:
        return None
    kind = syndrome >> _CLASS_SHIFT & _CLASS_MASK
    if kind == _INSTRUCTION_ABORT:
        return "execute"
    if kind != _DATA_ABORT or syndrome & _CACHE_MAINTENANCE:
        return None
    return "write" if syndrome & _WRITE else "read"


def extension_of(text: str) -> str | None:
    """The optional instruction set that an instruction belongs to."""
    return next((name for pattern, name in _EXTENSIONS if pattern.match(text)), None)


def decode_aarch64(code: bytes, registers: Mapping[str, int], pc: int) -> Instruction | None:
    """Decode the instruction at `pc`; None without capstone, code bytes or a valid instruction.

    Args:
        code: Machine code from `pc` on.
        registers: Values at the fault, by name: x0 to x30, sp.
        pc: Address of the instruction.
    """
    capstone = disassembler()
    if capstone is None or len(code) < 4:
        return None
    engine = capstone.Cs(capstone.CS_ARCH_ARM64, capstone.CS_MODE_ARM)
    engine.detail = True
    decoded: _Decoded | None = next(iter(engine.disasm(bytes(code[:4]), pc, 1)), None)
    if decoded is None:
        return None
    text = f"{decoded.mnemonic} {decoded.op_str}".strip()
    kinds = capstone.arm64
    memory = next((item for item in decoded.operands if item.type == kinds.ARM64_OP_MEM), None)
    access, size = _access(decoded.mnemonic), _size(decoded, kinds)
    if memory is not None:
        return _operand(text, access, size, decoded, memory, registers, kinds)
    if access == "read" and decoded.operands and decoded.operands[-1].type == kinds.ARM64_OP_IMM:  # a literal
        addr = decoded.operands[-1].imm & _MASK
        return Instruction(text, access, size, addr, "pc", pc, None, None, 1, addr - pc)
    if text.startswith("dc zva, "):
        base = _name(decoded, decoded.operands[-1].reg)
        value = _value(base, registers)
        return Instruction(
            text, "write", None, None if value is None else untagged(value), base, value, None, None, 1, 0
        )
    return Instruction(text, None, None, None, None, None, None, None, 1, 0)


def _operand(
    text: str,
    access: str | None,
    size: int | None,
    decoded: _Decoded,
    operand: _Operand,
    registers: Mapping[str, int],
    kinds: ModuleType,
) -> Instruction:
    after = "]," in text  # the base is changed after the access, which is at the base itself
    vectors = "mul vl" in text
    base = _name(decoded, operand.mem.base)
    index = None if after else _name(decoded, operand.mem.index)
    base_value = _value(base, registers)
    index_value = _extended(_value(index, registers), operand.ext, kinds) if index is not None else None
    scale = 1 << operand.shift.value if index is not None else 1
    displacement = 0 if after else operand.mem.disp
    addr = None
    if base_value is not None and (index is None or index_value is not None) and not vectors:
        addr = untagged((base_value + (index_value or 0) * scale + displacement) & _MASK)
    return Instruction(text, access, size, addr, base, base_value, index, index_value, scale, displacement)


def _name(decoded: _Decoded, number: int) -> str | None:
    name = decoded.reg_name(number) if number else None
    return _ALIASES.get(name, name) if name is not None else None


def _value(name: str | None, registers: Mapping[str, int]) -> int | None:
    if name in ("xzr", "wzr"):
        return 0
    if name is None or name in registers:
        return registers.get(name or "")
    value = registers.get(f"x{name[1:]}") if name[0] == "w" else None
    return value & 0xFFFF_FFFF if value is not None else None


def _extended(value: int | None, extension: int, kinds: ModuleType) -> int | None:
    """An index of 32 bits is extended with zeros or with its sign."""
    if value is None or extension != kinds.ARM64_EXT_SXTW:
        return value
    return (value | ~0xFFFF_FFFF) & _MASK if value >> 31 & 1 else value


def _access(mnemonic: str) -> str | None:
    """None where a fault may have been of either kind: an instruction that reads, computes and writes."""
    if _READ_WRITES.match(mnemonic):
        return None
    if _READS.match(mnemonic):
        return "read"
    return "write" if mnemonic.startswith("st") else None


def _size(decoded: _Decoded, kinds: ModuleType) -> int | None:
    """Bytes that are accessed; None of vectors in lists, and of SVE's."""
    registers = [_name(decoded, item.reg) or "?" for item in decoded.operands if item.type == kinds.ARM64_OP_REG]
    name = decoded.mnemonic
    if not registers or "{" in decoded.op_str or "z" in (item[0] for item in registers):
        return None
    exclusive = name.startswith(("stxr", "stxp", "stlxr", "stlxp"))  # the first register gets the result
    if exclusive:
        registers = registers[1:]
    if name in ("ldpsw", "ldrsw", "ldursw", "ldtrsw"):
        return 8 if name == "ldpsw" else 4
    if name[:3] in ("ldp", "stp") or name[:4] in ("ldnp", "stnp", "ldxp", "stxp") or name[:5] in ("ldaxp", "stlxp"):
        return 2 * _REGISTER_BYTES.get(registers[0][0], 0) or None
    if registers[0][0] in "wx" and name[-1] in _NARROW and name not in ("ldclrh", "ldclrb"):
        return _NARROW[name[-1]]
    return _REGISTER_BYTES.get(registers[0][0])
