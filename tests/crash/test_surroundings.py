"""Processes in difficult conditions: many faults at once, exec, closed descriptors, limits."""

from __future__ import annotations

import os
import signal
import stat
import sys
from pathlib import Path

import pytest

from pytracer.decode.job.run_counters import read_run_counters
from tests.conditions import needs_compiler, needs_core, needs_namespaces, needs_native
from tests.support.crash import PROGRAMS, ended, line_of, own_frames, preloaded, victim

pytestmark = [needs_core, needs_compiler]


@pytest.mark.parametrize("way", ["preload", "enable"])
def test_one_of_many_faults_is_reported_and_the_others_are_listed(way: str, run: Path) -> None:
    """Eight threads fault together: one complete report, no mixture; the status is that of a fault, without delay."""
    done = victim("faults_on_many_threads.py", run=run, way=way)
    assert done.status == -signal.SIGSEGV
    crash = done.box.crash
    assert crash is not None
    assert crash.complete
    assert done.box.damage == ()
    assert len(crash.also_crashed) <= 7
    addresses = [crash.fault_addr, *(other.fault_addr for other in crash.also_crashed)]
    assert set(addresses) <= {0x1000 * number + 24 for number in range(1, 9)}
    assert len(set(addresses)) == len(addresses)
    assert crash.tid not in [other.tid for other in crash.also_crashed]
    assert own_frames(crash.python_stack)[0][0] == "decode"


@needs_namespaces
def test_write_to_a_mapped_file_on_a_full_tmpfs_names_the_file_system(run: Path) -> None:
    """A tmpfs of 1 MiB that is not /dev/shm: its own size is the limit."""
    disk = run.parent / "disk"
    disk.mkdir()
    mount = f'mount -t tmpfs -o size=1m none {disk} && exec "$@"'
    program = PROGRAMS / "full_file_system.py"
    command: list[str | Path] = ["unshare", "-rm", "sh", "-c", mount, "sh", sys.executable, program, disk / "data.bin"]
    done = ended(command, preloaded(run), run)
    assert done.status == -signal.SIGBUS, done.stderr
    verdict = done.report.verdict
    assert verdict is not None and verdict.class_ == "disk-full"
    assert "the tmpfs that holds it was full" in (verdict.summary or "")
    assert f"df -h {disk}" in (verdict.advice or "") and "--shm-size" not in (verdict.advice or "")


def test_each_program_of_one_process_has_a_box(run: Path) -> None:
    """exec() keeps the pid: three recordings; the last one is the process, the others are marked as replaced."""
    done = victim("fault_after_exec.py", run=run)
    assert done.status == -signal.SIGSEGV
    boxes = done.boxes
    assert [box.pid for box in boxes] == [done.pid] * 3
    assert [box.argv[-1] for box in boxes[1:]] == ["1", "2"]
    assert [box.state for box in boxes] == ["RECORDING", "RECORDING", "CRASHED"]
    report = done.report
    (process,) = list(report.processes or ())
    assert process.status is not None and process.status.signal == signal.SIGSEGV
    assert report.verdict is not None
    assert report.verdict.class_ == "null-dereference"
    assert len(done.job.replaced_by_exec) == 2


@needs_native
def test_closed_descriptors_and_cleared_environment_do_not_matter(run: Path) -> None:
    """The recording grows although the process closed all descriptors, changed directory and cleared environ."""
    done = victim("fault_after_closing_everything.py", run=run)
    assert done.status == -signal.SIGSEGV, done.stderr
    box = done.box
    assert box.crash is not None
    assert box.crash.complete
    assert (box.damage, box.counts["dropped"], box.counts["hook_errors"], box.counts["unknown_frees"]) == ((), 0, 0, 0)
    live = sorted(s.nbytes for s in box.storages if s.state == "live" and s.nbytes >= 4000)
    for number in range(40):
        assert live.count(4 * (1000 + number)) >= 10
    line = line_of("fault_after_closing_everything.py", "ctypes.string_at(0)")
    assert own_frames(box.crash.python_stack)[0][2] == line


def test_fault_in_a_forked_child_is_the_childs(run: Path) -> None:
    """The child's recording has the crash and its Python stack; the parent's has none, and the parent exits with 0."""
    program = "fault_in_forked_child.py"
    done = victim(program, run=run)
    assert (done.status, done.stderr) == (0, "")
    pid, status = map(int, done.stdout.split())
    assert status == -signal.SIGSEGV
    boxes = {box.pid: box for box in done.boxes}
    assert (boxes[done.pid].crash, boxes[done.pid].state) == (None, "EXITING")
    child = boxes[pid]
    assert (child.state, child.ppid) == ("CRASHED", done.pid)
    assert child.crash is not None
    assert own_frames(child.crash.python_stack)[0] == ("in_child", program, line_of(program, "library.read_field"))


def test_boxes_are_private(run: Path) -> None:
    """A recording holds lines of code and addresses: only its owner may read it, whatever the umask."""
    before = os.umask(0)
    try:
        done = victim("null_dereference.py", run=run)
    finally:
        os.umask(before)
    (box,) = (run / "boxes").iterdir()
    assert stat.S_IMODE(box.stat().st_mode) == 0o600
    assert stat.S_IMODE((run / "boxes").stat().st_mode) == 0o700
    assert done.box.crash is not None


@pytest.mark.parametrize(
    ("name", "value", "recorded"),
    [
        ("RLIMIT_AS", 512 << 20, True),
        ("RLIMIT_FSIZE", 1 << 20, False),
        ("RLIMIT_NOFILE", 24, True),
        ("RLIMIT_STACK", 1 << 20, True),
    ],
)
def test_limits_of_a_batch_system_do_not_stop_the_program(name: str, value: int, recorded: bool, run: Path) -> None:
    """Under a limit the program runs as untraced, without a signal; what cannot be recorded is counted."""
    code = "print('works')"
    plain = victim("limited.py", name, str(value), code, run=run, way="untraced")
    done = victim("limited.py", name, str(value), code, run=run)
    assert (done.status, done.stdout) == (plain.status, plain.stdout) == (0, "works\n")
    states = [box.state for box in done.boxes]
    assert done.stderr == ""
    assert states == (["RECORDING", "EXITING"] if recorded else ["RECORDING"])
    (counters,) = read_run_counters(run)
    assert (counters.line is None) == recorded
    assert recorded or "a limit on the size of files" in str(counters.line)


def test_preloaded_library_of_the_user_stays(run: Path) -> None:
    """LD_PRELOAD may list other libraries: ours is first, the others are loaded, and children inherit all of them."""
    library = os.environ["FAULTS_LIBRARY"]
    env = preloaded(run)
    code = "import ctypes, os; print(ctypes.CDLL(None).mean_of(12, 4), os.environ['LD_PRELOAD'].count(':'))"
    both = {**env, "LD_PRELOAD": f"{env['LD_PRELOAD']}:{library}"}
    done = ended(["sh", "-c", 'exec "$0" -c "$1"', sys.executable, code], both, run)
    assert (done.status, done.stdout, done.stderr) == (0, "3 1\n", "")


@needs_native
def test_abort_while_shutting_down_does_not_hide_the_exception(run: Path) -> None:
    """The exception is the cause; SIGABRT is the exit status, and only a consequence."""
    done = victim("abort_while_shutting_down.py", run=run)
    assert done.status == -signal.SIGABRT
    assert "ValueError: shard 3 has 0 rows" in done.stderr
    verdict = done.report.verdict
    assert verdict is not None
    assert verdict.class_ == "python-exception"
    line = line_of("abort_while_shutting_down.py", "raise ValueError")
    assert f"abort_while_shutting_down.py:{line} in read_shard" in (verdict.summary or "")
