"""`pytracer runs`, and what `pytracer run` leaves on the disk."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conditions import needs_core
from tests.support.cli import clean_environment, only_line, pytracer
from tests.unit.launcher.test_retention import a_run

CRASH = [sys.executable, "-c", "import ctypes; ctypes.string_at(8)"]
CLEAN = [sys.executable, "-c", "pass"]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    path = tmp_path / "runs"
    path.mkdir()
    a_run(path, "clean", age=7200)
    a_run(path, "failed", age=10, exit_code=1)
    verdict = {"class": "oom-kill", "summary": "Rank 3 was killed: \x1b[31mout of memory."}
    a_run(path, "killed", age=86400 * 3, exit_code=1)
    (path / "killed" / "report.json").write_text(json.dumps({"schema": "pytracer-report", "verdict": verdict}))
    (path / "data").mkdir()
    (path / "data" / "mine.txt").write_text("mine")
    return path


def listed(root: Path, *options: str) -> dict[str, dict[str, Any]]:
    done = pytracer("runs", root, "--json", *options, cwd=root)
    return {os.path.basename(run["directory"]): run for run in json.loads(done.stdout)["runs"]}


def test_table_has_verdict_size_and_age(root: Path) -> None:
    """The newest first; text of a report cannot control the terminal."""
    done = pytracer("runs", cwd=root.parent)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["data", "failed", "clean", "killed", "4"]
    assert " oom-kill " in lines[3] and " 3 d ago " in lines[3]
    assert "Rank 3 was killed: \\x1b[31mout of memory." in lines[3]
    assert " unknown " in lines[1] and "exit status 1, no report" in lines[1]
    assert " clean " in lines[2] and " 2 h ago" in lines[2] and "KiB" in lines[2]
    assert lines[4].startswith("4 runs, ")


def test_prune_removes_the_oldest_and_says_what_stays_and_why(root: Path) -> None:
    """`--keep`; `--dry-run` first. A foreign directory is never touched."""
    tried = pytracer("runs", "--prune", "--keep", "2", "--dry-run", cwd=root.parent)
    assert "would remove runs/clean, " in tried.stdout and len(os.listdir(root)) == 4
    done = pytracer("runs", "--prune", "--keep", "2", cwd=root.parent)
    assert done.returncode == 0, done.stderr
    assert "removed runs/clean, " in done.stdout and "removed runs/killed, " in done.stdout
    assert "kept runs/data: it holds mine.txt, which is no file of a run" in done.stdout
    assert sorted(os.listdir(root)) == ["data", "failed"]
    assert (root / "data" / "mine.txt").read_text() == "mine"


def test_json_has_the_same(root: Path) -> None:
    """With numbers; what was removed is marked."""
    runs = listed(root)
    assert {name: run["verdict"] for name, run in runs.items() if name != "data"} == {
        "clean": "clean",
        "failed": "unknown",
        "killed": "oom-kill",
    }
    assert runs["data"]["state"] == "kept" and runs["clean"]["bytes"] > 0
    pruned = listed(root, "--prune", "--max-size", "0")
    assert {name for name, run in pruned.items() if run["removed"]} == {"clean", "failed", "killed"}
    assert os.listdir(root) == ["data"]


def test_wrong_arguments_are_one_line(root: Path) -> None:
    """A limit without --prune, --prune without one, a size that is none, no directory."""
    for options in (["--keep", "3"], ["--prune"], ["--prune", "--max-size", "much"]):
        done = pytracer("runs", *options, cwd=root.parent)
        assert done.returncode == 2 and only_line(done)
    assert "there is no" in only_line(pytracer("runs", "missing", cwd=root.parent))
    assert len(os.listdir(root)) == 4


@needs_core
def test_recordings_are_shrunk_at_the_end_unless_asked_otherwise(tmp_path: Path) -> None:
    """By default without loss; `keep` leaves them as they are; `remove` keeps the report of a clean run."""
    sizes = {}
    for boxes in ("shrink", "keep"):
        done = pytracer("run", "-o", boxes, "--boxes", boxes, "--", *CRASH, cwd=tmp_path)
        assert done.returncode == 128 + 11, done.stderr
        (box,) = (tmp_path / boxes / "boxes").iterdir()
        sizes[boxes] = box.stat().st_blocks * 512
        assert box.stat().st_size > 1 << 20
        verdict = json.loads(pytracer("inspect", boxes, "--json", cwd=tmp_path).stdout)["verdict"]
        assert verdict["class"] == "null-dereference"
    assert sizes["shrink"] < sizes["keep"] / 4
    for job, left in ((CLEAN, 0), (CRASH, 1)):
        pytracer("run", "-o", f"remove{left}", "--boxes", "remove", "--", *job, cwd=tmp_path)
        assert len(os.listdir(tmp_path / f"remove{left}" / "boxes")) == left
    shown = pytracer("inspect", "remove0", cwd=tmp_path)
    assert (shown.returncode, shown.stdout) == (0, "Nothing died: 1 process recorded.\n"), shown.stderr


@needs_core
def test_budget_removes_old_runs_by_itself(tmp_path: Path) -> None:
    """Clean ones, after the next run, with one line; the run itself, and what failed, stay."""
    root = tmp_path / "runs"
    root.mkdir()
    a_run(root, "clean", age=100)
    a_run(root, "failed", age=200, exit_code=1)
    environment = clean_environment(PYTRACER_RUNS_BYTES="1K")
    done = pytracer("run", "--", *CLEAN, cwd=tmp_path, env=environment)
    assert done.returncode == 0 and "removed 1 old run, " in done.stderr
    assert len(os.listdir(root)) == 3 and (root / "failed").exists() and not (root / "clean").exists()
    again = pytracer("run", "--", *CLEAN, cwd=tmp_path, env=clean_environment(PYTRACER_RUNS_BYTES="0"))
    assert "removed" not in again.stderr
    wrong = pytracer("run", "--", *CLEAN, cwd=tmp_path, env=clean_environment(PYTRACER_RUNS_BYTES="much"))
    assert wrong.returncode == 0 and "'much' is no size; old runs stay" in wrong.stderr


@needs_core
def test_names_of_native_frames_are_stored_at_the_end_of_the_job(tmp_path: Path) -> None:
    """Without a report as well: later the images may be others."""
    done = pytracer("run", "-o", "run", "--no-report", "--", *CRASH, cwd=tmp_path)
    assert done.returncode == 128 + 11 and "`pytracer inspect run` explains it" in done.stderr
    names = json.loads((tmp_path / "run" / "symbols.json").read_text())
    assert len([name for name in names.values() if isinstance(name, str)]) > 3
    assert not (tmp_path / "run" / "report.json").exists()
