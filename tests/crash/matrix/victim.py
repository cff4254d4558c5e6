"""Runs a cell: the victim in its own session, until all its processes have ended."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import resource
import selectors
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.crash.matrix.cells import Cell
from tests.support.crash import PROGRAMS, Ended, environment, preloaded
from tests.support.leftovers import leftovers

SECONDS = 60
GRACE_SECONDS = 6  # a DataLoader worker checks its parent every five
_NAME = "MATRIX_CELL"


@dataclass(frozen=True)
class Note:
    """What the dying thread announced right before the fault."""

    pid: int
    tid: int
    address: int
    mono_ns: int
    thread: str


@dataclass(frozen=True)
class Died:
    """A victim that has ended, and its files beside the run directory."""

    ended: Ended
    note: Note
    dying_seconds: float  # from the note until the test has reaped its child process
    leftovers: tuple[str, ...]


@dataclass(frozen=True)
class Libraries:
    """matrix_faults.cpp, and a second build that dies while it is loaded."""

    faults: Path
    dies_while_loading: Path


def build(directory: Path) -> Libraries:
    """Both libraries in `directory`, built by the first test process."""
    made = Libraries(directory / "libmatrix_faults.so", directory / "libmatrix_dies_while_loading.so")
    with locked(directory / "build.lock"):
        for library, define in ((made.faults, "-DFAULTS"), (made.dies_while_loading, "-DDIES_WHILE_LOADING")):
            if not library.exists():
                _compile(library, define)
    return made


def _compile(library: Path, define: str) -> None:
    command = [os.environ.get("CXX", "g++"), "-std=c++17", "-O1", "-g1", "-fPIC", "-shared", "-fopenmp", define]
    command += ["-fno-omit-frame-pointer", "-fno-stack-protector", "-Wall", "-Wextra", "-Werror"]
    aside = library.with_suffix(".new")
    command += ["-o", str(aside), str(PROGRAMS / "matrix_faults.cpp"), "-lpthread"]
    subprocess.run(command, check=True, env={**os.environ, "LD_PRELOAD": ""})
    aside.rename(library)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """One process at a time."""
    with open(path, "w", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def die(cell: Cell, way: str, run: Path, libraries: Libraries, *, small_disk: bool = False) -> Died:
    """Runs the cell's victim to its end; `way` may also be "untraced"."""
    listen, speak = os.pipe()
    token = f"{_NAME}={uuid.uuid4().hex}"
    extra = {
        "MATRIX_LIBRARY": str(libraries.faults),
        "MATRIX_DIES_WHILE_LOADING": str(libraries.dies_while_loading),
        "MATRIX_DIRECTORY": str(run.parent),
        "MATRIX_SMALL_DISK": str(int(small_disk)),
        "MATRIX_NOTE_FD": str(speak),
        "OMP_NUM_THREADS": "2",
        **dict([token.split("=")]),
    }
    env = preloaded(run, **extra) if way == "preload" and not cell.below_launcher else environment(**extra)
    process = subprocess.Popen(
        _command(cell, way, run), env=env, cwd=run.parent, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, pass_fds=(speak,), start_new_session=True,
        preexec_fn=functools.partial(_limit_cores, resource.RLIM_INFINITY if cell.leaves_core else 0),
    )  # fmt: skip
    os.close(speak)
    try:
        status, out, err, ended_ns = _to_the_end(process)
        said = os.read(listen, 1 << 12).decode()
    finally:
        os.close(listen)
    left = tuple(leftovers(token, GRACE_SECONDS))
    ended = Ended(process.pid, status, out, err, run)
    assert said.count("\n") == 1, f"{cell} reached the place of its death {said.count(chr(10))} times; {ended}"
    pid, tid, address, mono_ns, thread = said.rstrip("\n").split(" ", 4)
    note = Note(int(pid), int(tid), int(address, 16), int(mono_ns), thread)
    return Died(ended, note, (ended_ns - note.mono_ns) / 1e9, left)


def _command(cell: Cell, way: str, run: Path) -> list[str]:
    victim = [str(PROGRAMS / "matrix_victim.py"), cell.kind, cell.place, cell.state]
    if way == "enable":
        victim = [str(PROGRAMS / "enabled.py"), str(run), *victim]
    command = [sys.executable, *victim]
    if way == "preload" and cell.below_launcher:
        command = [sys.executable, "-m", "pytracer", "run", "-o", str(run), "--", *command]
    if cell.state == "ptrace forbidden":
        command = [sys.executable, str(PROGRAMS / "matrix_without_ptrace.py"), *command]
    return command


def _limit_cores(nbytes: int) -> None:
    hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
    if hard != resource.RLIM_INFINITY:
        nbytes = min(hard, nbytes) if nbytes != resource.RLIM_INFINITY else hard
    resource.setrlimit(resource.RLIMIT_CORE, (nbytes, hard))


def _to_the_end(process: subprocess.Popen[bytes]) -> tuple[int, str, str, int]:
    """Status, stdout, stderr, and the time of the wait. Processes that hold the pipes longer do not delay it."""
    assert process.stdout and process.stderr
    said = {process.stdout: b"", process.stderr: b""}
    deadline = time.monotonic() + SECONDS
    ended_ns = 0
    with selectors.DefaultSelector() as selector:
        for stream in said:
            selector.register(stream, selectors.EVENT_READ)
        while not ended_ns:
            for key, _ in selector.select(0.01):
                data = os.read(key.fd, 1 << 16)
                said[key.fileobj] += data  # type: ignore[index]
                if not data:
                    selector.unregister(key.fileobj)
            if process.poll() is not None:
                ended_ns = time.monotonic_ns()
            elif time.monotonic() > deadline:
                process.kill()
                process.wait()
                raise AssertionError(f"did not end within {SECONDS} s: {said}")
    for stream in said:
        os.set_blocking(stream.fileno(), False)
        with contextlib.suppress(BlockingIOError):
            while data := os.read(stream.fileno(), 1 << 16):
                said[stream] += data
        stream.close()
    out, err = (text.decode(errors="replace") for text in said.values())
    return process.returncode, out, err, ended_ns
