"""A package that a process was started from is the program, unless files of the user's ran."""

from __future__ import annotations

from pathlib import Path

from pytracer.analyze.engine import build_report
from pytracer.analyze.program_packages import program_packages
from pytracer.render.text import render_text
from pytracer.report.job import Report
from tests.support import scenarios as s
from tests.support.synth import Box

MINE = "/opt/env/lib/python3.11/site-packages/mine"
STARTED = ("python", "-m", "mine.train")
OF_PACKAGE: s.Frames = [("step", f"{MINE}/parts.py", 12), ("<module>", f"{MINE}/train.py", 40)]


def crashed(*frames: tuple[str, str, int], argv: tuple[str, ...] = STARTED) -> Box:
    """A process that died of a null pointer with this Python stack."""
    return Box(pid=101, argv=argv).at(500).crash(addr=0x18, python=list(frames), native=s.NATIVE[:1])


def test_the_package_that_was_started_is_the_program(tmp_path: Path) -> None:
    """Its line is in the headline, and the report says what it counts as the program."""
    job = s.load(tmp_path, crashed(*OF_PACKAGE))
    assert program_packages(job) == ("mine",)
    report = build_report(job)
    assert report.run is not None
    assert report.run.program_packages == ["mine"]
    assert "mine/parts.py:12 in step" in _summary(report)


def test_where_files_of_the_users_ran_the_package_is_a_library(tmp_path: Path) -> None:
    """A framework that is started with a file of the user's: `python -m framework train.py`."""
    job = s.load(tmp_path, crashed(OF_PACKAGE[0], ("train", s.SCRIPT, 3), OF_PACKAGE[1]))
    assert program_packages(job) == ()
    report = build_report(job)
    assert report.run is not None
    assert report.run.program_packages is None
    assert "train.py:3 in train" in _summary(report)


def test_a_package_that_is_named_counts_beside_the_users_files(tmp_path: Path) -> None:
    """As `inspect --program` does."""
    job = s.load(tmp_path, crashed(*OF_PACKAGE, ("main", s.SCRIPT, 3), argv=("python", s.SCRIPT)))
    assert "train.py:3 in main" in _summary(build_report(job))
    assert "mine/parts.py:12 in step" in _summary(build_report(job, program=["mine"]))


def _summary(report: Report) -> str:
    assert report.verdict is not None
    return report.verdict.summary or ""


def test_a_package_that_is_deep_below_the_users_line_is_offered_as_the_program(tmp_path: Path) -> None:
    """A framework may hold the reason; a function that is only called does not."""
    script = ("main", s.SCRIPT, 3)
    deep = s.load(tmp_path / "deep", crashed(*OF_PACKAGE, *OF_PACKAGE, script, argv=("python", s.SCRIPT)))
    flat = s.load(tmp_path / "flat", crashed(*OF_PACKAGE, script, argv=("python", s.SCRIPT)))
    assert "--program mine tells its lines like yours" in " ".join(render_text(build_report(deep)).split())
    assert "--program" not in render_text(build_report(flat))


def test_what_a_library_starts_is_no_program(tmp_path: Path) -> None:
    """A worker of a pool: `python -m pool.worker`, below the user's script."""
    parent = Box(pid=100, ppid=99, argv=("python", s.SCRIPT)).at(600).wait(101, signal=11)
    child = Box(pid=101, ppid=100, argv=STARTED).at(500).crash(addr=0x18, python=OF_PACKAGE, native=s.NATIVE[:1])
    assert program_packages(s.load(tmp_path, parent, child)) == ()
