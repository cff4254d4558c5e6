"""Torch's own dumps of a real job are read, and torch's own analyzer reads ours."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from pytracer.decode.job.load import load_runs
from tests.conditions import needs_core, needs_native
from tests.distributed.jobs import PROGRAMS
from tests.support.cli import pytracer
from tests.support.crash import Ended, environment, torchrun, traced_run

pytestmark = [needs_core, needs_native]


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    """Three ranks; rank 2 calls all_reduce where the others call broadcast."""
    run = tmp_path_factory.mktemp("dumps") / "run"
    done = traced_run(*torchrun(PROGRAMS / "dumps.py", ranks=3), run=run, options=("--no-report",))
    assert done.status == 1
    return done


def analyze(directory: Path, *options: str) -> str:
    """The output of torch's analyzer."""
    words = [sys.executable, "-m", "torch.distributed.flight_recorder.fr_trace", str(directory), *options]
    done = subprocess.run(words, capture_output=True, text=True, env=environment(), timeout=120, check=False)
    return done.stdout + done.stderr


@pytest.mark.slow
def test_torchs_dumps_tell_what_the_boxes_tell(job: Ended) -> None:
    """A pickle or JSON beside the recordings is found by its name; it adds nothing new and no duplicates."""
    before = load_runs(job.run / "boxes")
    merged = load_runs(job.run)
    assert [(use.rank, use.added, use.known) for use in merged.flight] == [(0, 0, 6), (1, 0, 6), (2, 0, 5)]
    for old, new in zip(before.ranks, merged.ranks, strict=True):
        assert [(c.number, c.op, c.state) for c in old.snapshot.collectives] == [
            (c.number, c.op, c.state) for c in new.snapshot.collectives
        ]
    assert all("not known whether they failed" in use.notes[0] for use in merged.flight)


@pytest.mark.slow
def test_torchs_dumps_are_read_beside_a_digest(job: Ended, tmp_path: Path) -> None:
    """As beside the recordings, which are elsewhere; the verdict is the same."""
    full = json.loads(pytracer("inspect", job.run, "--json", cwd=tmp_path).stdout)
    done = pytracer("digest", job.run / "boxes", "-o", tmp_path / "one.digest", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    away = job.run.parent / "away"
    (job.run / "boxes").rename(away)
    try:
        done = pytracer("inspect", tmp_path / "one.digest", "--flight-recorder", job.run, "--json", cwd=tmp_path)
    finally:
        away.rename(job.run / "boxes")
    report = json.loads(done.stdout)
    assert report["flight_recorder"] == full["flight_recorder"]
    assert [report["verdict"][key] for key in ("class", "confidence", "rank", "summary")] == [
        full["verdict"][key] for key in ("class", "confidence", "rank", "summary")
    ]


@pytest.mark.slow
def test_torchs_analyzer_stops_at_torchs_dumps_of_gloo(job: Ended) -> None:
    """The reason to write our own: the group of every entry is missing from `pg_config`."""
    (job.run / "comm_lib_trace_rank_2").rename(job.run.parent / "json")
    try:
        assert "KeyError: ('0', " in analyze(job.run, "--prefix", "comm_lib_trace_rank_")
    finally:
        (job.run.parent / "json").rename(job.run / "comm_lib_trace_rank_2")


@pytest.mark.slow
def test_torchs_analyzer_reads_ours(job: Ended, tmp_path: Path) -> None:
    """It finds the mismatch. It may blame the others: it trusts the first dump that it reads."""
    done = pytracer("dump", job.run, "--flight-recorder", "out", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {f"nccl_trace_rank_{n}" for n in range(3)} | {f"rank{n}.json" for n in range(3)}
    said = analyze(tmp_path / "out")
    assert "Traceback" not in said
    assert "Collective sequence number: 6 has errors" in said
    assert "COLLECTIVE_TYPE_MISMATCH" in said
    assert pytracer("dump", job.run, "--flight-recorder", "out", cwd=tmp_path).returncode == 2
    assert pytracer("dump", job.run, "--flight-recorder", "out", "--force", cwd=tmp_path).returncode == 0
