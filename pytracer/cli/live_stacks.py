"""Threads of running processes: their states from the kernel, and frames from py-spy or pystack if installed.

Both tools read from outside and stop a process for some ten milliseconds; each has a time limit. A failure of a tool is
a note, never an error.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypedDict

from pytracer.analyze.platform.system_calls import system_call_name
from pytracer.report.live import LiveFrame, LiveProcess, LiveThread

_SECONDS = 20.0  # the first run on a process with large libraries reads their symbols
_AT_ONCE = 4
_STATES = {"R": "running", "S": "sleeping", "D": "waiting for a device", "T": "stopped", "t": "traced", "Z": "ended"}
_PYSTACK_THREAD = re.compile(r"^Traceback for thread (\d+)(?: \((.*)\))? \[(.*?)\]")
_PYSTACK_FRAME = re.compile(r'^\s+\((Python|C)\) File "(.*)", line (\d+), in (.+?)(?: \((/.*)\))?$')
HINT = "the extra `pytracer[stacks]` (py-spy, pystack) sees those that are not recorded"


class _PySpyFrame(TypedDict, total=False):
    name: str | None
    filename: str | None
    line: int | None
    module: str | None  # of native frames


class _PySpyThread(TypedDict, total=False):
    os_thread_id: int | None
    thread_name: str | None
    owns_gil: bool
    frames: list[_PySpyFrame] | None


def take_stacks(processes: list[LiveProcess], *, native: bool) -> list[str]:
    """Fills the threads of each process that has no stacks yet; returns notes about all of them."""
    silent = [process for process in processes if process.stacks_by is None and "python" in _exe(process.pid)]
    if not silent:
        return []
    tool = _tool("py-spy") or _tool("pystack")
    if tool is None:
        return [f"not every process shows its stacks: {HINT}"]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        list(pool.map(lambda process: _fill(process, tool, native), silent))
    return []


def kernel_threads(pid: int) -> list[LiveThread]:
    """The threads of a process as /proc shows them, the main one first."""
    threads = []
    try:
        tids = sorted((int(name) for name in os.listdir(f"/proc/{pid}/task")), key=lambda tid: (tid != pid, tid))
    except OSError:
        return []
    for tid in tids:
        base = Path(f"/proc/{pid}/task/{tid}")
        head, _, rest = _read(base / "stat").rpartition(")")
        words = rest.split()
        if words:
            state = _STATES.get(words[0], words[0])
            threads.append(
                LiveThread(tid, head.partition("(")[2] or None, state, _system_call(_read(base / "syscall")))
            )
    return threads


def rss_bytes(pid: int) -> int | None:
    """Resident memory now."""
    words = _read(Path(f"/proc/{pid}/statm")).split()
    return int(words[1]) * os.sysconf("SC_PAGE_SIZE") if len(words) > 1 else None


def py_spy_threads(text: str) -> dict[int, LiveThread]:
    """The JSON of `py-spy dump`, by kernel thread id."""
    found: dict[int, LiveThread] = {}
    items: list[_PySpyThread] = json.loads(text)
    for item in items:
        tid = item.get("os_thread_id")
        if not isinstance(tid, int):
            continue
        thread = found.setdefault(tid, LiveThread(tid, item.get("thread_name"), holds_gil=bool(item.get("owns_gil"))))
        for frame in item.get("frames") or []:
            name, file, line = frame.get("name"), frame.get("filename"), frame.get("line")
            if frame.get("module"):
                thread.native_stack.append(LiveFrame(name, image=frame["module"]))
            else:
                thread.python_stack.append(LiveFrame(name, file, line or None))
    return found


def pystack_threads(text: str) -> dict[int, LiveThread]:
    """The text of `pystack remote`, whose innermost frame is last."""
    found: dict[int, LiveThread] = {}
    thread: LiveThread | None = None
    for line in text.splitlines():
        if head := _PYSTACK_THREAD.match(line):
            thread = found.setdefault(
                int(head[1]), LiveThread(int(head[1]), head[2], holds_gil="Has the GIL" in head[3])
            )
        elif thread is not None and (frame := _PYSTACK_FRAME.match(line)):
            if frame[1] == "Python":
                thread.python_stack.insert(0, LiveFrame(frame[4], frame[2], int(frame[3])))
            else:
                thread.native_stack.insert(
                    0, LiveFrame(frame[4], None if frame[2] == "???" else frame[2], image=frame[5])
                )
    return found


def _fill(process: LiveProcess, tool: str, native: bool) -> None:
    by = os.path.basename(tool)
    found, why = _ask(tool, process.pid, native)
    if not found and native:
        found, _ = _ask(tool, process.pid, False)
        if found:
            process.notes.append(f"{by} could not walk native frames: {why}")
    if not found:
        process.notes.append(f"no stacks by {by}: {why}")
        return
    process.stacks_by = by
    for thread in process.threads:
        stack = found.pop(thread.tid, None)
        if stack is not None:
            thread.python_stack, thread.native_stack = stack.python_stack, stack.native_stack
            thread.holds_gil = stack.holds_gil
            thread.name = stack.name or thread.name


def _ask(tool: str, pid: int, native: bool) -> tuple[dict[int, LiveThread], str]:
    if os.path.basename(tool) == "py-spy":
        command = [tool, "dump", "--pid", str(pid), "--json", "--full-filenames", *(["--native"] if native else [])]
    else:
        command = [tool, "remote", "--no-color", *(["--native"] if native else []), str(pid)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=_SECONDS, check=False,
            stdin=subprocess.DEVNULL, env={**os.environ, "LD_PRELOAD": ""},
        )  # fmt: skip
        parse = py_spy_threads if command[1] == "dump" else pystack_threads
        found = parse(done.stdout) if done.returncode == 0 else {}
    except subprocess.TimeoutExpired:
        return {}, f"it took longer than {_SECONDS:.0f} s"
    except (OSError, ValueError) as error:
        return {}, f"{type(error).__name__}: {error}"
    return found, _reason(done.stderr)


def _reason(stderr: str) -> str:
    """The error message of a failed tool, among its other output."""
    if re.search(r"permission|not permitted", stderr, re.IGNORECASE):
        return "permission denied: run as the same user, with CAP_SYS_PTRACE, or with kernel.yama.ptrace_scope=0"
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    return lines[-1][:200] if lines else "it says nothing"


def _tool(name: str) -> str | None:
    beside = os.path.join(os.path.dirname(sys.executable), name)
    found = beside if os.access(beside, os.X_OK) else shutil.which(name)
    return found if found is not None and os.path.isabs(found) else None  # not a file of the current directory


def _exe(pid: int) -> str:
    try:
        return os.path.basename(os.readlink(f"/proc/{pid}/exe"))
    except OSError:
        return "python"  # no permission to read it: the tool reports why


def _system_call(text: str) -> str | None:
    word = text.split(" ", 1)[0].strip()
    return system_call_name(int(word), os.uname().machine) if word.isdigit() else None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
