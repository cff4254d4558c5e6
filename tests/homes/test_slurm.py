"""`srun pytracer run` on a real Slurm: one run and one report per step, and what Slurm itself did has its name."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytracer.analyze.engine import build_report
from pytracer.decode.job.load import load_runs
from pytracer.report.job import Report, Verdict
from tests.conditions import needs_core
from tests.homes.slurm import Slurm, slurm_cluster, why_not
from tests.support.crash import environment

pytestmark = [
    needs_core,
    pytest.mark.every_home,
    pytest.mark.skipif(why_not() is not None, reason=why_not() or ""),
    pytest.mark.timeout(200),
]
RUN = (sys.executable, "-m", "pytracer", "run")
PYTHON = ("--", sys.executable, "-c")
FAULT = "import ctypes, os, time\nif os.environ['SLURM_PROCID'] == '3':\n    ctypes.string_at(0)\ntime.sleep({})\n"
SLEEP = "import time; time.sleep(300)"


@pytest.fixture(scope="module")
def slurm() -> Iterator[Slurm]:
    """A cluster of two nodes, whose tasks are traced as in the other tests."""
    with slurm_cluster() as cluster:
        cluster.environment |= environment(PATH=cluster.environment["PATH"])
        yield cluster


def verdict_of(run: Path) -> tuple[Report, Verdict]:
    """What `pytracer inspect` reports."""
    report = build_report(load_runs(run))
    assert report.verdict is not None
    return report, report.verdict


def lines_of(done: subprocess.CompletedProcess[str]) -> list[str]:
    """What the launchers printed."""
    return [line for line in done.stderr.splitlines() if line.startswith("pytracer: ")]


def test_step_on_two_nodes_is_one_run_and_one_line(slurm: Slurm, tmp_path: Path) -> None:
    """Without -o."""
    done = slurm.run("srun", "-N2", "-n4", "--ntasks-per-node=2", *RUN, *PYTHON, "print(1)", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "1\n" * 4), done.stderr
    (run,) = (path for path in (tmp_path / "runs").iterdir() if not path.is_symlink())
    assert lines_of(done) == [f"pytracer: recorded in runs/{run.name}"]
    launchers = load_runs(run).launchers
    assert sorted((item.task.rank, item.task.node) for item in launchers if item.task) == [
        (0, "left"), (1, "left"), (2, "right"), (3, "right"),
    ]  # fmt: skip


@pytest.mark.parametrize("option", ["--kill-on-bad-exit=0", "--kill-on-bad-exit=1"])
def test_one_task_reports_for_all(option: str, slurm: Slurm, tmp_path: Path) -> None:
    """The report comes first even where Slurm ends all tasks at the first that fails."""
    words = (*RUN, "-o", "run", "--task-wait", "8", *PYTHON, FAULT.format(25))
    done = slurm.run("srun", option, "-N2", "-n4", *words, cwd=tmp_path)
    assert done.stderr.count("Rank 3 read through a null pointer") == 1, done.stderr
    waits = "pytracer: rank 3 was ended by SIGSEGV; the report follows in 6 s, or when all tasks have ended"
    assert lines_of(done)[:2] == [
        waits,
        "pytracer: 3 tasks were still running at the time of the report; `pytracer inspect run` makes it again",
    ]
    assert "task 3: Exited with exit code 139" in done.stderr
    assert verdict_of(tmp_path / "run")[1].class_ == "null-dereference"


def test_two_steps_at_once_are_two_runs(slurm: Slurm, tmp_path: Path) -> None:
    """In one job and one directory."""
    step = " ".join(["srun -n2 --exact", *RUN, "--quiet", "--", "true"])
    done = slurm.run("salloc", "-N2", "-n4", "bash", "-c", f"{step} & {step} & wait", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    names = sorted(path.name for path in (tmp_path / "runs").glob("slurm-*"))
    assert [name.rpartition(".")[2] for name in names] == ["0", "1"]
    assert {len(load_runs(tmp_path / "runs" / name).launchers) for name in names} == {2}


def test_requeued_job_has_a_run_of_its_own(slurm: Slurm, tmp_path: Path) -> None:
    """Slurm starts it again under its number."""
    step = " ".join(["srun", *RUN, "--quiet", "--", "true"])
    script = f'#!/bin/bash\n{step}\n[ -n "$SLURM_RESTART_COUNT" ] || exit 99\n'  # RequeueExit
    (tmp_path / "job").write_text(script, encoding="utf-8")
    done = slurm.run("sbatch", "--parsable", "--requeue", "-n2", "job", cwd=tmp_path)
    number = done.stdout.strip()
    slurm.run("scontrol", "update", f"JobId={number}", "StartTime=now")
    again = tmp_path / "runs" / f"slurm-{number}.0-requeue1"
    until = time.monotonic() + 150
    while not (again / "ended.1").exists() and time.monotonic() < until:
        slurm.run("scontrol", "update", f"JobId={number}", "StartTime=now")  # Slurm waits for two minutes
        time.sleep(1)
    assert again.exists(), slurm.run("scontrol", "show", "job", number).stdout
    assert (tmp_path / "runs" / f"slurm-{number}.0").exists()


def test_time_limit_is_named(slurm: Slurm, tmp_path: Path) -> None:
    """By Slurm's own account: SIGTERM alone may have another reason."""
    done = slurm.run("srun", "-t", "0:10", "-N2", "-n4", *RUN, "-o", "run", *PYTHON, SLEEP, cwd=tmp_path)
    report, verdict = verdict_of(tmp_path / "run")
    assert (verdict.class_, verdict.confidence) == ("external-kill", "certain")
    assert (verdict.summary or "").startswith("Ranks 0, 1, 2 and 3 were ended by SIGTERM, sent by "), verdict.summary
    assert "(slurmstepd: [" in (verdict.summary or "")
    assert "at the time limit of the job, 00:01:00" in (verdict.summary or "")  # Slurm counts minutes
    assert "--time" in (verdict.advice or "")
    assert " ".join(done.stderr.split()).count("at the time limit of the job") == 1
    assert [process.status.signal for process in report.processes or () if process.status] == [15] * 4


def test_scancel_is_no_time_limit(slurm: Slurm, tmp_path: Path) -> None:
    """The look-alike: the same signal from the same sender."""
    step = " ".join(["srun", "-n2", *RUN, "-o", "run", "--", "sleep", "300"])
    (tmp_path / "job").write_text(f"#!/bin/bash\n{step}\n", encoding="utf-8")
    number = slurm.run("sbatch", "--parsable", "-n2", "-t", "5", "-o", "out", "job", cwd=tmp_path).stdout.strip()
    until = time.monotonic() + 60
    while len(list((tmp_path / "run").glob("run*.json"))) < 2 and time.monotonic() < until:
        time.sleep(0.2)
    time.sleep(2)
    slurm.run("scancel", number)
    while not (tmp_path / "run" / "report.json").exists() and time.monotonic() < until:
        time.sleep(0.2)
    verdict = verdict_of(tmp_path / "run")[1]
    assert (verdict.class_, verdict.confidence) == ("external-kill", "certain")
    assert "(slurmstepd: [" in (verdict.summary or "") and "time limit" not in (verdict.summary or "")
    assert "sacct -j" in (verdict.advice or "")


def test_slurms_memory_limit_is_the_oom_killer(tmp_path: Path) -> None:
    """The cgroup of the step counts it; the other task is no victim."""
    grow = (
        "import os, time\nheld = []\n"
        "while os.environ['SLURM_PROCID'] == '1':\n    held.append(b'x' * (8 << 20))\ntime.sleep(3)"
    )
    with slurm_cluster(memory_limits=True) as slurm:
        slurm.environment |= environment(PATH=slurm.environment["PATH"])
        done = slurm.run("srun", "-n2", "--mem=300M", *RUN, "-o", "run", *PYTHON, grow, cwd=tmp_path)
    _, verdict = verdict_of(tmp_path / "run")
    assert (verdict.class_, verdict.rank) == ("oom-kill", 1), done.stderr
    assert verdict.confidence == "certain"
