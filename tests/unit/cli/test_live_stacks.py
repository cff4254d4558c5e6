"""Parsing of py-spy's and pystack's output; processes that cannot be inspected."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pytracer.cli import live_stacks
from pytracer.report.live import LiveProcess
from tests.conditions import needs_user
from tests.support.cli import only_line, pytracer

PY_SPY = [
    {
        "pid": 7,
        "thread_id": 140029361706880,
        "thread_name": "MainThread",
        "os_thread_id": 7,
        "active": False,
        "owns_gil": True,
        "frames": [
            {"name": "clock_nanosleep", "filename": "/lib/libc.so.6", "module": "/lib/libc.so.6", "line": 0},
            {"name": "main", "filename": "/job/train.py", "module": None, "line": 6},
        ],
    },
    {"os_thread_id": None, "frames": None},
]
PYSTACK = """Traceback for thread 7 (python3) [Has the GIL] (most recent call last):
    (C) File "???", line 0, in _start (/usr/bin/python3.11)
    (Python) File "/job/train.py", line 12, in <module>
        main()
    (Python) File "/job/train.py", line 6, in main
        time.sleep(1)
    (C) File "../sysdeps/clock_nanosleep.c", line 48, in clock_nanosleep@GLIBC_2.2.5 (/lib/libc.so.6)

Traceback for thread 8 (pt_autograd) [] (most recent call last):
    (C) File "???", line 0, in start_thread (/lib/libc.so.6)
"""


def test_json_of_py_spy_is_split_into_python_and_native() -> None:
    """A frame with a module is native."""
    found = live_stacks.py_spy_threads(json.dumps(PY_SPY))
    thread = found[7]
    assert [(item.function, item.line) for item in thread.python_stack] == [("main", 6)]
    assert [(item.function, item.image) for item in thread.native_stack] == [("clock_nanosleep", "/lib/libc.so.6")]
    assert thread.holds_gil is True
    assert list(found) == [7]


def test_text_of_pystack_is_turned_around() -> None:
    """It prints the innermost frame last."""
    found = live_stacks.pystack_threads(PYSTACK)
    assert [(item.function, item.line) for item in found[7].python_stack] == [("main", 6), ("<module>", 12)]
    assert found[7].native_stack[0].function == "clock_nanosleep@GLIBC_2.2.5"
    assert found[7].holds_gil is True
    assert (found[8].name, found[8].python_stack) == ("pt_autograd", [])


@pytest.mark.parametrize(
    ("script", "note"),
    [
        ("echo 'Error: Permission denied (os error 13)' >&2; exit 1", "permission denied: run as the same user"),
        ("echo 'Failed to find python version' >&2; exit 1", "Failed to find python version"),
        ("echo 'not json'", "JSONDecodeError"),
        ("exit 1", "it says nothing"),
    ],
)
def test_tool_that_fails_is_a_note(script: str, note: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Never an error, and the process stays in the report."""
    tool = tmp_path / "py-spy"
    tool.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    tool.chmod(0o755)
    monkeypatch.setattr(live_stacks, "_tool", lambda name: str(tool))
    process = LiveProcess(os.getpid())
    assert live_stacks.take_stacks([process], native=False) == []
    assert process.stacks_by is None
    assert note in process.notes[0]


def test_tool_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has a time limit."""
    tool = tmp_path / "py-spy"
    tool.write_text("#!/bin/sh\nexec sleep 60\n", encoding="utf-8")
    tool.chmod(0o755)
    monkeypatch.setattr(live_stacks, "_tool", lambda name: str(tool))
    monkeypatch.setattr(live_stacks, "_SECONDS", 0.2)
    process = LiveProcess(os.getpid())
    live_stacks.take_stacks([process], native=False)
    assert "took longer than" in process.notes[0]


def test_without_a_tool_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The threads are shown as the kernel knows them."""
    monkeypatch.setattr(live_stacks, "_tool", lambda name: None)
    (note,) = live_stacks.take_stacks([LiveProcess(os.getpid())], native=False)
    assert "pytracer[stacks]" in note
    assert live_stacks.kernel_threads(os.getpid())[0].tid == os.getpid()
    assert live_stacks.kernel_threads(1 << 30) == []


@pytest.mark.parametrize(
    ("target", "words"),
    [("999999999", "no process 999999999 runs here"), ("nowhere", "nowhere"), (None, "no RUN or PID was given")],
)
def test_wrong_target_is_one_line(target: str | None, words: str, tmp_path: Path) -> None:
    """With the next step."""
    done = pytracer("attach", *([target] if target else []), cwd=tmp_path)
    assert done.returncode in (1, 2)
    assert words in only_line(done)


def test_directory_that_is_no_run_is_one_line(tmp_path: Path) -> None:
    """As for inspect."""
    done = pytracer("attach", tmp_path, cwd=tmp_path)
    assert done.returncode == 1
    assert "no black boxes in" in only_line(done)


@needs_user
def test_process_of_another_user_is_refused_in_one_line(tmp_path: Path) -> None:
    """Process 1 is root's."""
    done = pytracer("attach", "1", cwd=tmp_path)
    assert done.returncode == 1
    assert "may not be looked at" in only_line(done)


def test_help_has_examples(tmp_path: Path) -> None:
    """`pytracer attach --help`."""
    done = subprocess.run(
        [sys.executable, "-m", "pytracer", "attach", "--help"], capture_output=True, text=True, check=True
    )
    assert "pytracer attach 4711 --json" in done.stdout
