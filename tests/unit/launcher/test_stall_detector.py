"""Progress of a run: counters of recordings, compared from outside."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytracer.blackbox import codec, schema
from pytracer.launcher import stall_detector
from pytracer.launcher.stall_detector import StallDetector
from tests.support.synth import Box


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that the test advances."""
    now = [0.0]
    monkeypatch.setattr(f"{stall_detector.__name__}.time.monotonic", lambda: now[0])
    return now


def working(boxes: Path, step: int = 3) -> Path:
    boxes.mkdir(exist_ok=True)
    path = boxes / "node0.101.blackbox"
    Box(pid=101, ppid=99).at(100).step(step).write(path)
    return path


def set_header(path: Path, name: str, value: int) -> None:
    data = bytearray(path.read_bytes())
    at = codec.layout(schema.FILE_HEADER).offsets[name]
    data[at : at + 4] = value.to_bytes(4, "little")
    path.write_bytes(data)


def test_still_counters_are_told_once(tmp_path: Path, clock: list[float]) -> None:
    """And again after some progress."""
    path = working(tmp_path / "boxes")
    watched = StallDetector(tmp_path / "boxes", 10)
    told = []
    for now in (0, 5, 11, 12, 30):
        clock[0] = now
        told.append(watched.stalled())
    assert told == [False, False, True, False, False]
    set_header(path, "epoch", 77)
    clock[0] = 31
    assert not watched.stalled()
    clock[0] = 42
    assert watched.stalled()


def test_records_of_a_thread_are_movement(tmp_path: Path, clock: list[float]) -> None:
    """Not only what the header counts."""
    path = working(tmp_path / "boxes")
    first = stall_detector.counters(path)
    Box(pid=101, ppid=99).at(100).step(3).mark("more").write(path)
    assert stall_detector.counters(path) != first


def test_answer_to_attach_is_no_movement(tmp_path: Path) -> None:
    """Otherwise the report of a hang would count as its end."""
    path = working(tmp_path / "boxes")
    first = stall_detector.counters(path)
    set_header(path, "live_reports", 9)
    assert stall_detector.counters(path) == first


def test_start_of_a_job_needs_more_patience(tmp_path: Path, clock: list[float]) -> None:
    """Nothing is recorded while torch is imported."""
    (tmp_path / "boxes").mkdir()
    Box(pid=101, ppid=99).write(tmp_path / "boxes" / "node0.101.blackbox")
    watched = StallDetector(tmp_path / "boxes", 10)
    told = []
    for now in (0, 20, 59, 61):
        clock[0] = now
        told.append(watched.stalled())
    assert told == [False, False, False, True]


def test_job_without_boxes_and_broken_ones_are_no_standstill(tmp_path: Path, clock: list[float]) -> None:
    """Nothing raises; an incomplete recording does not count as a start."""
    watched = StallDetector(tmp_path / "boxes", 1)
    clock[0] = 100
    assert not watched.stalled()
    (tmp_path / "boxes").mkdir()
    (tmp_path / "boxes" / "half.blackbox").write_bytes(bytes(700))
    assert not watched.stalled()
    clock[0] = 110
    assert not watched.stalled()


def test_pause_counts_as_long_as_it_can_have_been(tmp_path: Path, clock: list[float]) -> None:
    """Between looks nobody knows when it began and ended: a pause seen once may have lasted three times as long."""
    path = working(tmp_path / "boxes")
    watched = StallDetector(tmp_path / "boxes", 1, grows=True)
    told = []
    for now, epoch in (
        (0, 1),
        (1, 2),
        (2, 2),
        (3, 3),
        (32, 3),
        (34, 3),
    ):  # still for up to 3 s, from right after 0 to 3
        set_header(path, "epoch", epoch)
        clock[0] = now
        told.append(watched.stalled())
    assert told == [False, False, False, False, False, True]
