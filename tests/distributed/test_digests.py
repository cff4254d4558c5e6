"""Real jobs by their digests: digest alone, digest and the suspects' recordings, and all recordings agree."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from pytracer.analyze.digest import BYTES_PER_RANK, digest_name, make_digest, most_bytes
from pytracer.analyze.engine import build_report
from pytracer.decode.job.digests import load_digests
from pytracer.decode.job.load import load_runs
from pytracer.report.job import Digests, Report
from tests.conditions import needs_core, needs_native
from tests.distributed.jobs import agents, blamed, traced
from tests.distributed.scenarios import WRONG, Scenario
from tests.support.cli import pytracer
from tests.support.crash import PROGRAMS, environment, torchrun

pytestmark = [needs_core, needs_native]

# A fault in backward, a rank that was killed, calls that differ, a rank that others wait for: one of them is quick.
CHOSEN = ("segfault_in_backward", "killed", "op", "skipped")


def _parameters() -> list[object]:
    chosen = [next(item for item in WRONG if item.function == name and item.ranks == 3) for name in CHOSEN]
    return [
        pytest.param(item, id=str(item), marks=[] if item.function == "segfault_in_backward" else [pytest.mark.slow])
        for item in chosen
    ]


def told(report: Report) -> tuple[object, ...]:
    verdict = report.verdict
    assert verdict is not None
    return verdict.class_, blamed(report), verdict.confidence, verdict.summary


@pytest.mark.parametrize("scenario", _parameters())
def test_digest_tells_what_the_recordings_tell(scenario: Scenario, run: Path, tmp_path: Path) -> None:
    """Class, guilty ranks, confidence and headline; what would decide more is named where it was not read."""
    done = traced(scenario, run)
    full = done.report
    assert blamed(full) == scenario.guilty
    job = load_runs(run)
    content = make_digest(job)
    assert len(content) <= BYTES_PER_RANK * scenario.ranks
    folder = tmp_path / "digests"
    folder.mkdir()
    (folder / digest_name(job)).write_bytes(content)
    away = run.rename(run.with_name("copied"))
    alone = build_report(load_digests([str(folder)]))
    with_suspects = build_report(load_digests([str(folder)], [str(away)]))
    assert told(with_suspects) == told(full)
    assert told(alone) == told(full)
    assert alone.run is not None and alone.run.digests is not None
    assert with_suspects.run is not None and with_suspects.run.digests is not None
    assert with_suspects.run.digests.unread == []
    # A call that differs is decided by what the digests have; of a death, the recording of the rank tells more.
    assert len(alone.run.digests.unread or []) == (1 if scenario.program == "deaths" else 0)


@pytest.mark.slow
def test_digest_of_crowded_ranks_keeps_its_bound_and_says_what_it_left_out(run: Path, tmp_path: Path) -> None:
    """140 groups, 300 threads, stacks of 100 frames, 24 dead threads: the verdict of the recordings remains."""
    full = traced(Scenario("crowded", "faults", "rank 1 faulted", (1,), ranks=2), run).report
    job = load_runs(run, light=True)
    content = make_digest(job)
    assert len(content) <= most_bytes(job) == 2 * BYTES_PER_RANK
    folder = tmp_path / "digests"
    folder.mkdir()
    (folder / digest_name(job)).write_bytes(content)
    run.rename(run.with_name("copied"))
    alone = build_report(load_digests([str(folder)]))
    assert told(alone) == told(full)
    assert told(alone)[:3] == ("null-dereference", (1,), "certain")
    (left_out,) = alone.damage or []
    assert "has 64 of up to 141 process groups of each rank, to stay below 8 KB" in (left_out.what or "")
    missing = [item.summary for item in alone.findings or [] if item.id == "collective-missing-rank"]
    assert missing == [item.summary for item in full.findings or [] if item.id == "collective-missing-rank"] != []


def written(folder: Path, job: subprocess.Popen[str]) -> Path:
    """The digest, as soon as there is one."""
    until = time.monotonic() + 200
    while time.monotonic() < until:
        found = list(folder.glob("*.digest"))
        if found:
            return found[0]
        assert job.poll() is None, job.communicate()
        time.sleep(0.2)
    raise AssertionError("no digest was written")


@pytest.mark.slow
def test_job_that_stands_still_leaves_a_digest_and_its_end_replaces_it(run: Path, tmp_path: Path) -> None:
    """By the launcher when it has seen the deadlock, and by `pytracer digest` of a job that runs."""
    folder = tmp_path / "digests"
    words = [sys.executable, "-m", "pytracer", "run", "--digest", str(folder), "-o", str(run), "--"]
    words += torchrun(PROGRAMS / "standing_still.py", "apart", "100")
    with subprocess.Popen(words, env=environment(), stderr=subprocess.PIPE, text=True, start_new_session=True) as job:
        file = written(folder, job)
        early = file.read_bytes()
        aside = pytracer("digest", run, "-o", tmp_path / "sidecar", cwd=tmp_path)
        shown = [pytracer("inspect", place, cwd=tmp_path) for place in (folder, tmp_path / "sidecar")]
        standing = build_report(load_digests([str(folder)]))
        job.send_signal(signal.SIGTERM)
        _, said = job.communicate(timeout=120)
    assert f"a digest of the job as it stands is in {file}" in said
    assert aside.returncode == 0 and (tmp_path / "sidecar" / file.name).exists(), aside.stderr
    for done in shown:
        words_told = " ".join(done.stdout.split())
        assert words_told.startswith("Ranks disagree in collective 4 of the default group"), done
        assert f"the job still ran on {socket.gethostname()} when its digest was written, 20" in words_told
    assert told(standing)[0] == "collective-mismatch"
    assert standing.run is not None and standing.run.digests is not None
    assert standing.run.digests.running == [socket.gethostname()]
    assert [path.name for path in folder.iterdir()] == [file.name] and file.read_bytes() != early
    ended = build_report(load_digests([str(folder)]))
    assert ended.run is not None and ended.run.digests is not None
    assert (ended.run.digests.running, ended.run.digests.as_of) == ([], None)


@pytest.mark.slow
def test_digests_of_two_nodes_decide_as_far_as_they_are_there(tmp_path: Path) -> None:
    """Rank 3 faults on the second node. Without a digest, or with a torn one, the report says what is unknown."""
    scenario = Scenario("deaths", "segfault_in_backward", "rank 3 faulted", (3,), ranks=4, start="agents", victim=3)
    folder, jobs = tmp_path / "digests", []
    for node, command in enumerate(agents(scenario)):
        words = [sys.executable, "-m", "pytracer", "run", "-o", str(tmp_path / f"node{node}"), "--digest"]
        env = environment(VICTIM="3")
        jobs.append(subprocess.Popen([*words, f"{folder}/{node}", "--", *command], env=env, stderr=subprocess.PIPE))
    said = [job.communicate(timeout=240)[1] for job in jobs]
    assert all(job.returncode for job in jobs), said
    runs = [tmp_path / "node0", tmp_path / "node1"]
    full = told(build_report(load_runs(runs)))
    assert full[:3] == ("null-dereference", (3,), "certain")
    first, second = (next((folder / str(node)).iterdir()) for node in range(2))
    away = [str(run.rename(run.with_name(f"{run.name}-copied"))) for run in runs]

    def report(*files: Path, recordings: Sequence[str] = ()) -> Report:
        return build_report(load_digests([str(file) for file in files], recordings))

    assert told(report(first, second)) == told(report(first, second, recordings=away)) == full
    without_others = report(second)
    assert told(without_others) == full
    assert digests(without_others).missing_ranks == [0, 1]
    without_guilty = report(first)
    assert without_guilty.verdict is not None and without_guilty.verdict.confidence != "certain"
    assert digests(without_guilty).missing_ranks == [2, 3]
    torn = tmp_path / "torn.digest"
    torn.write_bytes(second.read_bytes()[:-100])
    with_torn = report(first, torn)
    assert told(with_torn) == told(without_guilty)
    assert [item.file for item in with_torn.damage or [] if "torn" in (item.what or "")] == ["torn.digest"]


def digests(report: Report) -> Digests:
    assert report.run is not None and report.run.digests is not None
    return report.run.digests
