"""The memory snapshot, read back with torch's own tool where torch is."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from pytracer.decode.job.merge import load_job
from pytracer.export.memory_viz import memory_snapshot
from tests.support.synth import Box, write_run

SITE = ("build", "train.py", 12)


def _snapshot(directory: Path) -> bytes:
    box = Box(rank=0, world_size=1)
    box.at(10).step(1).alloc(0x7F0000000000, 4096, by=SITE).at(20).step(2).alloc(0x7F0000010000, 1000, by=SITE)
    box.at(30).step(3).free(0x7F0000000000, by="MulBackward0").at(40).exit(0)
    write_run(directory, box)
    return memory_snapshot(load_job(directory, symbols=False).processes[0].snapshot)


def test_snapshot_has_allocations_and_frees_in_their_order_with_their_lines(tmp_path: Path) -> None:
    """What lives at the end is a segment."""
    snapshot = pickle.loads(_snapshot(tmp_path))
    (entries,) = snapshot["device_traces"]
    assert [(e["action"], e["size"]) for e in entries] == [
        ("alloc", 4096),
        ("alloc", 1000),
        ("free_requested", 4096),
        ("free_completed", 4096),
    ]
    assert entries[0]["frames"] == [{"filename": "train.py", "line": 12, "name": "build"}]
    assert entries[2]["frames"][0]["name"] == "MulBackward0"
    assert [(s["address"], s["total_size"]) for s in snapshot["segments"]] == [(0x7F0000010000, 1000)]


def test_torch_reads_the_snapshot(tmp_path: Path) -> None:
    """Its summary, its trace and its plots."""
    viz = pytest.importorskip("torch.cuda._memory_viz", reason="torch is not installed")
    snapshot = pickle.loads(_snapshot(tmp_path))
    assert "total_allocated: 1000.0B" in viz.segsum(snapshot)
    assert "del a # 4.0KiB" in viz.trace(snapshot)
    assert "Active Memory Timeline" in viz.trace_plot(snapshot)
