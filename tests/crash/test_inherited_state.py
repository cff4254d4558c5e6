"""What a process inherits is the same under the launcher, but for the variables that start the recorder."""

from __future__ import annotations

import ctypes
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pytracer.blackbox.schema import REQUEST_SIGNAL
from tests.conditions import needs_compiler, needs_core
from tests.support.cli import SCRIPT, clean_environment
from tests.support.crash import PROGRAMS

pytestmark = [needs_core, needs_compiler]

LAUNCHER = [sys.executable, "-m", "pytracer", "run", "--quiet", "--no-report", "--"]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """tests/crash/programs/inherited_state.c."""
    path = tmp_path_factory.mktemp("state") / "inherited_state"
    subprocess.run([shutil.which("cc") or "gcc", "-w", "-O1", "-o", path, PROGRAMS / "inherited_state.c"], check=True)
    return path


def plain() -> None:
    """Nothing unusual."""


def unusual() -> None:
    """Sets as much inheritable state as an unprivileged process can."""
    os.umask(0o027)
    os.nice(3)
    for limit in (resource.RLIMIT_CORE, resource.RLIMIT_NOFILE, resource.RLIMIT_STACK, resource.RLIMIT_MEMLOCK):
        resource.setrlimit(limit, (1 << 20 if limit == resource.RLIMIT_STACK else 200, resource.getrlimit(limit)[1]))
    Path("/proc/self/oom_score_adj").write_text("77", encoding="ascii")
    Path("/proc/self/coredump_filter").write_text("11", encoding="ascii")
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    for number in (signal.SIGUSR2, signal.SIGCHLD, signal.SIGINT, signal.SIGTERM, signal.SIGTSTP, signal.SIGRTMIN + 6):
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1, signal.SIGWINCH, signal.SIGCHLD, signal.SIGRTMIN + 7])
    libc = ctypes.CDLL(None)
    libc.personality(0x0040000)  # ADDR_NO_RANDOMIZE
    libc.prctl(29, 123456, 0, 0, 0)  # PR_SET_TIMERSLACK
    libc.prctl(38, 1, 0, 0, 0)  # PR_SET_NO_NEW_PRIVS
    if os.uname().machine == "x86_64":
        libc.syscall(251, 1, 0, 3 << 13 | 5)  # ioprio_set: idle class
    os.setsid()


def closed() -> None:
    """No standard streams except stdout, which has the output."""
    os.close(0)
    os.close(2)


@pytest.mark.parametrize("prepare", [plain, unusual, closed], ids=lambda item: item.__name__)
@pytest.mark.parametrize("way", [LAUNCHER, [str(SCRIPT)]], ids=["pytracer run", "pytracer-run"])
def test_process_inherits_the_same(way: list[str], prepare: Callable[[], None], program: Path, tmp_path: Path) -> None:
    """Descriptors, arguments, environment, limits, priorities, masks and dispositions: the same lines."""
    read_end, write_end = os.pipe()
    os.set_inheritable(write_end, True)

    def state(command: list[str], **more: str) -> tuple[list[str], int]:
        done = subprocess.run(
            [*command, program, "a b", b"\xff\xfe", ""], cwd=tmp_path, env=clean_environment(LC_ALL="C", **more),
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, preexec_fn=prepare,
            pass_fds=[write_end], check=False,
        )  # fmt: skip
        return done.stdout.decode("utf-8", "replace").splitlines(), done.returncode

    try:
        untraced, status = state([])
        traced, traced_status = state(way)
    finally:
        os.close(read_end)
        os.close(write_end)
    assert status == traced_status == 3
    assert len(untraced) > 100
    assert _comparable(traced, way) == _comparable(untraced, way)


def _comparable(lines: list[str], way: list[str]) -> list[str]:
    """Without the recorder's variables and the signal of `pytracer attach`; numbers of groups and pipes are removed."""
    ours = ["variable PYTRACER_", "variable LD_PRELOAD=", f"signal {REQUEST_SIGNAL} "]
    if way != LAUNCHER:  # sh sets PWD and SIGCHLD, and unblocks all signals: what any script does that execs a program
        ours += ["variable PWD=", f"signal {signal.SIGCHLD} ", "/proc/self/status SigBlk", "/proc/self/status SigIgn"]
        lines = [re.sub(r"^(signal \d+) blocked \d", r"\1", line) for line in lines]
    kept = [line for line in lines if not line.startswith(tuple(ours))]
    group = next(line.split()[1] for line in kept if line.startswith("group "))
    kept = [line.replace(f" {group} ", " GROUP ") if line.startswith("group ") else line for line in kept]
    kept = [re.sub(r"pipe:\[\d+\]", "pipe", line) for line in kept]
    # A shell passes its variables on in its own order.
    return sorted(kept, key=lambda line: line if line.startswith("variable ") else "")
