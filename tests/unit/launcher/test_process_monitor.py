"""What the launcher records about processes, with real ones that end in different ways."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from pytracer.blackbox import schema
from pytracer.launcher import process_monitor
from pytracer.launcher.process_monitor import Watch
from pytracer.launcher.run_directory import Run, start_ticks
from tests.conditions import needs_exit_by_pidfd
from tests.support.synth import Box

SLEEPER = [sys.executable, "-c", "import time; time.sleep(60)"]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """An empty run directory."""
    (tmp_path / "boxes").mkdir()
    return Run(tmp_path, tmp_path)


def box_of(run: Run, process: subprocess.Popen[Any], ticks: int | None = None) -> None:
    """A recording as that process would have made it."""
    box = Box(pid=process.pid, ppid=os.getpid())
    box.start_ticks = ticks if ticks is not None else start_ticks(process.pid) or 0
    box.write(run.boxes / f"node0.{process.pid}.blackbox")


def seen(watched: Watch) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = watched.as_dict()["processes"]
    return found


def test_living_process_has_its_memory_and_group(run: Run) -> None:
    """While it lives, no end is recorded."""
    watched = Watch(run, lambda: None)
    with subprocess.Popen(SLEEPER) as process:
        box_of(run, process)
        watched.look()
        (item,) = seen(watched)
        process.kill()
    assert item["pid"] == process.pid
    assert item["rss"] > 0
    assert item["rss_peak"] >= item["rss"]
    assert "gone_mono_ns" not in item
    assert "how" not in item
    watched.finish()


def test_killed_process_whose_memory_is_still_being_freed_did_not_outlive_the_job(run: Run) -> None:
    """SIGKILL of a whole group ends the small processes first. The look-alike, which lives on, is not waited for."""
    watched = Watch(run, lambda: None)
    large = (
        "import time; x = bytearray(400 << 20); x[::4096] = bytes(len(x) // 4096); print(flush=True); time.sleep(60)"
    )
    with (
        subprocess.Popen([sys.executable, "-c", large], stdout=subprocess.PIPE) as killed,
        subprocess.Popen(SLEEPER) as living,
    ):
        assert killed.stdout is not None
        killed.stdout.readline()
        for process in (killed, living):
            box_of(run, process)
        watched.look()
        os.kill(killed.pid, signal.SIGKILL)
        begun = time.monotonic()
        watched.finish()
        took = time.monotonic() - begun
        found = {item["pid"]: item for item in seen(watched)}
        living.kill()
    assert found[killed.pid].get("signal") == signal.SIGKILL
    assert "gone_mono_ns" not in found[living.pid]
    assert took < process_monitor._DYING_SECONDS


@pytest.mark.parametrize("sets", [True, False])
def test_limit_that_a_process_got_while_it_was_watched_is_known(sets: bool, run: Run) -> None:
    """The limits that it had at first are noted as well; the look-alike keeps those that it was started with."""
    with subprocess.Popen(SLEEPER) as process:
        box_of(run, process)
        watched = Watch(run, lambda: None)
        watched.look()
        _, hard = resource.prlimit(process.pid, resource.RLIMIT_CPU)
        if sets:
            resource.prlimit(process.pid, resource.RLIMIT_CPU, (3600, hard))
        watched.look()
        watched.look()
        process.kill()
    (found,) = seen(watched)
    assert (found.get("first_limits") is not None) is sets
    assert ((found.get("limits") or {}).get("cpu seconds") == [3600, None if hard < 0 else hard]) is sets


@needs_exit_by_pidfd
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
def test_signal_that_ended_a_reaped_process_is_known(end: signal.Signals, run: Run) -> None:
    """Another process reaped it; the descriptor still has the status."""
    watched = Watch(run, lambda: None)
    with subprocess.Popen(SLEEPER) as process:
        box_of(run, process)
        watched.look()
        process.send_signal(end)
    watched.finish()
    (item,) = seen(watched)
    assert (item["signal"], item["how"]) == (end, "pidfd")
    assert item["alive_mono_ns"] <= item["gone_mono_ns"]


def test_process_that_nobody_reaped_tells_by_its_zombie(run: Run) -> None:
    """On older kernels, too."""
    watched = Watch(run, lambda: None)
    process = subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.stdin.read(); sys.exit(7)"], stdin=subprocess.PIPE
    )
    box_of(run, process)
    watched.look()
    assert process.stdin is not None
    process.stdin.close()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    watched.look()
    (item,) = seen(watched)
    assert (item["exit_code"], item["how"]) == (7, "zombie")
    process.wait()
    watched.finish()


@needs_exit_by_pidfd
def test_workers_that_come_and_go_leave_room_for_the_next_ones(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server's 513th worker dies: the launcher sees it, has forgotten one that ended well, and none that died."""
    monkeypatch.setattr(process_monitor, "_MOST_PROCESSES", 3)
    watched = Watch(run, lambda: None)
    ends = [9, 0, 0, 0, 0, 7]
    pids = []
    for end in ends:
        with subprocess.Popen([sys.executable, "-c", "exit(int(input()))"], stdin=subprocess.PIPE) as process:
            box_of(run, process)
            watched.look()
            process.communicate(f"{end}\n".encode())
        pids.append(process.pid)
        watched.look()
    watched.finish()
    assert [(item["pid"], item["exit_code"]) for item in seen(watched)] == [
        (pids[0], 9),
        (pids[4], 0),
        (pids[5], 7),
    ]
    assert [pid for pid, _ in watched.take_ended(last=True)] == [pids[0], pids[5]]


@needs_exit_by_pidfd
def test_end_of_the_first_process_is_that_of_the_job(run: Run) -> None:
    """A busy launcher may look between that end and its own wait(): no line about it comes before the report."""
    watched = Watch(run, lambda: None)
    with subprocess.Popen(SLEEPER) as first, subprocess.Popen(SLEEPER) as other:
        box_of(run, first)
        box_of(run, other)
        watched.unseen.child = first.pid
        watched.look()
        for process in (first, other):
            process.kill()
            process.wait()
    for _ in range(process_monitor._PATIENCE + 2):
        watched.look()
        ended = watched.take_ended()
        if ended:
            break
    assert [pid for pid, _ in ended] == [other.pid]
    assert watched.take_ended() == []
    watched.finish()
    assert [pid for pid, _ in watched.take_ended(last=True)] == [first.pid]


def test_another_process_with_the_same_pid_is_not_met(run: Run) -> None:
    """The start time in the recording is another one's."""
    watched = Watch(run, lambda: None)
    with subprocess.Popen(SLEEPER) as process:
        box_of(run, process, ticks=1)
        watched.look()
        process.kill()
    assert seen(watched) == []
    watched.finish()


@pytest.mark.parametrize("begun", [b"", schema.MAGIC])
def test_box_that_is_being_made_is_met_later(begun: bytes, run: Run) -> None:
    """At the first poll its header is missing or incomplete."""
    watched = Watch(run, lambda: None)
    with subprocess.Popen(SLEEPER) as process:
        path = run.boxes / f"node0.{process.pid}.blackbox"
        path.write_bytes(begun.ljust(8192, b"\0"))
        watched.look()
        assert seen(watched) == []
        box_of(run, process)
        watched.look()
        process.kill()
    assert [item["pid"] for item in seen(watched)] == [process.pid]
    watched.finish()


def test_samples_are_bounded_and_descriptors_closed(run: Run) -> None:
    """A job of a week keeps thirty."""
    before = len(os.listdir("/proc/self/fd"))
    watched = Watch(run, lambda: None)
    for _ in range(40):
        watched.look()
    watched.finish()
    assert len(watched.as_dict()["samples"]) == 30
    assert len(os.listdir("/proc/self/fd")) == before


def test_run_is_kept_on_disk_now_and_then(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """In case the launcher is killed: every 30 s, not at every poll."""
    saved: list[float] = []
    now = [100.0]
    monkeypatch.setattr(f"{process_monitor.__name__}.time.monotonic", lambda: now[0])
    watched = Watch(run, lambda: saved.append(now[0]))
    for _ in range(40):
        now[0] += 2
        watched.look()
    assert saved == [130.0, 160.0]
    assert watched.as_dict()["ended"] is False
    assert watched.as_dict()["after"]["mono_ns"] > 0
    watched.finish()


def test_boxes_that_vanish_do_not_stop_the_launcher(run: Run) -> None:
    """The job deleted its run directory."""
    watched = Watch(run, lambda: None)
    run.boxes.rmdir()
    watched.look()
    watched.finish()
    assert watched.as_dict()["ended"] is True


def test_first_looks_come_early(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job may die young."""
    now = [0.0]
    monkeypatch.setattr(f"{process_monitor.__name__}.time.monotonic", lambda: now[0])
    watched = Watch(run, lambda: None)
    steps = []
    for _ in range(9):
        step = watched.seconds_to_next()
        steps.append(round(step, 3))
        now[0] += step
    assert steps == [0.1, 0.15, 0.25, 0.5, 0.5, 0.5, 1.0, 2.0, 2.0]
    watched.finish()
