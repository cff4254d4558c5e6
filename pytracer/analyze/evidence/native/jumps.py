"""Did the processor go where no code is, and how did it get there: by a call or by a return?

A return leaves what it popped just below the stack pointer, a call leaves its return address at the stack pointer. For
a non-canonical target the processor refuses at the branch itself, before it is taken. On aarch64 calls and returns go
by the link register, and every branch is taken.
"""

from __future__ import annotations

import msgspec

from pytracer.analyze.evidence.native.native_stack import image_at, memory_word, own_frames
from pytracer.analyze.platform.instruction import Instruction, is_canonical
from pytracer.analyze.platform.signals import SI_KERNEL, SIGBUS, SIGSEGV
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import Crash, Mapping

POINTER_BYTES = 8
_RETURNS = (b"\xc3", b"\xc2")
_REPEAT = b"\xf3"  # "rep ret" of older compilers


class Jump(msgspec.Struct, frozen=True):
    """`how` is "return", "call" or None when it is not known; `mapping` is the data that was jumped into.

    `refused`: the processor did not take the branch, so that it is at the program counter.
    """

    how: str | None
    target: int | None
    mapping: Mapping | None = None
    refused: bool = False


def wild_jump(view: ProcessView) -> Jump | None:
    """The jump to no code that a process died of; None when it died of something else."""
    crash, place = view.crash, view.place
    if crash is None or place is None or not view.is_fault or crash.signal not in (SIGSEGV, SIGBUS):
        return None
    if crash.code == SI_KERNEL and crash.fault_addr == 0:
        return refused_branch(view.process.snapshot.arch, crash, view.instruction)
    executes = view.fault is not None and view.fault.access == "execute"
    if not executes or (place.mapping is not None and "x" in place.mapping.permissions):
        return None
    return Jump(_how(view, crash), place.addr, place.mapping)


def _how(view: ProcessView, crash: Crash) -> str | None:
    if view.process.snapshot.arch == "aarch64":
        return _how_by_link(crash)
    popped, pushed = memory_word(crash, crash.sp - POINTER_BYTES), memory_word(crash, crash.sp)
    called = pushed is not None and image_at(crash, pushed) is not None
    if popped == crash.pc and not (called and crash.pc == 0):  # zeros lie about below any stack pointer
        return "return"
    if pushed is not None:
        return "call" if called else None
    callers = own_frames(view)[1:2]
    if not callers or crash.pc == 0:
        return None
    # The unwinder pops a wild program counter; where no code lies at the stack pointer it can only scan on.
    return "return" if callers[0].found == "scanned" else "call"


def _how_by_link(crash: Crash) -> str | None:
    """A call leaves its return address in the link register; a return goes to what that holds."""
    link = crash.registers.get("x30")
    if link == crash.pc:
        return "return"
    return "call" if link is not None and image_at(crash, link) is not None else None


def refused_branch(arch: str, crash: Crash, instruction: Instruction | None) -> Jump | None:
    """The branch at the program counter when the processor refused (SI_KERNEL, address 0) to take it."""
    if not arch.startswith("x86"):
        return None
    if crash.code_bytes.removeprefix(_REPEAT)[:1] in _RETURNS:
        return Jump("return", memory_word(crash, crash.sp), refused=True)
    if instruction is None:
        return None
    name, _, operand = instruction.text.partition(" ")
    if name not in ("call", "jmp"):
        return None
    registers = {key.lower(): value for key, value in crash.registers.items()}
    target = registers.get(operand.strip())
    if target is not None:
        return None if is_canonical(target) else Jump("call", target, refused=True)
    if "[" not in operand or instruction.addr is None or not is_canonical(instruction.addr):
        return None  # the pointer to the pointer was garbage already: an ordinary wild access
    return Jump("call", memory_word(crash, instruction.addr), refused=True)
