"""FSDP: what a unit used a storage for, and whether the unit was sharded or unsharded at the end.

Each piece of evidence - an entry, an operator, a collective - began an epoch, so it applies to one allocation lifetime
of the storage only: FSDP frees and allocates its buffers in every step, and the allocator reuses addresses.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property

from pytracer.analyze.address_space.address_info import UnitLife
from pytracer.analyze.tensors.comm_hooks import CalledTensor
from pytracer.analyze.tensors.fsdp_units import (
    Spot,
    spot_in_full,
    spot_in_shard,
    spot_in_shards,
    units,
    units_of_step,
)
from pytracer.analyze.tensors.journal import ByAddress, Lives, lived_at
from pytracer.analyze.tensors.scopes import UnitStep, unit_step
from pytracer.decode.types.journal import Fact, Unit, UnitParameter
from pytracer.decode.types.snapshot import Collective, ScopedTensor, Snapshot, Storage

_ROLES = {"unsharded_parameter": "unsharded-parameter", "unsharded_gradient": "unsharded-gradient"}
_NO_UNIT = UnitStep("", "", None)
_Key = tuple[str, str, int]  # module, name and size of the group
_Unsharding = tuple[UnitStep, int, int]  # with address and epoch


class FsdpUses:
    """What the FSDP units of one process used its storages for."""

    def __init__(self, snapshot: Snapshot, lives: Lives, tensors: ByAddress[CalledTensor]) -> None:
        self._snapshot, self._lives, self._called = snapshot, lives, tensors
        self._units = units(snapshot.recorded(Unit))
        self._scoped = ByAddress((item.addr, item) for item in snapshot.scoped_tensors)
        self._shards = ByAddress(_shards(snapshot.recorded(Unit)))
        scoped = bool(snapshot.scoped_tensors) or any(unit_step(item.scope) for item in snapshot.collectives)
        self._is_used = bool(self._units) or scoped

    def of_storage(self, storage: Storage, addr: int) -> UnitLife | None:
        """What an FSDP unit used a storage for; the latest use, parameters before buffers."""
        if not self._is_used:
            return None
        return self._tensor_of(storage, addr) or self._shard_of(storage, addr) or self._buffer_of(storage, addr)

    def of_buffer(self, item: Collective, *, output: bool) -> UnitLife | None:
        """What a collective's input or output was for FSDP."""
        return self._use(item, output=output, addr=None)

    def states(self) -> list[tuple[Unit, str | None]]:
        """Every unit, and "sharded" or "unsharded": None if it was never seen unsharded, or is unknown."""
        return [(unit, self._state(unit)) for unit in self._units]

    def _tensor_of(self, storage: Storage, addr: int) -> UnitLife | None:
        for item in reversed(self._scoped.within(storage)):
            if lived_at(storage, item.epoch):
                return self._life_of_tensor(item, addr)
        return None

    def _life_of_tensor(self, item: ScopedTensor, addr: int) -> UnitLife:
        step = unit_step(item.scope) or _NO_UNIT
        candidates = units_of_step(self._units, step)
        unit = candidates[0] if candidates else None
        parameter = None
        if unit is not None and item.count == len(unit.parameters):  # else only some have gradients, unknown which
            parameter = unit.parameters[item.index].fqn
        offset = addr - item.addr
        return UnitLife(
            module=unit.module if unit and len(candidates) == 1 else None,
            unit=step.unit,
            wrapper=unit.wrapper if unit else None,
            what=_ROLES[item.role],
            nbytes=item.nbytes,
            offset_bytes=offset,
            parameters=_names(unit),
            parameter=parameter,
            parameter_offset_bytes=offset if parameter else None,
            state=self._state(unit) if unit else None,
        )

    def _shard_of(self, storage: Storage, addr: int) -> UnitLife | None:
        for fact, item in reversed(self._shards.within(storage)):
            if not self._lives.include(storage, fact.epoch):
                continue
            unit = fact.data
            if item is None:
                element, inside = divmod(addr - unit.shard_addr, max(unit.shard_itemsize, 1))
                spot = spot_in_shard(unit, element, unit.shard_rank)
                return self._shard_life(
                    unit, "local-flat-shard", unit.shard_addr, unit.shard_itemsize, addr, spot, inside
                )
            element, inside = divmod(addr - item.addr, max(item.itemsize, 1))
            spot = Spot(item.fqn, element, unit.shard_rank)
            return self._shard_life(unit, "local-shard", item.addr, item.itemsize, addr, spot, inside)
        return None

    def _shard_life(
        self, unit: Unit, what: str, base: int, itemsize: int, addr: int, spot: Spot, inside: int
    ) -> UnitLife:
        own = next((item.shard_numel for item in unit.parameters if item.fqn == spot.parameter), 0)
        return UnitLife(
            module=unit.module,
            unit=unit.fqn,
            wrapper=unit.wrapper,
            what=what,
            nbytes=(unit.shard_numel if unit.flat else own) * itemsize,
            offset_bytes=addr - base,
            parameters=_names(unit),
            parameter=spot.parameter,
            parameter_offset_bytes=spot.offset * itemsize + inside if spot.offset is not None else None,
            shard_of_rank=unit.shard_rank,
            state=self._state(unit),
        )

    def _buffer_of(self, storage: Storage, addr: int) -> UnitLife | None:
        for item, is_output in reversed(self._called.within(storage)):
            if item.epoch is not None and lived_at(storage, item.epoch):
                life = self._use(item, output=is_output, addr=addr)
                if life is not None and life.what != "all-reduce-buffer":  # HSDP reduces a reduce-scatter's output
                    return life
        return None

    def _use(self, item: Collective, *, output: bool, addr: int | None) -> UnitLife | None:
        step = unit_step(item.scope)
        start = item.output_addr if output else item.buffer_addr
        if step is None or start is None or not item.numel or not item.nbytes:
            return None
        candidates = units_of_step(self._units, step)
        fitting = [unit for unit in candidates if _fits(unit, item)]
        unit = fitting[0] if fitting else candidates[0] if candidates else None
        what = _what(item, unit, output=output)
        if what is None:
            return None
        itemsize = item.nbytes // item.numel
        offset = addr - start if addr is not None else 0
        spot = _spot(fitting[0], what, offset // itemsize) if fitting and addr is not None else Spot()
        return UnitLife(
            module=unit.module if unit and len(candidates) == 1 else None,
            unit=step.unit,
            wrapper=unit.wrapper if unit else None,
            what=what,
            nbytes=(item.output_nbytes if output else item.nbytes) or 0,
            offset_bytes=offset,
            parameters=_names(unit),
            parameter=spot.parameter,
            parameter_offset_bytes=spot.offset * itemsize + offset % itemsize if spot.offset is not None else None,
            shard_of_rank=spot.rank,
            state=self._state(unit) if unit else None,
        )

    def _state(self, unit: Unit) -> str | None:
        """By the storages of the last unsharded parameters that were seen: FSDP resizes them to zero when it shards."""
        if self._snapshot.light or not self._snapshot.storages:
            return None
        found = self._last_unsharded.get(_key(unit)) if unit in self._units else None
        if found is None:
            return None
        addr, epoch = found
        hits = self._snapshot.crash.hits if self._snapshot.crash else ()
        live = any(
            item.state == "live" and _holds(item, addr) and lived_at(item, epoch)
            for item in (*(hit.storage for hit in hits), *self._snapshot.storages.around(addr))
        )
        return "unsharded" if live else "sharded"

    @cached_property
    def _last_unsharded(self) -> dict[_Key, tuple[int, int] | None]:
        """Address and epoch by unit; None if another root has a unit of that name: the owner is unknown."""
        found: dict[_Key, tuple[int, int] | None] = {}
        for is_flat, steps in ((True, self._gathered()), (False, self._unsharded())):
            missing = {_key(unit) for unit in self._units if unit.flat == is_flat}
            while missing and (seen := next(steps, None)) is not None:
                step, addr, epoch = seen
                owners = units_of_step(self._units, step)
                for key in missing.intersection(map(_key, owners)):
                    found[key] = (addr, epoch) if len(owners) == 1 else None
                    missing.remove(key)
        return found

    def _gathered(self) -> Iterator[_Unsharding]:
        """All-gathers into flat parameters, the latest first."""
        for item in reversed(self._snapshot.collectives):
            step = unit_step(item.scope) if item.op.startswith("all_gather") else None
            if step is not None and item.output_addr and item.epoch:
                yield step, item.output_addr, item.epoch

    def _unsharded(self) -> Iterator[_Unsharding]:
        """Parameters as FSDP made them, the latest first."""
        for tensor in reversed(self._snapshot.scoped_tensors):
            step = unit_step(tensor.scope) if tensor.role == "unsharded_parameter" else None
            if step is not None:
                yield step, tensor.addr, tensor.epoch


def _key(unit: Unit) -> _Key:
    return unit.module, unit.fqn, unit.world_size


def _shards(recorded: Iterable[Fact[Unit]]) -> Iterator[tuple[int, tuple[Fact[Unit], UnitParameter | None]]]:
    """The local shards of units: the flat one, or one for each parameter, of which the first in a storage counts."""
    for fact in recorded:
        unit = fact.data
        if unit.flat:
            yield unit.shard_addr, (fact, None)
        else:
            yield from ((item.addr, (fact, item)) for item in reversed(unit.parameters) if item.addr)


def _holds(storage: Storage, addr: int) -> bool:
    return storage.base <= addr < storage.base + max(storage.nbytes, 1)


def _fits(unit: Unit, item: Collective) -> bool:
    """All of its parameters take part: a reduction leaves out those without a gradient, and their places move."""
    whole = item.numel if item.op.startswith("reduce_scatter") else item.output_numel or item.numel
    shard = item.output_numel if item.op.startswith("reduce_scatter") else item.numel
    return unit.shard_numel == shard and (item.op == "all_reduce" or whole == shard * unit.world_size)


def _what(item: Collective, unit: Unit | None, *, output: bool) -> str | None:
    if item.op.startswith("all_gather"):
        if unit is not None and unit.flat and output:
            return "unsharded-flat-parameter"
        inside = item.storage_addr is not None and item.storage_addr == item.output_storage_addr
        return "all-gather-output" if output or inside else "all-gather-input"  # FSDP2 gathers in place
    if item.op.startswith("reduce_scatter"):
        return "reduce-scatter-output" if output else "reduce-scatter-input"
    return "all-reduce-buffer" if item.op == "all_reduce" and not output else None


def _spot(unit: Unit, what: str, element: int) -> Spot:
    if what == "unsharded-flat-parameter":
        return spot_in_full(unit, element)
    if what in ("all-gather-output", "reduce-scatter-input"):
        return spot_in_shards(unit, element)
    spot = spot_in_shard(unit, element, unit.shard_rank)
    return Spot(spot.parameter, spot.offset, unit.shard_rank)


def _names(unit: Unit | None) -> tuple[str, ...]:
    return tuple(item.fqn for item in unit.parameters) if unit else ()
