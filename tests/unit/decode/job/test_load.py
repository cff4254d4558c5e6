"""Run directories of several hosts are one job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytracer._errors import InputError
from pytracer.analyze.engine import build_report
from pytracer.decode.job.load import load_runs
from pytracer.render.text import render_text
from tests.support.synth import Box, write_run

TORCHRUN = ("/env/bin/python", "/env/bin/torchrun", "train.py")


def node(directory: Path, number: int, run_id: str = "job7", host: str | None = None) -> Path:
    environment = {
        "RANK": str(number), "LOCAL_RANK": "0", "WORLD_SIZE": "2", "GROUP_RANK": str(number),
        "TORCHELASTIC_RUN_ID": run_id, "TORCHELASTIC_RESTART_COUNT": "0",
    }  # fmt: skip
    where: dict[str, Any] = {"host": host or f"node{number}", "boot_id": f"0000000{number}-0000-4000-8000-000000000000"}
    agent = Box(pid=100, ppid=1, argv=TORCHRUN, **where)
    return write_run(directory, agent, Box(pid=101, ppid=100, environment=environment, **where).rank(number))


def test_two_agents_are_one_job(tmp_path: Path) -> None:
    """The same pids on two hosts are other processes."""
    report = build_report(load_runs([node(tmp_path / "a", 0), node(tmp_path / "b", 1)]))
    found = [(p.host, p.rank, p.role) for p in report.processes or []]
    assert sorted(found, key=str) == [
        ("node0", 0, "rank"), ("node0", None, "launcher"), ("node1", 1, "rank"), ("node1", None, "launcher"),
    ]  # fmt: skip
    assert report.run is not None
    assert (report.run.hosts, report.run.world_size, report.run.launcher) == (["node0", "node1"], 2, "torchrun")


def test_report_names_all_directories(tmp_path: Path) -> None:
    """And so does the command that shows more: one of them alone is judged differently."""
    report = build_report(load_runs([node(tmp_path / "a", 0), node(tmp_path / "b", 1)]))
    paths = [str(tmp_path / "a"), str(tmp_path / "b")]
    assert report.run is not None
    assert (report.run.id, report.run.directory, report.run.directories) == ("a, b", paths[0], paths)
    text = " ".join(render_text(report, everything=False).split())
    assert f"pytracer inspect {paths[0]} {paths[1]} --all" in text
    alone = build_report(load_runs([tmp_path / "a"])).run
    assert alone is not None and alone.directories is None and alone.id == "a"


def test_hosts_of_one_name_are_told_apart_by_their_boot(tmp_path: Path) -> None:
    """As in containers that are all called the same."""
    report = build_report(load_runs([node(tmp_path / "a", 0, host="box"), node(tmp_path / "b", 1, host="box")]))
    assert report.run is not None
    assert report.run.hosts == ["box (boot 00000000)", "box (boot 00000001)"]


def test_a_directory_that_is_named_twice_counts_once(tmp_path: Path) -> None:
    """Nothing is doubled."""
    path = node(tmp_path / "a", 0)
    assert len(load_runs([path, path]).processes) == 2


def test_different_jobs_are_not_merged(tmp_path: Path) -> None:
    """Their run ids are named."""
    with pytest.raises(InputError, match="different jobs: .* run id job7, .* run id job8"):
        load_runs([node(tmp_path / "a", 0), node(tmp_path / "b", 1, run_id="job8")])
