"""`counters.<host>`: processes without a recording, and that its content is not trusted."""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from pathlib import Path

import pytest

from pytracer.decode.job.merge import load_job
from pytracer.decode.job.run_counters import read_run_counters
from tests.support.synth import Box, write_run

HOST = Box(pid=1).host
SECOND = 1_000_000_000
DISK = "no room on the disk, or a limit on the size of files"


def counters(
    unrecorded: Sequence[int] = (0,) * 6, seen: Sequence[tuple[int, int, int, bytes]] = (), magic: bytes = b"pytrcnt1"
) -> bytes:
    head = struct.pack("<8sIIQI6I12x", magic, 40, 3, 11_000_000, 0, *unrecorded)
    return (head + b"".join(struct.pack("<iiQ16s", *item) for item in seen)).ljust(65536, b"\0")


def test_what_was_not_recorded_is_one_line_and_damage(tmp_path: Path) -> None:
    """One reason, several, none."""
    write_run(tmp_path, Box(pid=100))
    for unrecorded, line in [
        (
            (0, 0, 0, 7, 0, 0),
            "7 processes were not recorded (the budget of black boxes was used up (PYTRACER_MOST_BOXES))",
        ),
        ((0, 1, 0, 0, 0, 0), "a process was not recorded (they were not allowed to write there)"),
        (
            (0, 0, 2, 0, 1, 0),
            f"3 processes were not recorded (2: {DISK}; 1: a forked child got no memory of its own)",
        ),
        ((0, 0, 0, 0, 0, 0), None),
    ]:
        (tmp_path / f"counters.{HOST}").write_bytes(counters(unrecorded))
        (read,) = read_run_counters(tmp_path)
        assert (read.line, read.processes, read.boxes, read.box_bytes) == (line, 40, 3, 11_000_000)
        assert [item.what for item in load_job(tmp_path).damage] == ([line] if line else [])


@pytest.mark.parametrize("what", ["short", "long", "empty", "magic", "fifo", "link", "directory"])
def test_other_files_of_that_name_are_left_out(tmp_path: Path, what: str) -> None:
    """A run directory is untrusted."""
    path = tmp_path / f"counters.{HOST}"
    whole = counters((1,) * 6)
    if what == "fifo":
        os.mkfifo(path)
    elif what == "link":
        (tmp_path / "elsewhere").write_bytes(whole)
        path.symlink_to("elsewhere")
    elif what == "directory":
        path.mkdir()
    else:
        content = {"short": whole[:-1], "long": whole + b"\0", "empty": b"", "magic": counters(magic=b"pytrcnt9")}
        path.write_bytes(content[what])
    assert read_run_counters(tmp_path) == []


def test_killed_child_without_a_box_is_a_process(tmp_path: Path) -> None:
    """Its parent's WAIT entry has its end, the counters have its name; SIGPIPE and exits are no reason to show one."""
    parent = Box(pid=100).at(9000).wait(200, signal=9).wait(201, signal=13).wait(202, exit_code=3).wait(203, signal=9)
    run = write_run(tmp_path, parent)
    assert [p.snapshot.pid for p in load_job(run).processes] == [100]
    began = [(pid, 100, parent.created_ns + SECOND, b"worker\0") for pid in (200, 201, 202)]
    (run / f"counters.{HOST}").write_bytes(counters(seen=[*began, (203, 100, 5, b"another one\0")]))
    shown = {p.snapshot.pid: p for p in load_job(run).processes}
    assert set(shown) == {100, 200}
    killed = shown[200]
    assert (killed.status_kind, killed.signal, killed.snapshot.ppid) == ("signaled", 9, 100)
    assert killed.snapshot.argv == ("worker",)


def test_shell_without_a_box_does_not_part_a_rank_from_its_children(tmp_path: Path) -> None:
    """A rank starts a shell, the shell a program that crashes: the shell records nothing."""
    env = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"}
    rank = Box(pid=100, ppid=1, environment=env)
    child = Box(pid=102, ppid=101, argv=("tool",), created_ns=rank.created_ns + 9 * SECOND)
    run = write_run(tmp_path, rank, child)
    assert {p.snapshot.pid: (p.role, p.parent_rank) for p in load_job(run).processes}[102] == ("process", None)
    (run / f"counters.{HOST}").write_bytes(counters(seen=[(101, 100, rank.created_ns + SECOND, b"sh\0")]))
    assert {p.snapshot.pid: (p.role, p.parent_rank) for p in load_job(run).processes}[102] == ("child", 0)
