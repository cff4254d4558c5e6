"""Machine code of NVIDIA's devices, as far as it answers one question: which addresses a memory instruction accessed.

Instructions of Volta and later have 16 bytes. NVIDIA documents neither their encoding nor its changes: the tables here
were established with nvdisasm 12.8 on code of ptxas 12.8 for sm_70 to sm_120, bit by bit, and tests compare them with
what it prints. Whatever is not in them gives no answer.

Common to all (bit 0 is the lowest of the first byte): 0-11 operation and form, 12-14 guarding predicate and 15 whether
it is negated, 16-23 destination, 24-31 base register of an address, 40-63 signed offset; 72 whether the address has 64
bits, 90 and 91 a uniform register beside it; 110-112 the barrier that a load releases, 116-121 barriers to wait for.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

INSTRUCTION_BYTES = 16
_PAIR = struct.Struct("<QQ")
NO_REGISTER, ALWAYS = 255, 7  # RZ, PT
_NO_BARRIER = 7
_READ, _WRITE, _UPDATE = "read", "write", "update"
_PLAIN, _ATOMIC, _COMPARE = (1, 1, 2, 2, 4, 8, 16), (4, 4, 8, 4, 4, 8, 8), (4, 4, 8)
_FLOATS = (4, 8, 16, 4, 8, 16, 0, 0, 0, 4, 8, 16, 4, 8, 16, 8)  # since sm_90; 0 is none
# Operation and form: what it does to memory, and the bytes of each of its types.
_OPERATIONS: dict[int, tuple[str, tuple[int, ...]]] = {
    **dict.fromkeys((0x980, 0x981, 0x381), (_READ, _PLAIN)),  # LD, LDG
    **dict.fromkeys((0x985, 0x986, 0x385, 0x386), (_WRITE, _PLAIN)),  # ST, STG
    **dict.fromkeys((0x98A, 0x98E, 0x9A8, 0x38A, 0x3A8), (_UPDATE, _ATOMIC)),  # ATOM, RED, ATOMG
    **dict.fromkeys((0x38B, 0x3A9), (_UPDATE, _COMPARE)),  # ATOM.CAS, ATOMG.CAS
    **dict.fromkeys((0x9A3, 0x9A6), (_UPDATE, _FLOATS)),  # ATOMG, REDG of floating-point numbers
}
_REDS = frozenset({0x98E, 0x9A6})
_UNIFORM_FORMS = frozenset({0x980, 0x981, 0x985, 0x986, 0x98A, 0x98E, 0x9A3, 0x9A6, 0x9A8})
_ALWAYS_WHOLE = frozenset({0x98A, 0x9A3, 0x9A8})  # with a descriptor; another meaning of bit 90
_LONG_OFFSET = frozenset({0x980, 0x385})  # 32 bits, if there is no uniform register
_BPT, _BPT_TRAP = 0x95C, 0x3
# The lowest 9 bits of operations that continue with the next instruction, and how many registers each writes from its
# destination on, at most. An operation that is not here may write any, or continue elsewhere.
_WRITES = {
    **dict.fromkeys((0x0B, 0x0C, 0x1C, 0x2A, 0x11D, 0x118, 0x14D, 0x185, 0x186, 0x187, 0x188, 0x18E, 0x1A6), 0),
    **dict.fromkeys((0x02, 0x07, 0x08, 0x09, 0x10, 0x11, 0x12, 0x13, 0x16, 0x17, 0x19, 0x1A, 0x1B), 1),
    **dict.fromkeys((0x20, 0x21, 0x23, 0x24, 0x27, 0x30, 0x31, 0x32, 0x35, 0x36, 0x3E, 0x40, 0x45, 0x48), 1),
    **dict.fromkeys((0x05, 0x25, 0x28, 0x29, 0x2B), 2),
    **dict.fromkeys((0x100, 0x105, 0x106, 0x108, 0x109, 0x110, 0x111, 0x112, 0x119), 2),
    **dict.fromkeys((0x180, 0x181, 0x182, 0x183, 0x184, 0x18A, 0x18B, 0x1A3, 0x1A8, 0x1A9), 4),
    **dict.fromkeys((0x37, 0x3C), 8),
}
# Operations on uniform registers: they write no others.
_UNIFORM_WRITES = {
    **dict.fromkeys((0x82, 0x87, 0x90, 0x91, 0x92, 0x96, 0x99, 0xA4, 0x1C2, 0x1C3), 1),
    **dict.fromkeys((0xA5, 0xB9), 2),
    0x8C: 0,
}
# Where results that are predicates are in the second half of an instruction; () for operations without one.
_PREDICATES: dict[int, tuple[int, ...]] = {
    **dict.fromkeys((0x02, 0x05, 0x07, 0x08, 0x13, 0x16, 0x19, 0x20, 0x21, 0x23, 0x24, 0x30, 0x31, 0x32, 0x35), ()),
    **dict.fromkeys((0x28, 0x29, 0x2B, 0x36, 0x37, 0x3C, 0x3E, 0x45, 0x11D, 0x118, 0x14D, 0x119), ()),
    **dict.fromkeys((0x106, 0x108, 0x110, 0x112, 0x182, 0x183, 0x184, 0x185, 0x186, 0x187, 0x188, 0x18E), ()),
    **dict.fromkeys((0x11, 0x12, 0x25, 0x27, 0x180, 0x181), (17,)),
    **dict.fromkeys((0x0B, 0x0C, 0x10, 0x2A), (17, 20)),
    **dict.fromkeys(_UNIFORM_WRITES, ()),
}
_BRA, _ANYWHERE, _CALLS = 0x147, (0x149, 0x14A, 0x14C), (0x143, 0x144, 0x150)  # BRX, JMP, JMX; CALL, CALL.REL, RET
_MOST_BETWEEN = 64 * INSTRUCTION_BYTES
_LONGEST_FUNCTION = 1 << 20


class Access(NamedTuple):
    """A memory instruction. Its address: registers `base` and the next one, plus `uniform` and its next, plus `offset`.

    `base_bits`: 32 if only `base` itself is added. The thread makes it if `predicate` is not `negated`.
    """

    kind: str
    nbytes: int
    base: int
    base_bits: int
    uniform: int | None
    offset: int
    predicate: int
    negated: bool
    barrier: int | None


class _Instruction(NamedTuple):
    at: int
    low: int
    high: int

    @property
    def operation(self) -> int:
        return self.low & 0x1FF

    def writes(self, register: int, uniform: bool) -> bool:
        """Whether it changes a register, or the one behind it; True for unknown operations."""
        plain, beside = _WRITES.get(self.operation), _UNIFORM_WRITES.get(self.operation)
        count = beside if uniform else plain
        if count is None:
            return (plain if uniform else beside) is None
        first = self.low >> 16 & (0x3F if uniform else 0xFF)
        return first <= register + 1 and register < first + count

    def writes_predicate(self, number: int) -> bool:
        places = _PREDICATES.get(self.operation)
        return places is None or any(self.high >> at & 7 == number for at in places)

    def waits_for(self, barrier: int) -> bool:
        return bool(self.high >> 52 + barrier & 1)

    def target(self, architecture: int) -> int:
        """Of BRA. Since sm_90 the distance counts instructions of 4 bytes, with its lowest 8 bits apart."""
        far = (self.high & 0x3FFFF) << 32 | self.low >> 32
        far -= 1 << 50 if far >> 49 else 0
        if architecture >= 90:
            far = (far >> 2 << 10) + (self.low >> 16 & 0xFF) * 4
        return self.at + INSTRUCTION_BYTES + far


def access_of(code: bytes, architecture: int) -> Access | None:
    """The memory access that an instruction makes; None if it is another one, or of an unknown form.

    Args:
        code: its 16 bytes.
        architecture: 90 for sm_90.
    """
    if len(code) < INSTRUCTION_BYTES or not 70 <= architecture < 130:
        return None
    _, low, high = _instruction(code, 0)
    operation = low & 0xFFF
    kind, widths = _OPERATIONS.get(operation, (None, ()))
    base = low >> 24 & 0xFF
    if kind is None or not high >> 8 & 1 or base == NO_REGISTER:  # no memory, not 64 bits wide, at a constant address
        return None
    atomic = kind == _UPDATE
    width = high >> 9 & (15 if atomic else 7)
    beside = operation in _UNIFORM_FORMS and bool(high >> 27 & 1)
    if width >= len(widths) or not widths[width] or (beside and architecture < 80):
        return None
    # Types were moved to other operations in sm_90, and to other bits in sm_100.
    if atomic and (architecture >= 100 or (architecture >= 90 and widths is _ATOMIC and width > 2)):
        return None
    if widths is _FLOATS and architecture < 90:
        return None
    described = bool(high >> (7 if atomic else 12) & 1)
    whole = not beside or bool(high >> 26 & 1) or (described and operation in _ALWAYS_WHOLE)
    if (whole and base % 2) or (described and not whole) or (operation in _ALWAYS_WHOLE and beside and not described):
        return None
    if beside and not described and architecture >= 100:  # there are more uniform registers
        return None
    if operation in _LONG_OFFSET and not beside:
        offset, bits = low >> 32, 32
    else:
        offset, bits = low >> 40, 24
    at = low >> 32 if kind == _READ else high
    barrier = high >> 46 & 7
    return Access(
        kind,
        widths[width],
        base,
        64 if whole else 32,
        at & 0x3F if beside and not described else None,
        offset - (1 << bits) if offset >> bits - 1 else offset,
        low >> 12 & 7,
        bool(low >> 15 & 1),
        None if kind == _WRITE or operation in _REDS or barrier == _NO_BARRIER else barrier,
    )


def still_valid(
    access: Access, code: bytes, start: int, stop: int, architecture: int, *, called: bool, divergent: bool
) -> bool:
    """Whether the registers that an access used are certain to have their values still when a warp stood at `stop`.

    All instructions between must be known, have no other successor than the next one, and change none of them. The warp
    has not come round again if a load's barrier held it, or no way leads back.

    Args:
        access: the instruction at `start`.
        code: the function's.
        start: the offset of the access.
        stop: that of the next instruction of the warp.
        architecture: 90 for sm_90.
        called: the function can be called again.
        divergent: other threads of the warp stood elsewhere: those at `stop` must not have jumped into the middle.
    """
    if not start < stop <= start + _MOST_BETWEEN or stop >= len(code) or len(code) > _LONGEST_FUNCTION:
        return False
    between = [_instruction(code, at) for at in range(start + INSTRUCTION_BYTES, stop, INSTRUCTION_BYTES)]
    # A load that failed writes its destination nevertheless, in which its own address may have been.
    for item in (_instruction(code, start), *between):
        if item.writes(access.base, uniform=False):
            return False
        if access.uniform is not None and item.writes(access.uniform, uniform=True):
            return False
        if item.operation not in _WRITES and item.operation not in _UNIFORM_WRITES:
            return False
    if divergent and any(start < target <= stop for target in _branches(code, architecture)):
        return False
    if access.barrier is not None and not any(item.waits_for(access.barrier) for item in between):
        return True
    rest = (_instruction(code, at) for at in range(start, len(code) - INSTRUCTION_BYTES + 1, INSTRUCTION_BYTES))
    return not any(_leads_back(item, stop, architecture, called) for item in rest)


def predicate_valid(access: Access, code: bytes, start: int, stop: int) -> bool:
    """The same of the guarding predicate, if its registers are valid."""
    between = (_instruction(code, at) for at in range(start, stop, INSTRUCTION_BYTES))
    return access.predicate == ALWAYS or not any(item.writes_predicate(access.predicate) for item in between)


def _branches(code: bytes, architecture: int) -> Iterator[int]:
    for at in range(0, len(code) - INSTRUCTION_BYTES + 1, INSTRUCTION_BYTES):
        item = _instruction(code, at)
        if item.operation == _BRA:
            yield item.target(architecture)


def _leads_back(item: _Instruction, stop: int, architecture: int, called: bool) -> bool:
    if item.operation == _BRA:
        return item.target(architecture) <= stop
    return item.operation in _ANYWHERE or (called and item.operation in _CALLS)


def is_trap(code: bytes) -> bool:
    """Whether an instruction is BPT.TRAP, which `__trap()` and assertions end in."""
    if len(code) < INSTRUCTION_BYTES:
        return False
    _, low, high = _instruction(code, 0)
    return low & 0xFFF == _BPT and high >> 20 & 7 == _BPT_TRAP


def _instruction(code: bytes, at: int) -> _Instruction:
    return _Instruction(at, *_PAIR.unpack_from(code, at))
