"""FSDP's part in a fault, as text for findings."""

from __future__ import annotations

from pytracer.analyze.address_space.address_info import UnitLife
from pytracer.analyze.address_space.guard_pool import FOUND
from pytracer.analyze.naming import place_words
from pytracer.analyze.view import ProcessView
from pytracer.report.job import Evidence

_RESHARDED = ("unsharded-parameter", "unsharded-flat-parameter", "all-gather-output")  # what reshard releases
_LIVES = 64  # of one piece of memory


def unit_evidence(view: ProcessView) -> Evidence | None:
    """What the unit used the storage for, and the parameter at the offset."""
    unit = _unit(view)
    if unit is None:
        return None
    here = ""
    if unit.parameter and not unit.is_of_one:
        whose = f" of rank {unit.shard_of_rank}'s shard" if unit.shard_of_rank is not None else ""
        part = "the gradient of " if unit.what.startswith("reduce-scatter") else ""
        here = f"; at that offset lay {part}{unit.parameter}, byte {unit.parameter_offset_bytes}{whose}"
    return Evidence(
        "fsdp-unit",
        f"that storage was {unit.name} ({unit.wrapper or 'FSDP'}){here}",
        module=unit.unit,
        nbytes=unit.nbytes,
        offset_bytes=unit.offset_bytes,
        rank=unit.shard_of_rank,
        state=unit.state,
        tensor=unit.parameter,
        tensors=list(unit.parameters),
    )


def sharded_unit(view: ProcessView) -> UnitLife | None:
    """The unit whose unsharded parameters lay in the freed storage: they have no memory while it is sharded."""
    unit = _unit(view)
    freed = view.place is not None and view.place.kind == "freed-storage"
    unsharded = unit is not None and unit.what in ("unsharded-parameter", "unsharded-flat-parameter")
    return unit if freed and unsharded else None


def sharded_evidence(view: ProcessView, unit: UnitLife) -> Evidence:
    """That the parameters are sharded now, so that their unsharded storage has no memory."""
    freed = view.storage.freed if view.storage else None
    place = (freed.python or freed.caller) if freed else None
    where = f" at {place_words(place)}" if place else ""
    what = f"parameter {unit.parameter}" if unit.parameter else "the flat parameter"
    now = "is sharded now" if unit.state == "sharded" else "was sharded meanwhile"
    return Evidence(
        "release",
        f"{what} of {unit.unit_words} {now}: that unsharded storage was resized to zero{where}",
        module=unit.unit,
        tensor=unit.parameter,
        state=unit.state,
        python=place,
    )


def earlier_unit(view: ProcessView) -> UnitLife | None:
    """What FSDP released from this memory before its last owner: an unsharded parameter or a buffer of another use.

    None in guard mode's memory, which belongs to one storage alone.
    """
    place = view.place
    if place is None or place.storage is None or place.kind != "freed-storage" or place.found == FOUND:
        return None
    last = place.unit.name if place.unit is not None else None
    lives = view.space.neighbors.before(place.addr, place.storage)[:_LIVES]
    units = (view.space.uses.fsdp.of_storage(life, place.addr) for life in lives)
    return next((unit for unit in units if unit is not None and unit.what in _RESHARDED and unit.name != last), None)


def earlier_advice(view: ProcessView) -> str:
    """What to do if the address is older than the last owner of the memory; about a buffer that was the last one."""
    earlier, last = earlier_unit(view), _unit(view)
    if earlier is not None:
        return (
            f" If the address is older, it is that of the {earlier.name}, which FSDP released at reshard "
            "(reshard_after_forward): take it again in each forward and backward."
        )
    if last is not None and last.what == "all-gather-output":
        return f" FSDP releases the {last.name} at reshard at the latest (reshard_after_forward)."
    return ""


def sharding_advice(unit: UnitLife) -> str:
    """How to use a parameter whose unit is sharded."""
    how = "between unshard() and reshard()" if unit.wrapper == "fully_shard" else "below FSDP.summon_full_params()"
    return (
        "used an address from an earlier pass. Unsharded parameters have memory until reshard (reshard_after_forward), "
        f"and other memory each time: take the address again in the forward or backward that uses it, or {how}."
    )


def _unit(view: ProcessView) -> UnitLife | None:
    return view.place.unit if view.place else None
