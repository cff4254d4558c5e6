"""Whether an access ran on through accessible memory into an address, where nothing says from where."""

from __future__ import annotations

from pytracer.analyze.address_space.overrun import Run, run_beside
from pytracer.analyze.address_space.stack_bounds import ran_over
from pytracer.analyze.evidence.heap.heap import heap_damage
from pytracer.analyze.evidence.lifetime.ended_owner import ended_array
from pytracer.analyze.evidence.native.jumps import wild_jump
from pytracer.analyze.evidence.own_code.deregistered import deregistered_at_crash
from pytracer.analyze.view import ProcessView

_KERNELS = ("[vvar]", "[vvar_vclock]")
_NOBODYS = ("unmapped", "none", "image", "file-mapping", "heap", "stack")


def ran_on(view: ProcessView) -> Run | None:
    """The memory right beside the fault address that may be accessed; a pointer that is wrong seldom hits its edge.

    None where the address was something else: a storage, the end of the stack, the target of a jump.
    """
    place, crash, fault = view.place, view.crash, view.fault
    if place is None or crash is None or fault is None or fault.access == "execute" or place.kind not in _NOBODYS:
        return None
    if place.overrun is not None or place.formation is not None:
        return None
    if ran_over(view) or heap_damage(view) is not None or wild_jump(view) is not None:
        return None
    if deregistered_at_crash(view) is not None:  # the length was read out of freed memory
        return None
    if ended_array(view) is not None:  # its memory is gone, and something else ends where that began
        return None
    kernels = place.mapping if place.mapping is not None and place.mapping.path in _KERNELS else None
    if kernels is not None:  # it may be read, but for pages that this machine lacks
        beside = [item for item in crash.mappings if item.path not in _KERNELS]
        return run_beside(beside, kernels.start, fault.access)
    return run_beside(crash.mappings, place.addr, fault.access)
