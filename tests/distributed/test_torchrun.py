"""torchrun's own table carries the verdict, its restarts are attempts, and two of its agents are one job."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pytracer.analyze.engine import build_report
from pytracer.decode.job.load import load_runs
from tests.conditions import needs_core, needs_native
from tests.distributed.jobs import PROGRAMS, agents
from tests.distributed.scenarios import WRONG
from tests.support.cli import ROOT, pytracer
from tests.support.crash import ended, environment, torchrun, traced_run

pytestmark = [needs_core, needs_native]
DEATHS = PROGRAMS / "deaths.py"


def rows(stderr: str) -> dict[int, str]:
    """The rows of torchrun's table, by rank."""
    table = stderr.partition("Failures:")[2].partition("=====")[0]
    return {int(m[1]): m[0] for m in re.finditer(r"rank +: (\d+).*?(?=\n-----|\n\[|\n=|\Z)", table, re.DOTALL)}


@pytest.mark.slow
def test_table_names_what_a_signal_hid(run: Path) -> None:
    """The victim's row has cause and place, the other's that it is a consequence; the exit code is as untraced."""
    job = torchrun(PROGRAMS / "restarts.py", str(run.with_name("store")), "fail")
    done = traced_run(*job, run=run)
    plain = ended(list(job), environment(), run)
    assert done.status == plain.status == 1
    assert "pytracer" not in plain.stderr
    found = rows(done.stderr)
    assert re.search(r"Signal 11 \(SIGSEGV\) received by PID \d+\n +pytracer: Rank 1 wrote .*null", found[1])
    assert "restarts.py:" in found[1]
    assert "pytracer: a consequence: " in found[0]
    path = re.search(r"error_file: (\S+)", found[1])
    assert path is not None
    content = json.loads(Path(path[1]).read_text(encoding="utf-8"))["message"]
    assert content["errorCode"] == -11
    assert content["pytracer"].startswith("Rank 1 wrote")
    assert content["extraInfo"]["timestamp"].isdigit()


@pytest.mark.slow
def test_table_is_torchs_own_when_the_report_cannot_be_made(run: Path) -> None:
    """The sentence is missing then, a note gives the reason, and nothing else changes."""
    job = torchrun(PROGRAMS / "restarts.py", str(run.with_name("store")), "fail")
    broken = run.with_name("broken")
    broken.mkdir()
    (broken / "msgspec.py").write_text("raise ImportError('broken on purpose')\n", encoding="utf-8")
    done = traced_run(*job, run=run, PYTHONPATH=f"{broken}:{ROOT}", options=("--no-report",))
    assert done.status == 1
    assert "pytracer:" not in "".join(rows(done.stderr).values())
    notes = [note.text for box in done.boxes for note in box.notes]
    assert any("torchrun's table was not completed" in note for note in notes)


def test_restarts_are_attempts(run: Path) -> None:
    """With no restart left the first attempt's cause leads; the last one keeps its own, with another rank and cause."""
    job = torchrun(PROGRAMS / "restarts.py", str(run.with_name("store")), "fail")
    at = job.index("--nproc-per-node")
    done = traced_run(*job[:at], "--max-restarts", "1", *job[at:], run=run)
    assert done.status == 1
    report = done.report
    assert report.verdict is not None
    verdict = report.verdict
    assert (verdict.attempt, verdict.class_, verdict.rank) == (0, "null-dereference", 1), verdict.summary
    assert report.attempts is not None
    (last,) = report.attempts
    assert last.verdict is not None
    assert (last.attempt, last.verdict.class_, last.verdict.rank) == (1, "python-exception", 0)
    assert "the second attempt" in (build_report(load_runs(run), 1).verdict or last.verdict).summary  # type: ignore[operator]
    row = " ".join(rows(done.stderr)[0].split())
    assert "pytracer: Rank 0 raised ValueError: the second attempt" in row, row  # torchrun's table is of the last one
    ranks = [(p.rank, p.attempt) for p in report.processes or [] if p.role == "rank"]
    assert sorted(ranks, key=str) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert "Rank 1 wrote" in " ".join(done.stderr.split())
    assert "later attempt 1: Rank 0 raised ValueError" in " ".join(done.stderr.split())


@pytest.mark.slow
def test_a_restart_that_helped_is_a_recovery(run: Path) -> None:
    """Neither a death nor nothing: the status is 0, and the attempt that failed has its report."""
    job = torchrun(PROGRAMS / "restarts.py", str(run.with_name("store")), "go on")
    at = job.index("--nproc-per-node")
    done = traced_run(*job[:at], "--max-restarts", "1", *job[at:], run=run)
    assert done.status == 0
    report = done.report
    assert report.verdict is not None
    assert (report.verdict.class_, report.verdict.attempt) == ("recovered", 1)
    assert "recovered after 1 crash: " in (report.verdict.summary or "")
    assert [a.verdict.rank for a in report.attempts or [] if a.verdict] == [1]
    assert "The job recovered" in done.stderr and "attempt 0: Rank 1 wrote" in " ".join(done.stderr.split())
    first = build_report(load_runs(run), 0)
    assert first.verdict is not None and first.verdict.class_ == "null-dereference"
    assert {p.attempt for p in first.processes or []} == {0, None}
    assert pytracer("inspect", run, "--exit-code", cwd=run).returncode == 4
    assert pytracer("inspect", run, "--exit-code", "--attempt", "0", cwd=run).returncode == 3
    assert (
        "there is no attempt 5: the run has attempts 0 to 1"
        in pytracer("inspect", run, "--attempt", "5", cwd=run).stderr
    )


@pytest.mark.slow
def test_two_agents_with_a_directory_each_are_one_job(run: Path) -> None:
    """Two nodes, simulated by two agents: each report alone lacks one half, both together blame the right rank."""
    scenario = next(s for s in WRONG if s.start == "agents")
    parts = [run.with_name(f"node{n}") for n in (0, 1)]
    commands = [
        [sys.executable, "-m", "pytracer", "run", "--no-report", "-o", str(part), "--", *words]
        for part, words in zip(parts, agents(scenario), strict=True)
    ]
    env = environment(VICTIM=str(scenario.victim))
    started = [subprocess.Popen(words, env=env, stderr=subprocess.DEVNULL) for words in commands]
    try:
        for process in started:
            process.wait(120)
    finally:
        for process in started:
            process.kill()
    report = build_report(load_runs(parts))
    assert report.run is not None
    assert (report.run.world_size, report.run.launcher) == (scenario.ranks, "torchrun")
    ranks = sorted(p.rank for p in report.processes or [] if p.role == "rank" and p.rank is not None)
    assert ranks == list(range(scenario.ranks))
    assert report.verdict is not None
    assert report.verdict.rank in scenario.guilty, report.verdict.summary


@pytest.mark.slow
@pytest.mark.parametrize(
    ("death", "headline"),
    [("fault", r"Rank 1 read through a null pointer .*"), ("error", "Rank 1 raised ValueError: label 11 .*")],
)
def test_program_that_is_its_own_agent_has_the_cause_in_its_table(death: str, headline: str, run: Path) -> None:
    """Its table may have only the rank that lost its peer. Nothing is preloaded."""
    done = ended([sys.executable, PROGRAMS / "own_agent.py", str(run), death], environment(OMP_NUM_THREADS="1"), run)
    assert done.status == 0, done.stderr
    assert re.search(
        rf"^ +pytracer: {headline}at own_agent\.py:\d+ in train(: the program's own check .*)?$", done.stdout, re.M
    ), done.stdout
    verdict = build_report(load_runs(run)).verdict
    assert verdict is not None
    assert verdict.rank == 1
    assert re.fullmatch(
        rf"{headline}at own_agent\.py:\d+ in train(: the program's own check .*)?\.", verdict.summary or ""
    )
