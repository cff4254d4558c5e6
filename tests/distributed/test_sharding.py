"""A real fault in a storage of FSDP's or of a DTensor: the report names unit, parameter, offset and state."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conditions import needs_core, needs_native
from tests.distributed.faults import Faulted, faulted

pytestmark = [needs_core, needs_native]

LIVE = (
    "unsharded", "flat_unsharded", "local_shard", "gathered", "reduced", "by_columns", "flat_shard", "flat_original",
)  # fmt: skip
OFTEN = ("flat_unsharded", "unsharded")


def _is_told(done: Faulted) -> None:
    truth, fault, storage = done.truth, done.fault, done.fault.storage
    assert storage is not None
    assert fault.fsdp is not None
    assert (fault.addr, fault.kind) == (truth["addr"], truth["kind"])
    assert (storage.base, storage.offset_bytes) == (truth["base"], truth["offset"])
    assert {name: getattr(fault.fsdp, name) for name in truth["fsdp"]} == truth["fsdp"]
    assert done.verdict.summary is not None
    assert f"FSDP unit {truth['fsdp']['unit']}" in done.verdict.summary


def _buffers(done: Faulted) -> dict[str | None, tuple[str | None, str | None]]:
    found = done.process.recent_collectives or []
    return {
        item.op: (item.buffer.what if item.buffer else None, item.output.what if item.output else None)
        for item in found
    }


@pytest.mark.parametrize(
    "function", [pytest.param(item, marks=[] if item in OFTEN else [pytest.mark.every_job]) for item in LIVE]
)
@pytest.mark.quick(1)
def test_live_storage_is_named(function: str, run: Path) -> None:
    """Unit, parameter, role of the storage, offsets and state are those that the rank printed."""
    done = faulted("sharding", function, run)
    _is_told(done)
    assert sorted(unit.unit or "" for unit in done.process.fsdp or []) == ["", "blocks.0", "blocks.1"]
    gathers = [pair for op, pair in _buffers(done).items() if op is not None and op.startswith("all_gather")]
    assert [what for pair in gathers for what in pair if what is not None and "FSDP unit" not in what] == []


@pytest.mark.every_job
@pytest.mark.parametrize("function", ["resharded", "flat_resharded"])
def test_address_in_a_parameter_that_is_sharded_by_now(function: str, run: Path) -> None:
    """Use after free: the parameter, that it is sharded now, and the line that resized its storage to zero."""
    done = faulted("sharding", function, run)
    _is_told(done)
    verdict = done.verdict
    assert verdict.class_ == "use-after-free"
    assert "which FSDP released when it sharded FSDP unit blocks.1 again" in (verdict.summary or "")
    parameter = "parameter blocks.1.up.weight of FSDP unit blocks.1 is sharded now"
    told = [item for item in verdict.evidence or [] if parameter in item and "resized to zero at" in item]
    assert len(told) == 1, verdict.evidence
    assert "unshard" in (verdict.advice or "") or "summon_full_params" in (verdict.advice or "")


@pytest.mark.every_job
def test_hybrid_sharding(run: Path) -> None:
    """Two groups of two: a sharded gradient, which was reduced over the replicas as well."""
    done = faulted("sharding", "hybrid", run, ranks=4)
    _is_told(done)
    assert {(unit.world_size, unit.replicas) for unit in done.process.fsdp or []} == {(2, 2)}
    assert _buffers(done)["all_reduce"][0] == "all-reduce buffer of the root FSDP unit" or "blocks" in str(
        _buffers(done)["all_reduce"][0]
    )


@pytest.mark.every_job
def test_local_part_of_a_dtensor(run: Path) -> None:
    """Tensor parallelism without FSDP: this rank's part of a parameter has the parameter's name."""
    done = faulted("sharding", "tensor_parallel", run)
    truth, storage = done.truth, done.fault.storage
    assert storage is not None
    assert (storage.base, storage.offset_bytes) == (truth["base"], truth["offset"])
    assert any(name.startswith(truth["name"]) for name in storage.names or []), storage.names
