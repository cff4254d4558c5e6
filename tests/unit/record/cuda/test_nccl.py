"""Progress of NCCL's collectives from the Flight Recorder's entries, which number otherwise than the recording."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pytracer.record.cuda.nccl import reached

if TYPE_CHECKING:
    from pytracer.record.torch_objects import GroupStatus, TraceEntry

COMPLETED: Literal["last_completed_collective"] = "last_completed_collective"


def status(queued: int, completed: int) -> GroupStatus:
    return {"last_enqueued_collective": queued, COMPLETED: completed, "last_started_collective": -1}


def entry(number: int, name: str = "nccl:all_reduce", *, p2p: bool = False) -> TraceEntry:
    return {"collective_seq_id": number, "profiling_name": name, "is_p2p": p2p, "process_group": ("0", "default_pg")}


def test_ordinary_collectives_count_one_each() -> None:
    """Three of five are done."""
    assert reached(5, status(5, 3), [entry(4), entry(5)], COMPLETED) == 3
    assert reached(5, status(5, 5), [], COMPLETED) == 5
    assert reached(5, status(5, -1), [entry(n) for n in range(1, 6)], COMPLETED) == 0


def test_a_coalesced_region_counts_once() -> None:
    """Its collectives stay among the entries for ever; the region as a whole has an entry of its own."""
    region = [entry(2, "nccl:broadcast")] * 3 + [entry(2, "nccl:coalesced")]
    assert reached(5, status(3, 1), [*region, entry(3)], COMPLETED) == 1
    assert reached(5, status(3, 2), [*region, entry(3)], COMPLETED) == 4
    assert reached(5, status(3, 3), region[:3], COMPLETED) == 5


def test_a_batch_of_sends_takes_a_number_of_the_collectives() -> None:
    """But is none."""
    batch = [entry(2, "nccl:send 0->1", p2p=True), entry(2, "nccl:coalesced", p2p=True)]
    assert reached(2, status(3, 1), [*batch, entry(3)], COMPLETED) == 1
    assert reached(2, status(3, 2), [entry(3)], COMPLETED) == 1


def test_where_entries_are_missing_nothing_is_said() -> None:
    """The recorder is small, off, or not yet written by the watchdog."""
    assert reached(500, status(500, 3), [entry(499), entry(500)], COMPLETED) is None
    assert reached(5, status(5, 3), [], COMPLETED) is None
    assert reached(5, status(3, 4), [], COMPLETED) is None
