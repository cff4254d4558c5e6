"""A peer: code of another project, run untraced and traced, with named results.

A result is a string, which must be equal, or an int, which must be within a fifth: the number of lines of a crash log.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.cli import ROOT, clean_environment

CORE = ROOT / "pytracer" / "libpytracer_core.so"
PROGRAMS = Path(__file__).parent / "programs"
UNTRACED, ENVIRONMENT, LAUNCHER = "untraced", "environment", "launcher"
WAYS = (ENVIRONMENT, LAUNCHER)
Results = dict[str, "str | int"]


@dataclass(frozen=True)
class Done:
    """A command that has ended; the status is a shell's, or "did not end"."""

    status: int | str
    stdout: str
    stderr: str

    @property
    def lines(self) -> list[str]:
        """Lines on stderr that are not the recorder's."""
        return [line for line in self.stderr.splitlines() if not line.startswith("pytracer: ")]


@dataclass(frozen=True)
class Setting:
    """One run of a peer: its own directory and a way to trace."""

    way: str
    directory: Path
    options: tuple[str, ...] = ()  # of `pytracer run`
    every: int = 1  # of a long list, take each n-th

    @property
    def run_directory(self) -> Path:
        """Where the recording goes."""
        return self.directory / "recording"

    @property
    def work(self) -> Path:
        """The current directory of the command."""
        return self.directory / "work"

    def command(self, words: Sequence[str | Path]) -> list[str]:
        """The command of `words` in this way."""
        plain = [str(word) for word in words]
        if self.way == ENVIRONMENT:
            # PYTRACER_LAUNCHER: without the line on stderr for each crash, which suites take for program output.
            return ["env", f"LD_PRELOAD={CORE}", f"PYTRACER_DIR={self.run_directory}", "PYTRACER_LAUNCHER=1", *plain]
        if self.way == LAUNCHER:
            start = [sys.executable, "-m", "pytracer", "run", "--no-report", "--force", "-o", str(self.run_directory)]
            return [*start, *self.options, "--", *plain]
        return plain

    def start(self, words: Sequence[str | Path], **env: str) -> subprocess.Popen[str]:
        """Starts a command in its own session."""
        return subprocess.Popen(
            self.command(words), cwd=self.work, env=_environment(self.work, env), stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace", start_new_session=True,
            preexec_fn=functools.partial(resource.setrlimit, resource.RLIMIT_CORE, (0, 0)),
        )  # fmt: skip

    def run(self, words: Sequence[str | Path], *, seconds: float = 120, **env: str) -> Done:
        """Runs a command to its end."""
        return ended(self.start(words, **env), seconds)


def ended(process: subprocess.Popen[str], seconds: float = 60) -> Done:
    """Waits for a process; ends it and its session when it does not end."""
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        return Done("did not end", out, err)
    status = process.returncode
    return Done(128 - status if status < 0 else status, out, err)


def _environment(work: Path, extra: Mapping[str, str]) -> dict[str, str]:
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    base = {
        "TMPDIR": str(work),
        "HOME": str(work),
        "PYTHONPATH": path,
        "LC_ALL": "C.UTF-8",
        "OMP_NUM_THREADS": "1",
        "PYTHONHASHSEED": "0",
    }
    return clean_environment(**(base | dict(extra)))


@dataclass(frozen=True)
class Peer:
    """Code of another project. `why_not()` is empty where it can be run, `act` runs it."""

    name: str
    act: Callable[[Setting], Results]
    why_not: Callable[[], str] = lambda: ""
    quick: bool = False
    slow: bool = False  # for minutes: left out unless asked for by name
    modes: Mapping[str, tuple[str, tuple[str, ...]]] = field(default_factory=lambda: {way: (way, ()) for way in WAYS})


@contextlib.contextmanager
def setting(way: str, options: tuple[str, ...], every: int) -> Iterator[Setting]:
    """A fresh directory, short enough for socket names."""
    directory = Path(tempfile.mkdtemp(prefix="peer-"))
    directory.chmod(0o755)
    (directory / "work").mkdir(mode=0o777)
    try:
        yield Setting(way, directory, options, every)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def needs(*programs: str) -> Callable[[], str]:
    """Why a peer cannot be run: programs that are missing."""

    def why_not() -> str:
        missing = [program for program in programs if not shutil.which(program)]
        return f"{', '.join(missing)} not installed" if missing else ""

    return why_not


def source_tree(name: str) -> Path | None:
    """A source tree in PYTRACER_PEER_SOURCES, unpacked there by `apt-get source`."""
    found = sorted(Path(os.environ.get("PYTRACER_PEER_SOURCES", "/nowhere")).glob(f"{name}*/"))
    return found[0] if found else None


def no_source(name: str) -> str:
    """Why a peer cannot be run: its sources are missing."""
    return "" if source_tree(name) else f"no {name} below PYTRACER_PEER_SOURCES (apt-get source {name})"


def unittests(at: Setting, python: str, names: Sequence[str], *, seconds: float, **env: str) -> Results:
    """Runs unittest's tests by name, each with its own result; a test in which the process died is "died"."""
    found = at.work / "results.jsonl"
    found.unlink(missing_ok=True)
    words: list[str | Path] = [python, PROGRAMS / "unittest_results.py", found, str(at.every), *names]
    done = at.run(words, seconds=seconds, **env)
    results: Results = {}
    with contextlib.suppress(OSError):
        for line in found.read_text(encoding="utf-8").splitlines():
            name, result = json.loads(line)
            results[name] = result
    results["exit status"] = str(done.status)
    return results


def unittests_in_slices(
    at: Setting, python: str, modules: Sequence[str], *, size: int, seconds: float, **env: str
) -> Results:
    """The same with a process for each `size` tests: one that does not end costs the results of its slice only."""
    program = PROGRAMS / "unittest_names.py"
    environment = _environment(at.work, env)
    listed = subprocess.run([python, program, *modules], env=environment, cwd=at.work, capture_output=True, text=True)
    if listed.returncode != 0:
        return {"listing": listed.stderr[-300:]}
    names = listed.stdout.split()[:: at.every]
    results: Results = {}
    for first in range(0, len(names), size):
        some = names[first : first + size]
        found = unittests(dataclasses.replace(at, every=1), python, some, seconds=seconds, **env)
        status = found.pop("exit status")
        results |= found | {f"exit status from {some[0]}": status}
    return results


def site() -> str:
    """Where this interpreter's packages are."""
    return sysconfig.get_path("purelib")
