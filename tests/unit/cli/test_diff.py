"""`pytracer diff`: what a bad run has that a good one had not, and nothing that differs anyway."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli import pytracer
from tests.support.planted import leaks, planted_run
from tests.support.synth import Box, write_run


def a_run(directory: Path, *, torch: str, environment: dict[str, str], calls: int, dtype: str, ports: int) -> Path:
    """Two ranks that ran collectives."""
    boxes = []
    for rank in (0, 1):
        box = Box(pid=ports + rank, rank=rank, environment={"MASTER_PORT": str(ports), **environment})
        box.versions(python="3.11.7", torch=torch, cuda=None).group("0", [0, 1])
        for _ in range(calls):
            box.at(10).collective("gloo:all_reduce", state="completed", dtype=dtype)
        box.step(calls)
        boxes.append(box.at(20).exit(0))
    return write_run(directory, *boxes, launcher={"command": ["python", "train.py", "--lr", "1"]})


@pytest.fixture
def good(tmp_path: Path) -> Path:
    return a_run(tmp_path / "good", torch="2.13.0", environment={}, calls=9, dtype="float32", ports=500)


@pytest.fixture
def bad(tmp_path: Path) -> Path:
    changed = {"NCCL_DEBUG": "INFO"}
    return a_run(tmp_path / "bad", torch="2.12.1", environment=changed, calls=4, dtype="bfloat16", ports=700)


def differences(*arguments: str | Path, cwd: Path) -> dict[tuple[str, str], tuple[Any, ...]]:
    done = pytracer("diff", *arguments, "--json", cwd=cwd)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["differences"]
    return {(item["topic"], item["name"]): (item["ranks"], item["a"], item["b"]) for item in found}


def test_versions_variables_steps_and_collectives_that_differ_are_found(good: Path, bad: Path, tmp_path: Path) -> None:
    """Each once for the ranks that it is true of."""
    found = differences(good, bad, cwd=tmp_path)
    assert found["versions", "torch"] == (None, "2.13.0", "2.12.1")
    assert found["environment", "NCCL_DEBUG"] == ([0, 1], None, "INFO")
    assert found["steps", "last step"] == ([0, 1], "9", "4")
    calls = [values for (topic, name), values in found.items() if topic == "collectives" and "last call" in name]
    assert calls and "float32" in calls[0][1] and "bfloat16" in calls[0][2]
    numbers = [values for (topic, name), values in found.items() if topic == "collectives" and "number" in name]
    assert numbers == [([0, 1], "9 completed", "4 completed")]


def test_what_differs_between_any_two_runs_is_no_difference(good: Path, tmp_path: Path) -> None:
    """Ports, process ids, times; a run and its like."""
    like = a_run(tmp_path / "like", torch="2.13.0", environment={}, calls=9, dtype="float32", ports=900)
    assert differences(good, like, cwd=tmp_path) == {}
    text = pytracer("diff", good, like, cwd=tmp_path).stdout
    assert "No difference was found." in text and "The same: " in text


def test_rank_that_only_one_run_has(good: Path, tmp_path: Path) -> None:
    """It is one difference, not one for each of its variables."""
    (good / "boxes" / "node0.501.blackbox").unlink()
    whole = a_run(tmp_path / "whole", torch="2.13.0", environment={}, calls=9, dtype="float32", ports=900)
    found = differences(good, whole, cwd=tmp_path)
    assert found["processes", "rank"] == ([1], None, "there")
    assert {topic for topic, _ in found} <= {"processes", "run"}


def test_text_is_one_table(good: Path, bad: Path, tmp_path: Path) -> None:
    """Both verdicts, then a row for each difference; bundles are compared as runs are."""
    assert pytracer("pack", good, cwd=tmp_path).returncode == 0
    done = pytracer("diff", "good.pytracer", bad, cwd=tmp_path)
    lines = done.stdout.splitlines()
    assert lines[0].startswith("A  good.pytracer: Nothing died") and lines[1].startswith("B  bad: Nothing died")
    rows = [line.split() for line in lines]
    assert ["versions", "torch", "2.13.0", "2.12.1"] in rows
    assert ["environment", "NCCL_DEBUG", "(ranks", "0", "and", "1)", "-", "INFO"] in rows
    assert max(map(len, lines)) <= 100


def test_redacted_comparison_holds_no_private_value(good: Path, tmp_path: Path) -> None:
    """`--redact`, in text and JSON."""
    planted = planted_run(tmp_path / "planted")
    assert leaks(pytracer("diff", good, planted, cwd=tmp_path).stdout)
    for options in ((), ("--json",)):
        done = pytracer("diff", good, planted, "--redact", *options, cwd=tmp_path)
        assert done.returncode == 0 and leaks(done.stdout) == {}
