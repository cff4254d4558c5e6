"""Memory of CUDA devices is read as it was at the crash."""

from __future__ import annotations

from pathlib import Path

from pytracer.decode.recording.reader import read_box
from tests.support.synth import Box

SEGMENT = 0x7F60_0000_0000
MIB = 1 << 20


def test_blocks_carry_device_stream_pool_and_both_ends(tmp_path: Path) -> None:
    """Live, awaited and freed ones are storages like those of the CPU."""
    box = Box(pid=101)
    made, dropped = box.code("make", "train.py", 12), box.code("drop", "train.py", 20)
    box.devices.segment(SEGMENT, 20 * MIB, device=1)
    box.devices.alloc(SEGMENT, MIB, made, box.epoch, device=1, stream=0x77, pool=(2, 0))
    box.devices.alloc(SEGMENT + MIB, MIB, made, box.epoch, device=1)
    box.devices.alloc(SEGMENT + 2 * MIB, MIB, made, box.epoch, device=1)
    box.devices.free(SEGMENT + MIB, dropped, box.epoch, awaited=True)
    box.devices.free(SEGMENT + 2 * MIB, dropped, box.epoch)
    snapshot = read_box(box.write(tmp_path / "x.blackbox"))
    freed, live, awaited = snapshot.storages
    assert (live.base, live.nbytes, live.state, live.awaited) == (SEGMENT, MIB, "live", False)
    assert (live.device, live.stream, live.pool) == ("cuda:1", 0x77, (2, 0))
    assert live.allocated_by.python is not None and live.allocated_by.python.line == 12
    assert (awaited.state, awaited.awaited) == ("live", True)
    assert awaited.freed_by is not None and awaited.freed_by.python is not None
    assert awaited.freed_by.python.function == "drop"
    assert (freed.state, freed.base) == ("freed", SEGMENT + 2 * MIB)
    (segment,) = snapshot.segments
    assert (segment.device, segment.base, segment.nbytes, segment.live) == (1, SEGMENT, 20 * MIB, True)


def test_what_happened_after_the_crash_is_taken_back(tmp_path: Path) -> None:
    """Threads that are not stopped yet free and allocate while the handler runs."""
    box = Box(pid=101)
    by = box.code("make", "train.py", 12)
    box.devices.alloc(SEGMENT, MIB, by, box.epoch)
    box.crash(signal=11, addr=SEGMENT, code=2)
    box.devices.free(SEGMENT, by, box.epoch)
    box.devices.alloc(SEGMENT + MIB, MIB, by, box.epoch)
    (only,) = read_box(box.write(tmp_path / "x.blackbox")).storages
    assert (only.base, only.state, only.freed) == (SEGMENT, "live", None)


def test_graphs_carry_their_inputs_and_what_became_of_them(tmp_path: Path) -> None:
    """Live, freed, and taken by another block."""
    box = Box(pid=101)
    by = box.code("capture", "train.py", 30)
    box.devices.graph(1, by, replays=5, broken=2, captured_ns=box.now)
    box.devices.graph_input(1, SEGMENT, MIB)
    box.devices.graph_input(1, SEGMENT + MIB, MIB, freed_by=by)
    box.devices.graph_input(1, SEGMENT + 2 * MIB, MIB, freed_by=by, taken=(SEGMENT + 2 * MIB, 4096, by))
    (graph,) = read_box(box.write(tmp_path / "x.blackbox")).cuda_graphs
    assert (graph.number, graph.state, graph.pool, graph.replays, graph.broken_replays) == (1, "captured", (1, 0), 5, 2)
    assert [item.state for item in graph.inputs] == ["live", "freed", "reallocated"]
    assert graph.inputs[2].new_nbytes == 4096 and graph.inputs[2].new_by is not None


def test_streams_carry_the_last_answer_of_the_device(tmp_path: Path) -> None:
    """Idle, busy, failed with its error."""
    box = Box(pid=101)
    box.devices.stream(0, 1, since_ns=box.now)
    box.devices.stream(0x77, 4, since_ns=box.now, error=700)
    idle, failed = read_box(box.write(tmp_path / "x.blackbox")).cuda_streams
    assert (idle.state, idle.error, failed.state, failed.stream, failed.error) == ("idle", None, "failed", 0x77, 700)


def test_a_block_that_was_being_written_is_counted(tmp_path: Path) -> None:
    """Killed between two stores."""
    box = Box(pid=101)
    box.devices.alloc(SEGMENT, MIB, (0, 0), box.epoch)
    path = box.write(tmp_path / "x.blackbox")
    data = bytearray(path.read_bytes())
    at = data.index(SEGMENT.to_bytes(8, "little")) - 8
    data[at : at + 4] = bytes(4)
    path.write_bytes(data)
    snapshot = read_box(path)
    assert snapshot.storages == () and snapshot.counts["torn_device_items"] == 1
