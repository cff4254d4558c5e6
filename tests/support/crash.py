"""Runs a victim: a program of tests/crash/programs/ in a process of its own, traced or not, and reads what it left."""

from __future__ import annotations

import functools
import os
import resource
import shutil
import subprocess
import sys
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytracer.analyze.engine import build_report
from pytracer.decode.job.merge import load_job
from pytracer.decode.recording.reader import read_box
from pytracer.decode.types.snapshot import Job, PythonFrame, Snapshot
from pytracer.report.job import Report
from tests.support.cli import ROOT, clean_environment
from tests.support.leftovers import leftovers

PROGRAMS = ROOT / "tests" / "crash" / "programs"
EXAMPLES = ROOT / "examples"
CORE = ROOT / "pytracer" / "libpytracer_core.so"
SECONDS = 120

# pytorch/pytorch#190489: a rank that ends well aborts while its interpreter ends, because a thread of gloo's drops a
# Python object, waits for the GIL, and is ended by pthread_exit() inside a noexcept function. The one reason to run a
# job again.
_FLAKE = ("terminate called without an active exception", "FATAL: exception not rethrown")
_FLAKE_STATUS = "exitcode: -6)"  # how torchrun reports SIGABRT


@dataclass(frozen=True)
class Ended:
    """A victim that has ended. `status` is negative for a signal, as in subprocess."""

    pid: int
    status: int
    stdout: str
    stderr: str
    run: Path

    @property
    def boxes(self) -> list[Snapshot]:
        """Every black box of the run, oldest first."""
        found = [read_box(path) for path in (self.run / "boxes").glob("*.blackbox") if _was_written(path)]
        return sorted(found, key=lambda box: box.created_mono_ns)

    @property
    def box(self) -> Snapshot:
        """The victim's own black box."""
        own = [box for box in self.boxes if box.pid == self.pid]
        assert own, f"no box of process {self.pid}; stderr: {self.stderr}"
        return own[-1]

    @property
    def job(self) -> Job:
        """The whole run, decoded."""
        return load_job(self.run)

    @property
    def report(self) -> Report:
        """The report about the whole run."""
        return build_report(self.job)


def _was_written(path: Path) -> bool:
    """False for the recording of a process that was killed while it made the file."""
    with open(path, "rb") as file:
        return any(file.read(8))


def environment(**extra: str) -> dict[str, str]:
    """An environment in which nothing is traced, gloo stays on this machine, and torch starts one thread."""
    base = {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}
    return clean_environment(**(base | extra))


def preloaded(run: Path, **extra: str) -> dict[str, str]:
    """An environment whose processes all record into `run`, silently, as under `pytracer run`."""
    return environment(LD_PRELOAD=str(CORE), PYTRACER_DIR=str(run), PYTRACER_LAUNCHER="1", **extra)


def victim(
    program: str | Path,
    *arguments: str | Path,
    run: Path,
    way: str = "preload",
    python: str = sys.executable,
    options: tuple[str, ...] = (),
    core_bytes: int = 0,
    **extra: str,
) -> Ended:
    """Runs a program of tests/crash/programs/ to its end.

    `way` is "preload", "enable" (the program is run after pytracer.enable(run)) or "untraced". `run` is the run
    directory; its parent is the current directory of the victim. `extra` are environment variables.
    """
    path = PROGRAMS / program
    words = [str(path), *map(str, arguments)]
    if way == "enable":
        words = [str(PROGRAMS / "enabled.py"), str(run), *words]
    env = preloaded(run, **extra) if way == "preload" else environment(**extra)
    return ended([python, *options, *words], env, run, core_bytes=core_bytes)


def ended(command: Sequence[str | Path], env: dict[str, str], run: Path, *, core_bytes: int = 0) -> Ended:
    """Any command, run to its end beside the run directory."""
    mark = {"TEST_VICTIM": uuid.uuid4().hex}
    process = subprocess.Popen(
        [str(word) for word in command], env=env | mark, cwd=run.parent, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace",
        preexec_fn=functools.partial(resource.setrlimit, resource.RLIMIT_CORE, _core_limit(core_bytes)),
    )  # fmt: skip
    try:
        out, err = process.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        left = leftovers(mark["TEST_VICTIM"], 0)  # all of them: ranks in other sessions hold the pipes, too
        out, err = process.communicate(timeout=SECONDS)
        words = "\n".join([f"{command} did not end within {SECONDS} s", *left, out, err])
        raise AssertionError(words) from None
    return Ended(process.pid, process.returncode, out, err, run)


def _core_limit(wanted: int) -> tuple[int, int]:
    hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
    return (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard)


def traced_run(*command: str | Path, run: Path, options: tuple[str, ...] = (), **extra: str) -> Ended:
    """`pytracer run -o RUN OPTIONS -- COMMAND`. The pid is the launcher's; exit codes are those of a shell."""
    return ended(
        [sys.executable, "-m", "pytracer", "run", "-o", str(run), *options, "--", *command], environment(**extra), run
    )


def torchrun(program: str | Path, *arguments: str, ranks: int = 2) -> list[str]:
    """The command that starts `program` on several ranks of this machine."""
    beside = Path(sys.executable).with_name("torchrun")
    start = [str(beside)] if beside.exists() else [sys.executable, "-m", "torch.distributed.run"]
    return [*start, "--standalone", "--nproc-per-node", str(ranks), str(program), *arguments]


def new_store(run: Path) -> str:
    """A path beside the run directory for the file store of one job.

    Never the same path twice: a crashed job leaves its store, and ranks of the next one would wait forever for the
    addresses in it.
    """
    return str(run.parent / f"store.{uuid.uuid4().hex}")


def healthy(act: Any, again: Any) -> Ended:
    """The result of `act()`; of `again()`, once, when torch's own abort at interpreter shutdown ended it."""
    done: Ended = act()
    if done.status != 0 and _FLAKE_STATUS in done.stderr and any(words in done.stderr for words in _FLAKE):
        done = again()
    return done


def own_frames(frames: tuple[PythonFrame, ...]) -> list[tuple[str, str, int | None]]:
    """Frames of files in tests/ and examples/, innermost first: function, name of the file, line."""
    known = (str(PROGRAMS), str(EXAMPLES))
    inside = [f for f in frames if f.file.startswith(known) and not f.file.endswith("/enabled.py")]
    return [(f.function, Path(f.file).name, f.line) for f in inside]


def line_of(program: str | Path, text: str, *, whole: bool = False) -> int:
    """The number of the one line of a program that contains `text`, or equals it if `whole`."""
    lines = (PROGRAMS / program).read_text(encoding="utf-8").splitlines()
    found = [number for number, line in enumerate(lines, 1) if (line == text if whole else text in line)]
    assert len(found) == 1, f"{text!r} is on {len(found)} lines of {program}"
    return found[0]


@functools.lru_cache(maxsize=4)
def compiled(directory: Path) -> Path:
    """tests/crash/programs/faults.c as a shared library: the native half of the victims."""
    compiler = shutil.which("cc") or "gcc"
    library = directory / "libfaults.so"
    subprocess.run(
        [
            compiler,
            "-O1",
            "-g",
            "-fPIC",
            "-shared",
            "-fno-omit-frame-pointer",
            "-o",
            str(library),
            str(PROGRAMS / "faults.c"),
        ]
        + ["-lpthread"],
        check=True,
        env={**os.environ, "LD_PRELOAD": ""},
    )
    return library
