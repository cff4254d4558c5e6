"""Runs generated programs: those that are not below the launcher as forks of one process that has imported torch."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from pytracer._errors import InputError
from pytracer.analyze.engine import build_report
from pytracer.decode.job.load import load_runs
from pytracer.report.job import Report
from tests.generated.generator import Program
from tests.support.crash import environment, preloaded

PROGRAMS = Path(__file__).resolve().parent / "programs"
_SECONDS = 90
_FORKS = 100  # of one zygote: another one has another layout of its memory


@dataclass(frozen=True)
class Died:
    """What a program left: what it noted about itself, its status, and the report. None: it left no recording."""

    notes: dict[str, Any]
    status: int | None
    report: Report | None
    path: Path


def build(directory: Path) -> Path:
    """The native libraries in `directory`, compiled by whichever process comes first."""
    directory.mkdir(parents=True, exist_ok=True)
    with open(directory / "build.lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _compile(directory / "libaccess.so", "access.cpp", _ACCESS)
        _compile(directory / "libfrom_blob.so", "from_blob.cpp", _against_torch())
    return directory


_ACCESS = [
    "-std=c++17",
    "-O1",
    "-g1",
    "-fopenmp",
    "-fno-omit-frame-pointer",
    "-fno-stack-protector",
    "-Wall",
    "-Wextra",
    "-Werror",
]


def _against_torch() -> list[str]:
    import torch
    from torch.utils.cpp_extension import include_paths, library_paths

    include = [*include_paths(), sysconfig.get_path("include")]
    flags = [f"-I{path}" for path in include] + [f"-L{path}" for path in library_paths()]
    abi = int(torch.compiled_with_cxx11_abi())
    return ["-std=c++20", "-O0", f"-D_GLIBCXX_USE_CXX11_ABI={abi}", *flags, "-ltorch_python", "-ltorch_cpu", "-lc10"]


def _compile(library: Path, source: str, flags: list[str]) -> None:
    origin = PROGRAMS / source
    if library.exists() and library.stat().st_mtime >= origin.stat().st_mtime:
        return
    aside = library.with_suffix(".new")
    command = [os.environ.get("CXX", "g++"), "-fPIC", "-shared", "-o", str(aside), str(origin), *flags, "-lpthread"]
    subprocess.run(command, check=True, env={**os.environ, "LD_PRELOAD": ""})
    aside.rename(library)


def read_again(program: Program, path: Path) -> Died:
    """What a program left in its folder."""
    words: dict[str, Any] = {}
    for line in (path / "note").read_text(encoding="utf-8").splitlines():
        words |= json.loads(line)
    run = path / "run"
    try:
        report = build_report(load_runs(str(run), light=True)) if list(run.glob("boxes/*.blackbox")) else None
        if report is not None and "pid" in words and words["pid"] not in {item.pid for item in report.processes or []}:
            report = None  # a fork that recorded nothing has no file: only what it started has one
    except InputError:  # its only recording was overwritten, or it was killed while it made it
        report = None
    return Died(words, json.loads((path / "status").read_text(encoding="utf-8")), report, path)


class Runner:
    """Runs programs one after the other in folders of `directory`; `libraries`: of those that import kit."""

    def __init__(self, directory: Path, libraries: Path | None) -> None:
        self._directory = directory
        self._libraries = libraries
        self._zygotes: dict[str, _Zygote] = {}

    def __enter__(self) -> Runner:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for zygote in self._zygotes.values():
            zygote.close()

    def run(self, program: Program) -> Died:
        """Runs the program to its end, and reads what it left."""
        path = self._directory / str(program.seed)
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(parents=True)
        source, run, note = path / f"generated_{program.seed}.py", path / "run", path / "note"
        source.write_text(program.source, encoding="utf-8")
        note.touch()
        extra = {"GENERATED_NOTE": str(note)}
        if program.launcher == "run":
            status = self._below_launcher(source, run, extra)
        else:
            status = self._forked(program.launcher, source, run, extra)
        (path / "status").write_text(json.dumps(status), encoding="utf-8")
        return read_again(program, path)

    def _variables(self, **extra: str) -> dict[str, str]:
        python_path = os.pathsep.join([str(PROGRAMS), environment()["PYTHONPATH"]])
        own = {"GENERATED_LIBRARIES": str(self._libraries)} if self._libraries is not None else {}
        return {**own, "PYTHONPATH": python_path, "OMP_NUM_THREADS": "2", **extra}

    def _below_launcher(self, source: Path, run: Path, extra: dict[str, str]) -> int | None:
        """None where it had to be ended: its parent waits without end at a semaphore that the fault overwrote."""
        command = [sys.executable, "-m", "pytracer", "run", "-o", str(run), "--", sys.executable, str(source)]
        with open(source.with_name("output.txt"), "w", encoding="utf-8") as output:
            process = subprocess.Popen(
                command, env=environment(**self._variables(**extra)), cwd=source.parent, stdin=subprocess.DEVNULL,
                stdout=output, stderr=output, start_new_session=True,
            )  # fmt: skip
            try:
                return process.wait(timeout=_SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                return None

    def _forked(self, launcher: str, source: Path, run: Path, extra: dict[str, str]) -> int | None:
        zygote = self._zygotes.get(launcher)
        if zygote is None or zygote.forks >= _FORKS:
            if zygote is not None:
                zygote.close()
            zygote = self._zygotes[launcher] = _Zygote(
                self._directory / f"zygote-{launcher}-{os.getpid()}", launcher, self._variables()
            )
        if launcher == "enable":
            extra["GENERATED_ENABLE"] = str(run)
        before = zygote.boxes()
        answer = zygote.run(source, extra)
        made = zygote.boxes() - before
        if made:
            (run / "boxes").mkdir(parents=True)
            run.chmod(0o700)
            for box in made:
                box.rename(run / "boxes" / box.name)
        status = answer["status"]
        assert status is None or isinstance(status, int)
        return status


class _Zygote:
    """programs/zygote.py, traced by preloading or not at all."""

    def __init__(self, directory: Path, launcher: str, variables: dict[str, str]) -> None:
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        self._run = directory / "run"
        env = preloaded(self._run, **variables) if launcher == "preload" else environment(**variables)
        self.forks = 0
        self._process = subprocess.Popen(
            [sys.executable, str(PROGRAMS / "zygote.py")], env=env, cwd=directory, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip

    def boxes(self) -> set[Path]:
        """The recordings of the zygote's run."""
        return set((self._run / "boxes").glob("*.blackbox"))

    def run(self, source: Path, variables: dict[str, str]) -> dict[str, Any]:
        """One program, to its end."""
        self.forks += 1
        requests, answers = self._process.stdin, self._process.stdout
        assert requests is not None and answers is not None
        self._write(requests, {"program": str(source), "environment": variables})
        line = answers.readline()
        assert line, f"the zygote ended with {self._process.wait()}"
        answer = json.loads(line)
        assert isinstance(answer, dict)
        return answer

    @staticmethod
    def _write(to: IO[bytes], request: dict[str, Any]) -> None:
        to.write(json.dumps(request).encode() + b"\n")
        to.flush()

    def close(self) -> None:
        """Ends it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=_SECONDS)
        assert self._process.stdout is not None
        self._process.stdout.close()
