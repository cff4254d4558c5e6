"""Run directories prepared by an attacker: reading them signals no process, never blocks, opens no other file."""

from __future__ import annotations

import json
import os
import platform
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pytracer.launcher.run_directory import start_ticks
from tests.support.cli import pytracer
from tests.support.synth import Box, write_run

BYSTANDER = """
import os, signal, sys
signal.signal(60, lambda *_: os.write(1, b"signalled\\n"))
print("ready", flush=True)
for line in sys.stdin:
    break
"""


def test_attach_leaves_a_process_alone_that_only_a_box_names(tmp_path: Path) -> None:
    """Pid, start time, boot and state match, the signal is caught; but the process does not write that recording."""
    child = subprocess.Popen(
        [sys.executable, "-c", BYSTANDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdin is not None and child.stdout is not None
    try:
        assert child.stdout.readline() == "ready\n"
        boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        ticks = start_ticks(child.pid)
        box = Box(pid=child.pid, host=platform.node(), boot_id=boot_id, start_ticks=ticks)
        run = write_run(tmp_path / "run", box)
        done = pytracer("attach", str(run), "--json", cwd=tmp_path)
        (found,) = json.loads(done.stdout)["processes"]
        assert found["pid"] == child.pid
        assert found["notes"] == ["it does not write this black box, or may not be looked at: it is not asked"]
        assert not found.get("stacks_by")
        assert child.communicate("end\n")[0] == "", "nobody signalled it"
    finally:
        child.kill()
        child.wait()


NAMES = ("run.json", "symbols.json", "trace_rank0.json", "boxes/b.blackbox", "hang.json", "report.json")


@pytest.mark.parametrize("kind", ["pipe", "directory", "zero", "memory", "private"])
def test_special_files_in_a_run_directory_are_notes(tmp_path: Path, kind: str) -> None:
    """Pipes, directories, and links to devices, to files of /proc and to files of the reader: none of them blocks."""
    run = write_run(tmp_path / "run", Box(rank=0), launcher={})
    (run / "run.json").unlink()
    (tmp_path / "private").write_text(json.dumps({"secret": "hunter2", "entries": [], "version": "2.1"}))
    targets = {"zero": "/dev/zero", "memory": "/proc/self/mem", "private": str(tmp_path / "private")}
    for path in (run / name for name in NAMES):
        if kind == "pipe":
            os.mkfifo(path)
        elif kind == "directory":
            path.mkdir()
        else:
            path.symlink_to(targets[kind])
    before = {item: item.lstat().st_mtime_ns for item in (run, run / "boxes")}
    for arguments in (["inspect", str(run), "--json"], ["attach", str(run)]):
        done = pytracer(*arguments, cwd=tmp_path)
        assert done.returncode in (0, 1), done.stderr
        assert "a bug in pytracer" not in done.stderr and "Traceback" not in done.stderr
        assert "hunter2" not in done.stdout + done.stderr
    assert before == {item: item.lstat().st_mtime_ns for item in before}, "nothing was written"


def test_signal_number_is_that_of_the_recorder() -> None:
    """Otherwise the test above proves nothing."""
    from pytracer.blackbox.schema import REQUEST_SIGNAL

    assert REQUEST_SIGNAL == 60 and signal.SIGRTMIN <= REQUEST_SIGNAL <= signal.SIGRTMAX
