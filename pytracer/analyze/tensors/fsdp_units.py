"""FSDP's units, as UNIT entries tell them: the parameters of each, in order, and where in it an element lies."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pytracer.analyze.tensors.journal import number_in, objects_in
from pytracer.analyze.tensors.scopes import UnitStep
from pytracer.decode.types.snapshot import Fact, Snapshot


@dataclass(frozen=True)
class Parameter:
    """A parameter of a unit; sizes and `offset`, its place in the flat parameter, in elements."""

    fqn: str
    numel: int
    shard_numel: int
    offset: int
    addr: int
    itemsize: int


@dataclass(frozen=True)
class Unit:
    """One unit. `shard_numel` is the size of each rank's shard of all its parameters together, in elements."""

    module: str
    fqn: str
    wrapper: str
    flat: bool
    world_size: int
    shard_rank: int
    shard_numel: int
    shard_addr: int
    shard_itemsize: int
    replicas: int
    parameters: tuple[Parameter, ...]


@dataclass(frozen=True)
class Spot:
    """A parameter at an element, how many elements into it (or into that rank's shard of it), and whose shard it is."""

    parameter: str | None = None
    offset: int | None = None
    rank: int | None = None


def unit_of(fact: Fact) -> Unit:
    """A UNIT entry."""
    data = fact.data
    items = [
        Parameter(
            fqn=str(item.get("fqn")),
            numel=number_in(item, "numel"),
            shard_numel=number_in(item, "shard_numel"),
            offset=number_in(item, "offset"),
            addr=number_in(item, "addr"),
            itemsize=number_in(item, "itemsize"),
        )
        for item in objects_in(data, "parameters")
    ]
    flat = data.get("flat") is True
    shard = data.get("shard") if isinstance(data.get("shard"), dict) else {}
    return Unit(
        module=str(data.get("module") or "?"),
        fqn=str(data.get("unit") or ""),
        wrapper=str(data.get("wrapper") or "?"),
        flat=flat,
        world_size=number_in(data, "world_size"),
        shard_rank=number_in(data, "shard_rank"),
        shard_numel=number_in(shard, "numel") if flat else sum(item.shard_numel for item in items),
        shard_addr=number_in(shard, "addr"),
        shard_itemsize=number_in(shard, "itemsize"),
        replicas=number_in(data, "replicas"),
        parameters=tuple(items),
    )


def units(snapshot: Snapshot) -> list[Unit]:
    """The last state of every unit, in the order in which they were first noted."""
    last: dict[tuple[object, ...], Unit] = {}
    for fact in snapshot.facts:
        if fact.kind == "UNIT" and isinstance(fact.data, dict):
            unit = unit_of(fact)
            last[unit.module, unit.fqn, unit.world_size] = unit
    return list(last.values())


def units_of_step(known: Iterable[Unit], step: UnitStep) -> list[Unit]:
    """The units that a step may be about: several when several roots have a unit of that name."""
    return [unit for unit in known if unit.fqn == step.unit and step.ranks in (None, unit.world_size)]


def spot_in_full(unit: Unit, element: int) -> Spot:
    """Where an element of the flat parameter, or of a gradient like it, lies."""
    for item in unit.parameters:
        if item.offset <= element < item.offset + item.numel:
            return Spot(item.fqn, element - item.offset)
    return Spot()  # padding


def spot_in_shard(unit: Unit, element: int, rank: int) -> Spot:
    """Where an element of `rank`'s shard lies. FSDP2's shards have all parameters side by side."""
    if unit.flat:
        return spot_in_full(unit, rank * unit.shard_numel + element)
    for item in unit.parameters:
        if element < item.shard_numel:
            return Spot(item.fqn, element, rank)
        element -= item.shard_numel
    return Spot(rank=rank)


def spot_in_shards(unit: Unit, element: int) -> Spot:
    """Where an element lies in the shards of all ranks, one after the other."""
    if unit.flat:
        return spot_in_full(unit, element)
    if unit.shard_numel == 0:
        return Spot()
    return spot_in_shard(unit, element % unit.shard_numel, element // unit.shard_numel)
