"""A process of a job has its own black box once there is something to record, however it was started."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conditions import needs_compiler, needs_core, needs_native
from tests.support.crash import Ended, line_of, new_store, own_frames, victim

pytestmark = [needs_core, needs_compiler]


@pytest.mark.quick(1)
@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
def test_worker_of_multiprocessing_that_dies_has_a_box(method: str, run: Path) -> None:
    """Its death is in its own recording and in its parent's; for the worker without an error, its exit is."""
    program = "multiprocessing_worker_fault.py"
    plain = victim(program, method, run=run, way="untraced")
    done = victim(program, method, run=run)
    assert done.status == plain.status == 0
    assert "faulty ended with -11" in done.stdout
    assert done.stderr == plain.stderr
    pids = {words[0]: int(words[1]) for line in done.stdout.splitlines() if len(words := line.split()) == 2}
    boxes = {box.pid: box for box in done.boxes}
    faulty = boxes[pids["faulty"]]
    assert pids["good"] not in boxes
    assert faulty.state == "CRASHED"
    assert faulty.crash is not None
    assert faulty.crash.fault_addr == 24
    frame = own_frames(faulty.crash.python_stack)[0]
    assert frame == ("work", program, line_of(program, "read_field(None)"))
    if method != "forkserver":
        assert faulty.ppid == done.pid
        ends = {wait.pid: (wait.exit_code, wait.signal) for wait in done.box.waits}
        assert ends[pids["good"]] == (0, None)
        assert ends[faulty.pid] == (None, signal.SIGSEGV)
    verdict = done.report.verdict
    assert verdict is not None
    assert (verdict.class_, verdict.pid) == ("null-dereference", faulty.pid)


def test_command_that_dies_has_a_box_with_the_right_parent(run: Path) -> None:
    """A shell that fails has none, nor its commands; with an empty environment a command runs untraced."""
    done = victim("subprocess_fault.py", run=run)
    assert done.status == 0
    said = {words[0]: words[1:] for line in done.stdout.splitlines() if len(words := line.split()) >= 2}
    assert said["not"] == ["traced"]
    boxes = {box.pid: box for box in done.boxes}
    parent, shell, child = (int(said[name][0]) for name in ("parent", "shell", "child"))
    assert (int(said["shell"][1]), int(said["child"][1])) == (5, -signal.SIGABRT)
    assert parent == done.pid
    assert set(boxes) == {parent, child}
    assert boxes[child].ppid == parent
    ends = {wait.pid: (wait.exit_code, wait.signal) for wait in boxes[parent].waits}
    assert (ends[shell], ends[child]) == ((5, None), (None, signal.SIGABRT))
    assert boxes[child].state == "CRASHED"
    crash = boxes[child].crash
    assert crash is not None and crash.signal == signal.SIGABRT


@pytest.fixture(scope="module")
def forked(runs: Callable[[], Path]) -> Ended:
    """The training that forks, run once."""
    run = runs()
    done = victim("fork_of_a_training.py", str(run), run=run)
    assert done.status == 0, done.stderr
    return done


@pytest.fixture(scope="module")
def said(forked: Ended) -> dict[str, Any]:
    """What it printed."""
    return {key: value for line in forked.stdout.splitlines() for key, value in json.loads(line).items()}


@needs_native
def test_forked_child_leaves_its_parents_box_alone(said: dict[str, Any]) -> None:
    """No byte of the parent's recording changes while the child allocates and trains."""
    assert said["unchanged"] is True


@needs_native
def test_forked_child_keeps_its_parents_live_storages(forked: Ended, said: dict[str, Any]) -> None:
    """The child's recording has the parent's live storages and its own; the parent's has none of the child's."""
    boxes = {box.pid: box for box in forked.boxes}
    child, parent = boxes[said["child"]], boxes[said["parent"]]
    assert (child.ppid, child.state, child.exit_code) == (parent.pid, "EXITING", 0)
    for box in (child, parent):
        kept = [s for s in box.storages if s.base == said["forever"] and s.nbytes == 123_456]
        assert [s.state for s in kept] == ["live"]
    own = [s for s in child.storages if s.nbytes == 28_000]
    assert (said["kept"], "live") in [(s.base, s.state) for s in own]
    assert not [s for s in parent.storages if s.nbytes == 28_000]
    assert child.created_mono_ns > parent.created_mono_ns


@needs_native
def test_storm_of_forks_leaves_twenty_whole_boxes(forked: Ended, said: dict[str, Any]) -> None:
    """Twenty children at once: each has a recording, whole, with its own storages and those that it inherited."""
    boxes = {box.pid: box for box in forked.boxes}
    assert said["ended"] == [0] * 20
    for number, pid in enumerate(said["many"]):
        box = boxes[pid]
        assert (box.ppid, box.state, box.exit_code, box.damage) == (said["parent"], "EXITING", 0, ())
        assert (box.counts["torn_records"], box.counts["hook_errors"], box.counts["unknown_frees"]) == (0, 0, 0)
        sizes = {s.nbytes for s in box.storages}
        assert {123_456, 4 * (1000 + number)} <= sizes


@needs_native
@pytest.mark.slow
def test_exception_in_a_rank_of_mp_spawn_is_found_with_its_line(run: Path) -> None:
    """mp.spawn catches the exception itself; the verdict is python-exception on rank 1, at the line that raised."""
    done = victim("rank_of_mp_spawn.py", "raise", new_store(run), run=run)
    assert done.status == 1
    assert "ValueError: shard 3 has 0 rows" in done.stderr
    report = done.report
    assert report.verdict is not None
    assert (report.verdict.class_, report.verdict.rank) == ("python-exception", 1)
    ranks = {p.rank: p for p in report.processes or () if p.role == "rank"}
    assert set(ranks) == {0, 1}
    exception = ranks[1].exception
    assert exception is not None and exception.python_stack
    assert (exception.type, exception.message) == ("ValueError", "shard 3 has 0 rows")
    innermost = exception.python_stack[0]
    assert (innermost.function, innermost.line) == ("read_shard", line_of("rank_of_mp_spawn.py", "raise ValueError"))
    assert ranks[1].primary is True
    assert ranks[0].primary is False
    assert {p.ppid for p in ranks.values()} == {done.pid}


@needs_native
@pytest.mark.slow
def test_owner_of_a_taken_port_is_the_launcher_with_its_line(run: Path) -> None:
    """Rank 0 was refused MASTER_PORT; the launcher's own store has it."""
    done = victim("store_on_master_port.py", run=run)
    assert done.status == 1
    assert "EADDRINUSE" in done.stderr
    verdict = done.report.verdict
    assert verdict is not None and verdict.summary is not None
    assert (verdict.class_, verdict.rank) == ("python-exception", 0)
    assert f"its parent, process {done.pid} (store_on_master_port.py) of this job, already listens" in verdict.summary
    line = line_of("store_on_master_port.py", "board = Board(serve=True)")
    assert f"which line {line} (`Board(serve=True)`)" in verdict.summary


@needs_native
@pytest.mark.slow
def test_fault_in_a_rank_of_mp_spawn_is_found(run: Path) -> None:
    """The rank that died of SIGSEGV is first; the other one and the parent are consequences."""
    done = victim("rank_of_mp_spawn.py", "fault", new_store(run), run=run)
    assert done.status == 1
    report = done.report
    assert report.verdict is not None
    assert (report.verdict.class_, report.verdict.rank) == ("null-dereference", 1)
    ranks = {p.rank: p for p in report.processes or () if p.role == "rank"}
    assert ranks[1].status is not None and ranks[1].status.signal == signal.SIGSEGV
    assert (ranks[1].primary, ranks[0].primary) == (True, False)
    assert ranks[1].last_collective is not None and ranks[1].last_collective.state == "completed"


@needs_native
@pytest.mark.parametrize("way", ["preload", "enable"])
@pytest.mark.quick(1)
def test_worker_of_a_dataloader_is_named_as_such(way: str, run: Path) -> None:
    """Its recording has its role and the sample's line; the exception in the main process is the consequence."""
    program = "dataloader_worker_fault.py"
    plain = victim(program, run=run, way="untraced")
    done = victim(program, run=run, way=way)
    assert done.status == plain.status == 1
    handled = "ERROR: Unexpected segmentation fault encountered in worker.\n"  # torch's own handler, which chains
    assert plain.stderr.count(handled) == done.stderr.count(handled) == 1
    report = done.report
    workers = [p for p in report.processes or () if p.role == "dataloader-worker"]
    assert len(workers) == 2
    assert {p.ppid for p in workers} == {done.pid}
    (dead,) = [p for p in workers if p.status is not None and p.status.signal == signal.SIGSEGV]
    assert report.verdict is not None
    assert (report.verdict.class_, report.verdict.pid) == ("null-dereference", dead.pid)
    assert dead.primary is True
    assert dead.python_stack and dead.python_stack[0].line == line_of(program, "library.read_field")
    (main,) = [p for p in report.processes or () if p.pid == done.pid]
    assert main.status is not None and main.status.kind == "exception"
    assert main.primary is False


@needs_native
@pytest.mark.slow
def test_child_that_is_forked_beside_a_collective_calls_its_own(run: Path) -> None:
    """At the fork another thread holds the lock; it does not exist in the child, which does not wait for it."""
    done = victim("fork_beside_collectives.py", run=run, way="enable")
    assert (done.status, done.stdout) == (0, "40 40\n"), done.stderr
