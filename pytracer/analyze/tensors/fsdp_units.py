"""FSDP's units from UNIT entries: the parameters of each, in order, and the position of an element."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from pytracer.analyze.tensors.scopes import UnitStep
from pytracer.decode.types.journal import Fact, Unit


class Spot(msgspec.Struct, frozen=True):
    """A parameter at an element, the offset of the element in it (or in a rank's shard of it), and the shard's rank."""

    parameter: str | None = None
    offset: int | None = None
    rank: int | None = None


def units(recorded: Iterable[Fact[Unit]]) -> list[Unit]:
    """The last state of every unit, in the order in which they were first noted."""
    last: dict[tuple[object, ...], Unit] = {}
    for fact in recorded:
        last[fact.data.module, fact.data.fqn, fact.data.world_size] = fact.data
    return list(last.values())


def units_of_step(known: Iterable[Unit], step: UnitStep) -> list[Unit]:
    """The units that a step may be about: several when several roots have a unit of that name."""
    return [unit for unit in known if unit.fqn == step.unit and step.ranks in (None, unit.world_size)]


def spot_in_full(unit: Unit, element: int) -> Spot:
    """The parameter at an element of the flat parameter, or of a gradient like it."""
    for item in unit.parameters:
        if item.offset <= element < item.offset + item.numel:
            return Spot(item.fqn, element - item.offset)
    return Spot()  # padding


def spot_in_shard(unit: Unit, element: int, rank: int) -> Spot:
    """The parameter at an element of `rank`'s shard. FSDP2's shards have all parameters side by side."""
    if unit.flat:
        return spot_in_full(unit, rank * unit.shard_numel + element)
    for item in unit.parameters:
        if element < item.shard_numel:
            return Spot(item.fqn, element, rank)
        element -= item.shard_numel
    return Spot(rank=rank)


def spot_in_shards(unit: Unit, element: int) -> Spot:
    """The parameter at an element of the shards of all ranks, one after the other."""
    if unit.flat:
        return spot_in_full(unit, element)
    if unit.shard_numel == 0:
        return Spot()
    return spot_in_shard(unit, element % unit.shard_numel, element // unit.shard_numel)
