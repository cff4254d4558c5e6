"""Kin: parents, children and siblings by number and machine, and who ended first."""

from pathlib import Path

from pytracer.analyze.engine import job_view
from pytracer.analyze.kin import are_siblings, children_of, ended_before, parent_of
from pytracer.analyze.timeline.clock import RunClock
from pytracer.analyze.view import JobView, ProcessView
from tests.support import scenarios as s
from tests.support.synth import Box


def viewed(run: Path, *boxes: Box) -> tuple[JobView, list[ProcessView]]:
    job = s.load(run, *boxes)
    view = job_view(job, RunClock(job))
    return view, sorted(view.views, key=lambda item: item.process.snapshot.created_mono_ns)


def test_of_a_number_that_was_given_twice_the_later_process_is_the_parent(tmp_path: Path) -> None:
    earlier = Box(pid=20, ppid=1, created_ns=100_000_000_000).exit(0)
    earlier.write(tmp_path / "boxes" / "node0.20.first.blackbox")
    job, (first, second, child) = viewed(
        tmp_path,
        Box(pid=20, ppid=1, start_ticks=999, created_ns=300_000_000_000),
        Box(pid=30, ppid=20, created_ns=400_000_000_000),
    )
    assert first.process.snapshot.pid == second.process.snapshot.pid
    assert parent_of(job, child) is second


def test_a_parent_that_was_recorded_after_its_child_is_found(tmp_path: Path) -> None:
    """It calls enable() when its child runs already."""
    job, (child, parent) = viewed(
        tmp_path, Box(pid=30, ppid=20, created_ns=100_000_000_000), Box(pid=20, ppid=1, created_ns=300_000_000_000)
    )
    assert parent_of(job, child) is parent
    assert children_of(job, parent) == [child]


def test_processes_of_two_machines_are_no_kin(tmp_path: Path) -> None:
    job, (parent, child) = viewed(
        tmp_path,
        Box(pid=20, ppid=1, created_ns=100_000_000_000),
        Box(pid=30, ppid=20, host="other", boot_id="another", created_ns=200_000_000_000),
    )
    assert parent_of(job, child) is None
    assert not are_siblings(parent, child)


def test_an_end_that_is_not_known_is_before_no_other(tmp_path: Path) -> None:
    _, (first, second) = viewed(
        tmp_path,
        Box(pid=20, ppid=1, created_ns=100_000_000_000),
        Box(pid=21, ppid=1, created_ns=200_000_000_000).exit(0),
    )
    assert are_siblings(first, second)
    assert not ended_before(first, second, 0)
    assert not ended_before(second, first, 0)
