"""FSDP's part in a fault, as text for findings."""

from __future__ import annotations

from pytracer.analyze.address_space.address_info import UnitLife
from pytracer.analyze.naming import place_words
from pytracer.analyze.view import ProcessView


def unit_words(view: ProcessView) -> str | None:
    """What the unit used the storage for, and the parameter at the offset."""
    unit = _unit(view)
    if unit is None:
        return None
    here = ""
    if unit.parameter and unit.parameter not in unit.name:
        whose = f" of rank {unit.shard_of_rank}'s shard" if unit.shard_of_rank is not None else ""
        part = "the gradient of " if unit.what.startswith("reduce-scatter") else ""
        here = f"; at that offset lay {part}{unit.parameter}, byte {unit.parameter_offset_bytes}{whose}"
    return f"that storage was {unit.name} ({unit.wrapper or 'FSDP'}){here}"


def sharded_words(view: ProcessView) -> str | None:
    """That the parameters are sharded now, so that their unsharded storage has no memory."""
    unit = _unit(view)
    if unit is None or not _gone(view, unit):
        return None
    freed = view.storage.freed if view.storage else None
    place = (freed.python or freed.caller) if freed else None
    where = f" at {place_words(place)}" if place else ""
    what = f"parameter {unit.parameter}" if unit.parameter else "the flat parameter"
    now = "is sharded now" if unit.state == "sharded" else "was sharded meanwhile"
    return f"{what} of {unit.unit_words} {now}: that unsharded storage was resized to zero{where}"


def released_by_sharding(view: ProcessView) -> str | None:
    """For `freed memory: ..., which ...`."""
    unit = _unit(view)
    return f"FSDP released when it sharded {unit.unit_words} again" if unit and _gone(view, unit) else None


def sharding_advice(view: ProcessView) -> str | None:
    """How to use a parameter whose unit is sharded."""
    unit = _unit(view)
    if unit is None or not _gone(view, unit):
        return None
    how = "between unshard() and reshard()" if unit.wrapper == "fully_shard" else "below FSDP.summon_full_params()"
    return (
        "used an address from an earlier pass. Unsharded parameters have memory only while their unit is unsharded, "
        f"and other memory each time: take the address again in the forward or backward that uses it, or {how}."
    )


def _unit(view: ProcessView) -> UnitLife | None:
    return view.place.unit if view.place else None


def _gone(view: ProcessView, unit: UnitLife) -> bool:
    freed = view.place is not None and view.place.kind == "freed-storage"
    return freed and unit.what in ("unsharded-parameter", "unsharded-flat-parameter")
