"""A fault of host code in a device's memory names the block, its stream, its pool and its call site."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from pytracer.decode.types.records import Stream
from pytracer.report.job import Fault, StorageReport
from tests.cuda.jobs import PROGRAMS, finding, line_of, only_victim, program
from tests.support.crash import Ended, ended, environment, traced_run
from tests.support.records import data_of

SIGSEGV_STATUS = 128 + signal.SIGSEGV


def fault_of(done: Ended) -> tuple[Fault, StorageReport]:
    """The fault of a program that printed its address on stdout."""
    assert done.status == SIGSEGV_STATUS, done.stderr
    return fault_in(done)


def fault_in(done: Ended) -> tuple[Fault, StorageReport]:
    """The same, however it ended."""
    report = done.report
    assert report.verdict is not None
    assert (report.verdict.class_, report.verdict.confidence) == ("device-pointer-on-host", "certain")
    fault = only_victim(report).fault
    assert fault is not None and fault.addr == done.stdout.split()[0]
    assert fault.kind == "device-memory"
    return fault, fault.storage or StorageReport()


@pytest.mark.fake_cuda
@pytest.mark.parametrize("settings", ["", "expandable_segments:True"])
def test_a_live_block_is_named(run: Path, settings: str) -> None:
    """Address, size, device and line, with ordinary and with expandable segments."""
    done = program("host_fault", "block", run=run, PYTORCH_ALLOC_CONF=settings)
    _, storage = fault_of(done)
    assert (storage.state, storage.nbytes, storage.offset_bytes) == ("live", 4 << 20, 4096)
    assert (storage.device, storage.stream, storage.pool, storage.found) == ("cuda:1", "0x0", None, "exact")
    assert storage.allocated is not None and storage.allocated.python is not None
    assert storage.allocated.python.line == line_of("host_fault", 'device="cuda:1"')
    mapped = [segment for box in done.boxes for segment in box.segments if segment.mapped]
    assert bool(mapped) == bool(settings)


@pytest.mark.fake_cuda
def test_a_block_that_other_streams_still_use_is_awaited(run: Path) -> None:
    """Freed by Python after record_stream, and still owned."""
    _, storage = fault_of(program("host_fault", "awaited", run=run))
    assert (storage.state, storage.awaited) == ("live", True)
    assert storage.freed is not None and storage.freed.python is not None
    assert storage.freed.python.line == line_of("host_fault", "del tensor  # awaited")


def test_a_block_of_a_private_pool_names_its_graph(run: Path) -> None:
    """A CUDA graph's allocations are in a private pool."""
    fault, storage = fault_of(program("host_fault", "private_pool", run=run))
    use = fault.cuda_graph
    assert storage.pool is not None and use is not None
    assert (use.id, use.role, use.replays, use.pool) == (1, "pool-memory", 1, storage.pool)
    assert use.captured_by is not None and use.captured_by.function == "private_pool"


def test_a_freed_block_and_memory_without_one(run: Path) -> None:
    """The allocator keeps both."""
    _, storage = fault_of(program("host_fault", "freed", run=run))
    assert storage.state == "freed" and storage.freed is not None
    fault, _ = fault_of(program("host_fault", "segment", run=run.with_name("second")))
    assert fault.storage is None


def test_memory_from_before_recording_is_known(run: Path) -> None:
    """pytracer.enable() when CUDA is in use: the allocator's snapshot has the live blocks."""
    done = ended([sys.executable, PROGRAMS / "enabled_late.py", run], environment(), run)
    assert done.status == -signal.SIGSEGV, done.stderr
    storage = fault_in(done)[1]
    assert (storage.state, storage.nbytes) == ("live", 4 << 20)
    assert storage.allocated is not None and storage.allocated.python is None


@pytest.mark.fake_cuda
@pytest.mark.parametrize("backend", ["cudaMallocAsync", "pluggable"])
def test_other_allocators_are_told_and_harm_nothing(run: Path, backend: str) -> None:
    """They throw when a tracker is attached: the program continues, and a note lists what is missing."""
    settings: dict[str, Any] = {"PYTORCH_ALLOC_CONF": "backend:cudaMallocAsync"} if backend == "cudaMallocAsync" else {}
    done = program("other_allocators", backend, run=run, **settings)
    assert done.status == 0, done.stderr
    assert done.stdout == "[0.0, 0.0]\n"
    notes = [note.text for box in done.boxes for note in box.notes]
    assert any("memory of CUDA devices is not followed" in note for note in notes)


@pytest.mark.fake_cuda
def test_a_mem_pool_is_followed(run: Path) -> None:
    """torch.cuda.MemPool has its own id."""
    _, storage = fault_of(program("host_fault", "mem_pool", run=run))
    assert storage.pool is not None and storage.pool.startswith("(0, ")


@pytest.mark.fake_cuda
def test_out_of_memory_shows_what_the_memory_was_used_for(run: Path) -> None:
    """The call sites with the most memory, at the moment of the request."""
    done = program("out_of_memory", run=run, FAKECUDA_MEMORY_MB="256")
    assert done.status == 1
    report = done.report
    assert report.verdict is not None
    assert (report.verdict.class_, report.verdict.confidence) == ("cuda-error", "certain")
    found = finding(report, "cuda-out-of-memory")
    assert found is not None and found.evidence is not None
    line = line_of("out_of_memory", "kept.append")
    assert any(
        f"out_of_memory.py:{line} in train" in item and "160.0 MiB in 5 blocks" in item for item in found.evidence
    )


@pytest.mark.fake_cuda
def test_out_of_memory_names_the_attribute_that_keeps_the_results(run: Path) -> None:
    """Counted when the exception leaves the program."""
    done = program("kept_tensors", run=run, FAKECUDA_MEMORY_MB="512")
    assert done.status == 1
    found = finding(done.report, "cuda-out-of-memory")
    stored = line_of("kept_tensors", "append(output)")
    words = f"`recorder.maps` (kept_tensors.py:{stored}: `self.maps[layer].append(output)`) keeps "
    assert found is not None and found.summary is not None
    assert words in found.summary and " tensors, " in found.summary
    assert "Keep of `output` only what is read later" in (found.advice or "")


def test_a_program_that_was_killed_leaves_its_blocks(run: Path) -> None:
    """SIGKILL at any moment: no torn item, no damage."""
    done = program("killed", run=run)
    assert done.status == 128 + signal.SIGKILL
    box = next(box for box in done.boxes if box.segments)
    live = [item for item in box.storages if item.device != "cpu" and item.state == "live"]
    assert box.damage == () and len(live) >= 200


def test_waits_between_streams_are_records_at_level_ops(run: Path) -> None:
    """Event recorded, stream waits for event and stream, the host waited."""
    done = traced_run(sys.executable, PROGRAMS / "streams_wait.py", run=run, options=("--level", "ops"))
    assert done.status == 0, done.stderr
    actions = [item.action for box in done.boxes for item in data_of(box.events, Stream)]
    assert actions[:2] == [1, 2] and 3 in actions and actions[-2:] == [4, 5]
