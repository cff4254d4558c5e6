"""`inspect --rank` and `--host`, and the column of hosts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pytracer._errors import UsageError
from pytracer.cli.selection import parse_ranks
from tests.support.cli import only_line
from tests.support.cli import pytracer as run_pytracer
from tests.support.synth import Box, write_run


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Four ranks on two hosts; rank 1 crashed."""
    boxes = []
    for rank in range(4):
        box = Box(pid=101 + rank, rank=rank, world_size=4, host=f"node{rank // 2}")
        boxes.append(box.crash(python=[("step", "train.py", 7)]) if rank == 1 else box.at(50).exit(0))
    return write_run(tmp_path / "run", *boxes)


def processes(run: Path, *options: str) -> list[int]:
    done = run_pytracer("inspect", run, "--json", *options, cwd=run.parent)
    report = json.loads(done.stdout)
    assert report["verdict"]["rank"] == 1  # of the whole job, whoever is shown
    return [item["rank"] for item in report["processes"]]


def test_ranks_are_a_list_of_numbers_and_intervals() -> None:
    """Anything else is one line."""
    assert [list(part) for part in parse_ranks("3,5-7")] == [[3], [5, 6, 7]]
    for text in ("", "3,", "7-5", "a", "-1", "1" * 40):
        with pytest.raises(UsageError, match="is no list of ranks"):
            parse_ranks(text)


def test_only_chosen_processes_are_shown(run: Path) -> None:
    """In JSON, in the table and in the details."""
    assert processes(run) == [0, 1, 2, 3]
    assert processes(run, "--rank", "0,2-3") == [0, 2, 3]
    assert processes(run, "--host", "node1") == [2, 3]
    assert processes(run, "--host", "node1", "--rank", "0-2") == [2]
    text = run_pytracer("inspect", run, "--rank", "2", "--all", cwd=run.parent).stdout
    assert "rank 2, pid 103" in text
    assert "rank 3, pid 104" not in text
    assert text.startswith("Rank 1 ")


def test_table_of_several_hosts_has_their_names(run: Path) -> None:
    """Ranks that ended alike share a row: one host by its name, else their number."""
    rows = run_pytracer("inspect", run, cwd=run.parent).stdout.splitlines()
    assert any("rank 1" in row and "SIGSEGV" in row and "node0" in row for row in rows)
    assert any("ranks 0, 2 and 3" in row and "2 hosts" in row for row in rows)


def test_choice_that_matches_nothing_is_one_line(run: Path) -> None:
    """With what there is."""
    assert "the job has ranks 0-3" in only_line(run_pytracer("inspect", run, "--rank", "9", cwd=run.parent))
    assert "it ran on node0 and node1" in only_line(run_pytracer("inspect", run, "--host", "x", cwd=run.parent))
