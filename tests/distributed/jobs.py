"""Starts the jobs of scenarios.py, and extracts the ranks that a report blames."""

from __future__ import annotations

import shlex
import socket
import sys
from pathlib import Path

from pytracer.report.job import Finding, Report
from tests.distributed.scenarios import Scenario
from tests.support.crash import Ended, ended, environment, healthy, new_store, torchrun, traced_run

PROGRAMS = Path(__file__).parent / "programs"
# Findings that order the deaths or name cascading failures; they blame no rank.
ACCOUNTS = ("first-death", "collective-timeout", "connection-lost")


def command(scenario: Scenario, run: Path) -> list[str]:
    """The command that starts the job; its files are created beside the run directory."""
    program = PROGRAMS / f"{scenario.program}.py"
    if scenario.start == "spawn":
        return [sys.executable, str(program), scenario.function, "--spawn", str(scenario.ranks), new_store(run)]
    if scenario.start == "agents":
        first, second = agents(scenario)
        return ["sh", "-c", f"{shlex.join(first)} & first=$!; {shlex.join(second)}; wait $first"]
    return torchrun(program, scenario.function, ranks=scenario.ranks)


def agents(scenario: Scenario) -> tuple[list[str], list[str]]:
    """The commands of two torchrun agents on this machine, with half of the ranks each."""
    start = torchrun(PROGRAMS / f"{scenario.program}.py", scenario.function)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    program = start[start.index("--standalone") :][3:]
    both = ["--nnodes", "2", "--nproc-per-node", str(scenario.ranks // 2)]
    both += ["--master-addr", "127.0.0.1", "--master-port", str(port)]
    before = start[: start.index("--standalone")]
    first, second = ([*before, *both, "--node-rank", str(node), *program] for node in (0, 1))
    return first, second


def traced(scenario: Scenario, run: Path) -> Ended:
    """The job under `pytracer run`; started twice when torch's own flake ended a rank that should not abort."""

    def once(directory: Path) -> Ended:
        return traced_run(*command(scenario, directory), run=directory, VICTIM=str(scenario.victim))

    if "abort" in scenario.classes:
        return once(run)
    return healthy(lambda: once(run), lambda: once(run.with_name("again")))


def untraced(scenario: Scenario, run: Path, **extra: str) -> Ended:
    """The job without pytracer; `extra` are environment variables."""

    def once() -> Ended:
        return ended(command(scenario, run), environment(VICTIM=str(scenario.victim), **extra), run)

    return healthy(once, once) if scenario.status == 0 else once()


def blamed(report: Report) -> tuple[int, ...]:
    """The rank that the verdict names, or all ranks that did the same or disagree by its finding."""
    verdict = report.verdict
    assert verdict is not None
    ranks = next((f.ranks or [] for f in report.findings or [] if f.summary == verdict.summary), [])
    assert verdict.rank is None or not ranks or verdict.rank in ranks
    if len(ranks) < 2 and verdict.rank is not None:
        return (verdict.rank,)
    return tuple(sorted(ranks))


def blamed_beside(report: Report) -> list[Finding]:
    """Other findings that blame ranks which the verdict does not."""
    verdict = set(blamed(report))
    return [f for f in report.findings or [] if f.id not in ACCOUNTS and not set(f.ranks or []) <= verdict]


def suspects(report: Report) -> tuple[int, ...]:
    """Ranks whose death is not called a consequence, or that others waited for; for a worker its rank."""
    found = set()
    for process in report.processes or []:
        rank = process.rank if process.role == "rank" else process.parent_rank
        suspected = process.primary is None and process.role == "rank" and process.why is not None
        if rank is not None and (process.primary or suspected):
            found.add(rank)
    return tuple(sorted(found))
