"""Jobs of two ranks over NCCL: the blamed rank, the storage at an address, the progress of collectives."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cuda.jobs import finding, job, only_victim
from tests.support.crash import Ended

pytestmark = pytest.mark.fake_cuda


def verdict_of(done: Ended) -> tuple[str | None, int | None]:
    """Class and rank."""
    verdict = done.report.verdict
    assert verdict is not None
    return verdict.class_, verdict.rank


def test_collectives_are_completed_when_the_device_has_done_them(run: Path) -> None:
    """By the Flight Recorder; queued is not completed."""
    done = job("nccl_jobs", "healthy", run=run)
    assert done.status == 0, done.stderr
    assert verdict_of(done) == ("clean", None)
    ranks = [box for box in done.boxes if box.rank is not None]
    assert len(ranks) == 2
    for box in ranks:
        *trained, barrier = box.collectives
        assert {item.state for item in trained} == {"completed"} and barrier.op == "barrier"
        assert all(item.backend == "nccl" and item.stream is not None for item in trained)
        assert [note.text for note in box.notes] == []
        assert box.counts["hook_errors"] == 0


def test_coalesced_collectives_are_completed_too(run: Path) -> None:
    """torch counts those of a region as one; a collective that the device has not finished is not called completed."""
    done = job("nccl_jobs", "coalesced", run=run)
    for box in (box for box in done.boxes if box.rank is not None):
        collectives = [(item.op, item.state) for item in box.collectives if not item.point_to_point]
        names = [op for op, _ in collectives]
        assert names[:4] == ["all_reduce", "broadcast", "broadcast", "broadcast"] and names[-1] == "all_reduce"
        assert {state for _, state in collectives[:-1]} == {"completed"}
        if box.rank is not None and box.rank.rank == 0:
            assert collectives[-1][1] == "scheduled"


def test_a_fault_in_a_bucket_is_named(run: Path) -> None:
    """Rank 1, DDP bucket 0 on cuda:1, and the parameter there."""
    done = job("nccl_jobs", "bucket_fault", run=run)
    assert verdict_of(done) == ("device-pointer-on-host", 1)
    fault = only_victim(done.report).fault
    assert fault is not None and fault.storage is not None and fault.bucket is not None
    assert (fault.storage.device, fault.bucket.index, fault.bucket.generation) == ("cuda:1", 0, 1)
    assert set(fault.bucket.parameters or []) == {"0.weight", "0.bias", "2.weight", "2.bias"}


def test_a_fault_in_a_shard_is_named(run: Path) -> None:
    """FSDP2: unit and parameter of the shard, its block, and its call site."""
    done = job("nccl_jobs", "fsdp_fault", run=run)
    assert verdict_of(done) == ("device-pointer-on-host", 1)
    fault = only_victim(done.report).fault or pytest.fail("no fault")
    assert fault.fsdp is not None
    assert (fault.fsdp.unit, fault.fsdp.what, fault.fsdp.parameter) == ("0", "local-shard", "0.weight")
    storage = fault.storage
    assert storage is not None and storage.device == "cuda:1"
    assert storage.allocated is not None and storage.allocated.caller is not None
    assert storage.allocated.caller.function == "fsdp_fault"


def test_who_did_not_come_is_blamed_for_a_hang(run: Path) -> None:
    """The watchdog ends rank 0, which waited; rank 1 is missing."""
    done = job("nccl_jobs", "hang", run=run)
    assert verdict_of(done) == ("missing-rank", 1)
    found = finding(done.report, "watchdog-abort")
    assert found is not None and found.ranks == [0]


def test_a_sticky_error_is_no_lost_peer(run: Path) -> None:
    """NCCL's watchdog may be the first to get it: that rank is the cause, not a consequence."""
    done = job("nccl_jobs", "illegal_access", run=run)
    assert verdict_of(done) == ("cuda-error", 1)
    (rank0,) = [process for process in done.report.processes or [] if process.rank == 0]
    assert rank0.primary is False


def test_a_collective_inside_a_graph_is_marked(run: Path) -> None:
    """Its buffer is an input of the graph."""
    done = job("nccl_jobs", "captured", run=run)
    victim = only_victim(done.report)
    (graph,) = victim.cuda_graphs or []
    assert (graph.collectives, graph.inputs, graph.broken_replays) == (1, 1, 1)
    assert [item.cuda_graph for item in victim.recent_collectives or [] if item.op == "all_reduce"] == [1]
    assert victim.fault is not None and victim.fault.cuda_graph is not None
    assert victim.fault.cuda_graph.role == "static-input"


def test_a_bucket_in_the_memory_of_a_graph_s_input_is_named(run: Path) -> None:
    """The static input was freed, and a DDP bucket is there when the graph is replayed."""
    done = job("nccl_jobs", "bucket_in_graph", run=run)
    assert verdict_of(done) == ("device-pointer-on-host", 1)
    found = finding(done.report, "cuda-graph-input-freed")
    assert found is not None and found.evidence is not None
    assert "; DDP bucket 0 of Sequential (generation " in found.evidence[0]
    assert ") lies there now" in found.evidence[0]
