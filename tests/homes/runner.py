"""Runs one cell's job, and judges what the report has."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pytracer.analyze.engine import build_report
from pytracer.decode.job.merge import load_job
from pytracer.report.job import ProcessReport, Report
from tests.homes.environments import ROOT, installed, python_of
from tests.homes.homes import PROGRAMS, Cell, Home
from tests.homes.services import SERVICES
from tests.support.crash import environment, preloaded
from tests.support.leftovers import leftovers
from tests.support.memory_cgroup import enter, memory_cgroup

SECONDS = 150
LEFT_SECONDS = 5
HANGS_SECONDS = 12  # more than it takes until a rank is said to stand still


@dataclass(frozen=True)
class Outcome:
    """A job that has ended."""

    status: int
    stdout: str
    stderr: str


def missing(home: Home) -> str | None:
    """Why the home cannot be tried here."""
    if not installed(home.environment):
        return f"build/homes/{home.environment} is not installed: make test-homes"
    absent = [name for name in home.needs if shutil.which(name) is None]
    return f"not installed: {', '.join(absent)}" if absent else None


def run(home: Home, death: str, work: Path, recordings: Path | None) -> Outcome:
    """The home's job in `work`, untraced without `recordings`; kills the process that asks for it."""
    with _service(home, work) as variables:
        return _run(home, death, work, recordings, variables)


@contextlib.contextmanager
def _service(home: Home, work: Path) -> Iterator[dict[str, str]]:
    if home.service is None:
        yield {}
        return
    with SERVICES[home.service](work) as variables:
        yield variables


def _run(home: Home, death: str, work: Path, recordings: Path | None, variables: dict[str, str]) -> Outcome:
    python = python_of(home.environment)
    places = {
        "python": str(python), "bin": str(python.parent), "programs": str(PROGRAMS), "death": death, "work": str(work),
        "port": str(_free_port()), "root": str(ROOT),
    }  # fmt: skip
    mark = {"TEST_VICTIM": uuid.uuid4().hex}
    path = os.pathsep.join([str(python.parent), str(Path(sys.executable).parent), os.environ["PATH"]])
    own = {name: value.format(**places) for name, value in home.variables.items()}
    extra = {"HOMES_WORK": str(work), "HOMES_DEATH": death, "PATH": path, **own, **variables, **mark}
    by_variables = recordings is not None and home.way == "environment"
    env = preloaded(recordings, **extra) if by_variables and recordings else environment(**extra)
    if by_variables and recordings:
        (recordings / "boxes").mkdir(parents=True, mode=0o700)
    by_launcher = recordings is not None and not by_variables
    trace = [str(python), "-m", "pytracer", "run", "-o", str(recordings), "--"] if by_launcher else []
    once = ["--foreground"] if home.signal_once else []
    limit = ["timeout", *once, "-s", "TERM", "-k", "20", str(SECONDS)] if death in home.limited else []
    command = home.words(trace, limit, places)
    with _limited(home, death) as enters, open(work / "stdout", "w+") as out, open(work / "stderr", "w+") as err:
        job = subprocess.Popen(
            command, env=env, cwd=work, stdin=subprocess.DEVNULL, stdout=out, stderr=err, preexec_fn=enters
        )
        status = _wait(job, work, mark["TEST_VICTIM"], "hangs" if death == "hang" else "dies" if limit else None)
        left = leftovers(mark["TEST_VICTIM"], LEFT_SECONDS)  # of a launcher that ended before its processes
        leftovers(mark["TEST_VICTIM"])  # they have ended, too, when their recordings are read
        texts = [Path(file.name).read_text(encoding="utf-8", errors="replace") for file in (out, err)]
    assert status is not None, "\n".join([f"{command} did not end within {SECONDS} s", *left, *texts])
    return Outcome(status, *texts)


@contextlib.contextmanager
def _limited(home: Home, death: str) -> Iterator[Callable[[], None] | None]:
    """What puts the job into a memory cgroup whose limit the OOM killer enforces.

    Raises:
        NoMemoryCgroup: it cannot be made here.
    """
    if death != "oom" or home.limit_gib is None:
        yield None
        return
    with memory_cgroup(home.limit_gib << 30) as group:
        yield lambda: enter(group)


def _wait(job: subprocess.Popen[bytes], work: Path, mark: str, stands: str | None) -> int | None:
    """The status; None if the job had to be ended here. `stands`: what it writes when it stands still from then on."""
    end = time.monotonic() + SECONDS
    over: float | None = None
    while time.monotonic() < end:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return job.wait(0.1)
        if pid := _told(work / "victim"):
            time.sleep(0.5)  # the others wait for it by then
            os.kill(_outside(pid, mark), signal.SIGKILL)
        if stands is not None and _told(work / stands):
            over = time.monotonic() + HANGS_SECONDS
        if over is not None and time.monotonic() > over:
            over = None
            os.kill(_time_limit(mark), signal.SIGALRM)  # as its own timer does when the time is over
    job.kill()
    job.wait()
    return None


def _told(file: Path) -> int | None:
    if not file.exists():
        return None
    pid = int(file.read_text())
    file.unlink()
    return pid


def _time_limit(mark: str) -> int:
    """The pid of the job's timeout(1), whose limit does not depend on how busy the machine is."""
    for name in Path("/proc").glob("[0-9]*/comm"):
        with contextlib.suppress(OSError):
            if name.read_text().strip() == "timeout" and mark in name.with_name("environ").read_text():
                return int(name.parent.name)
    raise AssertionError("the job has no time limit")


def _outside(pid: int, mark: str) -> int:
    """Its pid here: the process wrote the one that it has in its own PID namespace."""
    for status in Path("/proc").glob("[0-9]*/status"):
        with contextlib.suppress(OSError):
            numbers = re.search(r"^NSpid:(.*)$", status.read_text(), re.MULTILINE)
            if numbers and numbers[1].split()[-1] == str(pid) and mark in status.with_name("environ").read_text():
                return int(status.parent.name)
    raise AssertionError(f"process {pid} of the job has gone before it was to be killed")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def report_of(recordings: Path) -> Report:
    """What `pytracer inspect` says."""
    return build_report(load_job(recordings))


def judge(cell: Cell, report: Report) -> list[str]:
    """What differs from the cell's truth."""
    verdict = report.verdict
    if verdict is None:
        return ["there is no verdict"]
    problems = []
    if verdict.class_ not in cell.classes:
        problems.append(f"the class is {verdict.class_}")
    if cell.rank is not None and _rank(report) != cell.rank:
        problems.append(f"the culprit is rank {_rank(report)}")
    if cell.role is not None and cell.role not in (_culprit_role(report) or ""):
        problems.append(f"the culprit is a {_culprit_role(report)}")
    if cell.place is not None and cell.place not in _places(report):
        problems.append(f"{cell.place} is not named")
    for where, words, text in (("headline", cell.headline, verdict.summary), ("next step", cell.next, verdict.advice)):
        problems += [f"the {where} lacks {word!r}" for word in words if word.lower() not in (text or "").lower()]
    return problems


def confidently_wrong(cell: Cell, report: Report) -> bool:
    """Certain of a class or a rank that is not the truth."""
    verdict = report.verdict
    if verdict is None or verdict.confidence != "certain":
        return False
    return verdict.class_ not in cell.classes or (cell.rank is not None and _rank(report) not in (None, cell.rank))


def _culprits(report: Report) -> list[ProcessReport]:
    verdict = report.verdict
    assert verdict is not None
    found = [p for p in report.processes or () if p.pid == verdict.pid]
    return found or [p for p in report.processes or () if verdict.rank is not None and p.rank == verdict.rank]


def _rank(report: Report) -> int | None:
    verdict = report.verdict
    assert verdict is not None
    if verdict.rank is not None:
        return verdict.rank
    return next((p.rank if p.rank is not None else p.parent_rank for p in _culprits(report)), None)


def _culprit_role(report: Report) -> str | None:
    return next((process.role for process in _culprits(report)), None)


def _places(report: Report) -> set[str]:
    """Lines in the words of the verdict, and in the culprit's stacks."""
    verdict = report.verdict
    assert verdict is not None
    words = set(re.findall(r"[\w.]+:\d+", f"{verdict.summary} {verdict.advice}"))
    for process in _culprits(report):
        for stack in (process.python_stack, *(thread.python_stack for thread in process.threads or ())):
            words |= {f"{Path(frame.file or '').name}:{frame.line}" for frame in stack or ()}
    return words


def comparable(home: Home, outcome: Outcome) -> tuple[int, list[str]]:
    """Status and stdout, without what differs in two untraced runs, too."""
    text = outcome.stdout
    for pattern in home.unlike:
        text = re.sub(pattern, "", text, flags=re.MULTILINE)
    return outcome.status, text.splitlines()
