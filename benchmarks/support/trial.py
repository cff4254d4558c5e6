"""One death of `victim.py`: starts it in one of several ways and measures after how many ms each result exists."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from pytracer.decode.recording.reader import read_box
from pytracer.decode.types.snapshot import Crash
from pytracer.launcher import run_directory

VICTIM = Path(__file__).resolve().with_name("victim.py")
ROOT = VICTIM.parents[2]
SECONDS = 300
# Steps of a minimal report; later steps add to it.
MINIMAL = ("SIGNAL", "PYTHON_STACK", "STORAGE_LOOKUP", "NATIVE_STACK", "IMAGES", "MAPS")


class TrialError(Exception):
    """The victim did not die as expected."""


@dataclass(frozen=True)
class Scenario:
    """How large the victim is."""

    name: str
    resident_bytes: int
    threads: int = 1
    torch: bool = False


@dataclass
class Trial:
    """Moments in ms after the fault, those that there are; `kept_bytes` is the size of the evidence.

    `missing` are steps that the report lacks; `stacks` the number of other threads' stacks, `threads_how` the method.
    """

    moments: dict[str, float] = field(default_factory=dict)
    resident_bytes: int = 0
    kept_bytes: int = 0
    missing: tuple[str, ...] = ()
    threads_how: str | None = None
    stacks: int = 0


@dataclass(frozen=True)
class _End:
    status: int
    ended_ns: int
    last_byte_ns: int
    text: bytes


def untraced(scenario: Scenario) -> Trial:
    """No handler at all."""
    return _died_alone(scenario, _environment(), lambda _directory, _end, _since: Trial())


def faulthandler(scenario: Scenario) -> Trial:
    """Python's own handler, writing to a pipe."""

    def look(_directory: Path, end: _End, since: Callable[[int], float]) -> Trial:
        if b"Fatal Python error" not in end.text:
            raise TrialError("faulthandler wrote no report")
        last = since(end.last_byte_ns)
        return Trial({"report": last, "readable": last}, kept_bytes=len(end.text))

    return _died_alone(scenario, {**_environment(), "PYTHONFAULTHANDLER": "1"}, look)


def pytracer_environment(scenario: Scenario) -> Trial:
    """The preloaded core without a launcher: `scripts/pytracer-run`."""
    with tempfile.TemporaryDirectory(prefix="pytracer-bench-") as recording:
        run = run_directory.Run(Path(recording), Path(recording))
        run.boxes.mkdir(mode=0o700)
        environment = run_directory.environment(run, "default", _environment())

        def look(_directory: Path, _end: _End, since: Callable[[int], float]) -> Trial:
            return _report(run.boxes, since)

        return _died_alone(scenario, environment, look)


def pytracer_run(scenario: Scenario) -> Trial:
    """`pytracer run`, with all that its launcher does; the report is readable when it has been printed."""
    with tempfile.TemporaryDirectory(prefix="pytracer-bench-") as name:
        directory = Path(name)
        command = [sys.executable, "-m", "pytracer", "run", "-o", str(directory / "run"), "--"]
        end = _run([*command, *_victim(scenario, directory)], _environment(), directory)
        record = json.loads((directory / "run" / run_directory.RUN_FILE).read_text(encoding="utf-8"))
        if record["signal"] != signal.SIGSEGV:
            raise TrialError(f"under pytracer run the victim ended with {record['exit_code']}, {record['signal']}")
        if b"victim.py" not in end.text:
            raise TrialError(f"pytracer run printed no stack: {end.text.decode(errors='replace')[-200:]}")
        fault_ns, resident = _shared(directory)

        def since(moment_ns: int) -> float:
            return (moment_ns - fault_ns) / 1e6

        trial = _report(directory / "run" / run_directory.BOXES, since)
        trial.moments |= {"ended": since(record["ended_mono_ns"]), "readable": since(end.last_byte_ns)}
        trial.resident_bytes = resident
        return trial


def core_and_pystack(scenario: Scenario) -> Trial:
    """A core dump beside the victim, read with pystack; the core is deleted at once."""
    pystack = pystack_program()
    if pystack is None:
        raise TrialError("there is no pystack")

    def look(directory: Path, end: _End, since: Callable[[int], float]) -> Trial:
        cores = [path for path in directory.iterdir() if path.name != "moments"]
        if len(cores) != 1:
            raise TrialError(f"{len(cores)} core files were written")
        kept = cores[0].stat().st_blocks * 512
        command = [pystack, "core", "--native", str(cores[0]), os.path.realpath(sys.executable)]
        done = subprocess.run(command, capture_output=True, timeout=SECONDS, check=False)
        read_ns = time.monotonic_ns()
        if done.returncode or b"victim.py" not in done.stdout:
            raise TrialError(f"pystack could not read the core: {done.stderr.decode(errors='replace')[-200:]}")
        return Trial({"report": since(end.ended_ns), "readable": since(read_ns)}, kept_bytes=kept)

    return _died_alone(scenario, _environment(), look, "core")


def pystack_program() -> str | None:
    """pystack beside this interpreter, else on PATH."""
    return shutil.which("pystack", path=str(Path(sys.executable).parent)) or shutil.which("pystack")


def pystack_version() -> str:
    """The version that the program reports: it may belong to another environment."""
    program = pystack_program()
    if program is None:
        return "none"
    return subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout.strip()


def _died_alone(
    scenario: Scenario,
    environment: dict[str, str],
    look: Callable[[Path, _End, Callable[[int], float]], Trial],
    *words: str,
) -> Trial:
    """Lets the victim die as a child of ours; `look` then finds the evidence, before the directory is deleted."""
    with tempfile.TemporaryDirectory(prefix="pytracer-bench-") as name:
        directory = Path(name)
        end = _run(_victim(scenario, directory, *words), environment, directory)
        if end.status != -signal.SIGSEGV:
            raise TrialError(f"the victim ended with {end.status}: {end.text.decode(errors='replace')[-200:]}")
        fault_ns, resident = _shared(directory)

        def since(moment_ns: int) -> float:
            return (moment_ns - fault_ns) / 1e6

        trial = look(directory, end, since)
        trial.moments["ended"] = since(end.ended_ns)
        trial.resident_bytes = resident
        return trial


def _victim(scenario: Scenario, directory: Path, *words: str) -> list[str]:
    moments = directory / "moments"
    moments.write_bytes(bytes(16))
    size, threads = str(scenario.resident_bytes), str(scenario.threads)
    return [sys.executable, str(VICTIM), str(moments), size, threads, *(["torch"] if scenario.torch else []), *words]


def _shared(directory: Path) -> tuple[int, int]:
    fault_ns, resident = struct.unpack("QQ", (directory / "moments").read_bytes())
    if not fault_ns:
        raise TrialError("the victim died before its fault")
    return fault_ns, resident


def _run(command: list[str], environment: dict[str, str], directory: Path) -> _End:
    """Stamps each piece of stderr and the end of the process as they come, in one loop."""
    text, last_byte_ns = b"", 0
    with subprocess.Popen(
        command, env=environment, cwd=directory, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stderr is not None
        stderr, ended = process.stderr.fileno(), os.pidfd_open(process.pid)
        waiting = select.poll()
        waiting.register(stderr, select.POLLIN)
        waiting.register(ended, select.POLLIN)
        try:
            while process.returncode is None:
                ready = [descriptor for descriptor, _ in waiting.poll(SECONDS * 1000)]
                if not ready:
                    process.kill()
                    raise TrialError(f"no end after {SECONDS} s")
                if stderr in ready:
                    piece = os.read(stderr, 1 << 16)
                    text, last_byte_ns = text + piece, time.monotonic_ns() if piece else last_byte_ns
                    if not piece:
                        waiting.unregister(stderr)
                elif ended in ready:
                    process.wait()
            ended_ns = time.monotonic_ns()
        finally:
            os.close(ended)
    return _End(process.returncode, ended_ns, last_byte_ns, text)


def _report(boxes: Path, since: Callable[[int], float]) -> Trial:
    """The times and steps in the crash section of the victim's recording."""
    files = sorted(boxes.glob("*" + run_directory.BOX_SUFFIX))
    crashes = [(path, crash) for path in files if (crash := read_box(path).crash) is not None]
    if len(crashes) != 1:
        raise TrialError(f"{len(crashes)} of {len(files)} black boxes hold a crash")
    path, crash = crashes[0]
    trial = Trial(kept_bytes=path.stat().st_blocks * 512, missing=_missing(crash))
    trial.moments["entered"] = since(crash.mono_ns)
    if not trial.missing:
        trial.moments["report"] = since(max(crash.step_ns[step] for step in MINIMAL))
    trial.threads_how, trial.stacks = crash.threads_how, sum(thread.state == "done" for thread in crash.threads)
    if "OTHER_THREADS" in crash.steps_done:
        trial.moments["all_threads"] = since(crash.step_ns["OTHER_THREADS"])
    return trial


def _missing(crash: Crash) -> tuple[str, ...]:
    return tuple(step for step in MINIMAL if step not in crash.steps_done or step not in crash.step_ns)


def _environment() -> dict[str, str]:
    """This process's environment, without variables that would trace or handle faults."""
    others = ("PYTRACER_", "LD_PRELOAD", "PYTHONFAULTHANDLER")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(others)}
    return {**kept, "PYTHONPATH": str(ROOT)}
