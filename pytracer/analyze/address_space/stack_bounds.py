"""Did the thread overflow its own stack?

The guard page alone does not prove it: a wild pointer may fall next to a stack by chance. A stack overflows with its
stack pointer, so the access is at the stack pointer, and that is at the end of the stack.
"""

from __future__ import annotations

from pytracer.analyze.platform.signals import SIGSEGV
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import Crash

PAGE_BYTES = 4096
BELOW_SP_BYTES = PAGE_BYTES  # a call pushes 8 bytes, a leaf function uses 128 below the stack pointer
GUARD_BYTES = 64 * 1024
LARGEST_FRAME_BYTES = 256 << 20


def stack_bounds(view: ProcessView) -> tuple[int, int] | None:
    """Lowest address and end of the crashed thread's stack; of the main thread's as far as it had grown, if need be."""
    crash = view.crash
    if crash is None or crash.stack is not None:
        return crash.stack if crash else None
    own = [item for item in crash.mappings if item.path == "[stack]" and crash.tid == view.process.snapshot.pid]
    return (own[0].start, own[0].end) if own else None


def ran_over(view: ProcessView) -> bool:
    """Whether the fault is this thread's stack overflow."""
    crash, place = view.crash, view.place
    bounds = stack_bounds(view)
    if crash is None or place is None or bounds is None or crash.signal != SIGSEGV or crash.code <= 0:
        return False
    low = bounds[0]
    if place.addr < crash.sp - BELOW_SP_BYTES:
        return False
    if place.addr >= low:  # the main thread's stack grows on demand, and the kernel may refuse that before its limit
        return place.kind == "stack-guard"
    if place.kind == "stack-guard":
        return crash.sp < low + PAGE_BYTES
    # One frame larger than the guard: the stack pointer itself is far below the stack, in unrelated memory.
    if not low - LARGEST_FRAME_BYTES <= crash.sp < low:
        return False
    return place.kind in ("unmapped", "none") or (_is_closed(crash, place.addr) and _is_closed(crash, crash.sp))


def _is_closed(crash: Crash, addr: int) -> bool:
    """Whether an address lies in memory that is reserved and inaccessible, as most of malloc()'s in threads is.

    No stack of the program's own making does: a coroutine's can be written.
    """
    return any(item.start <= addr < item.end and item.permissions.startswith("---") for item in crash.mappings)


def beside_stack(view: ProcessView) -> bool:
    """Whether the address is below this thread's stack although the stack had room: a wild pointer, by chance."""
    return view.place is not None and view.place.kind == "stack-guard" and not ran_over(view)


def is_proven(view: ProcessView) -> bool:
    """Whether address and stack pointer are both at the recorded end of the stack."""
    crash, place = view.crash, view.place
    if crash is None or place is None or crash.stack is None:
        return False
    low = crash.stack[0]
    return crash.sp < low + PAGE_BYTES and low - GUARD_BYTES <= place.addr < low + PAGE_BYTES
