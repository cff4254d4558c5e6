"""Checkpoint writers whose memory is not there: left out by a fork, or released meanwhile; and look-alikes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.conditions import needs_native
from tests.support.crash import PROGRAMS, Ended, line_of, traced_run

PROGRAM = "forked_checkpoint_writer.py"
THREAD = "saved_by_a_thread.py"
ASYNC = "saved_by_async_save.py"
pytestmark = [needs_native]


def written(how: str, tmp_path: Path) -> Ended:
    return traced_run(sys.executable, PROGRAMS / PROGRAM, how, run=tmp_path / "run")


def test_memory_that_fork_left_out_is_named(tmp_path: Path) -> None:
    """The tensor, where it was made, the line that forked, and what to do."""
    report = written("dontfork", tmp_path).report
    verdict = report.verdict
    assert verdict is not None
    assert (verdict.class_, verdict.confidence) == ("misuse", "likely")
    finding = next(item for item in report.findings or [] if item.id == "memory-not-inherited")
    made, fork = line_of(PROGRAM, "return torch.ones"), line_of(PROGRAM, "writer.start()")
    assert finding.summary is not None
    assert f"that was made at {PROGRAM}:{made} in made" in finding.summary
    assert f"which the fork at {PROGRAM}:{fork} in main did not copy" in finding.summary
    assert verdict.advice is not None
    assert "fork" in verdict.advice
    assert "clone()" in verdict.advice


@pytest.mark.parametrize("how", ["own", "borrowed"])
@pytest.mark.quick(1)
def test_memory_that_the_child_unmapped_is_not_called_left_out(tmp_path: Path, how: str) -> None:
    """A storage that is younger than the fork; memory whose owner gave it back in the child."""
    report = written(how, tmp_path).report
    assert report.verdict is not None
    assert report.verdict.class_ == "use-after-free"
    assert all(item.id != "memory-not-inherited" for item in report.findings or [])


def test_copy_in_ordinary_memory_is_written(tmp_path: Path) -> None:
    """What the advice says helps."""
    assert written("copied", tmp_path).status == 0


def saved(how: str, tmp_path: Path) -> Ended:
    return traced_run(sys.executable, PROGRAMS / THREAD, how, run=tmp_path / "run")


def test_tensor_that_was_released_while_a_thread_saved_it(tmp_path: Path) -> None:
    """Both lines, and that the save has to end first."""
    verdict = saved("freed", tmp_path).report.verdict
    assert verdict is not None
    assert (verdict.class_, verdict.confidence) == ("use-after-free", "certain")
    assert verdict.advice is not None
    writes = line_of(THREAD, "torch.save(state, Slow())")
    frees = line_of(THREAD, "        WEIGHT.untyped_storage().resize_(0)", whole=True)
    assert f"called at {THREAD}:{writes} in save, was still writing this tensor" in verdict.advice
    assert f"another thread released it at {THREAD}:{frees} in main" in verdict.advice


@pytest.mark.slow
def test_thread_that_freed_what_it_saves_itself_gets_other_advice(tmp_path: Path) -> None:
    """No other thread is involved."""
    verdict = saved("own", tmp_path).report.verdict
    assert verdict is not None
    assert verdict.class_ == "use-after-free"
    assert verdict.advice is not None
    assert "still writing" not in verdict.advice


@pytest.mark.slow
def test_tensor_that_was_released_while_async_save_wrote_it(tmp_path: Path) -> None:
    """The line that called async_save(), which the thread of its executor has not on its stack."""
    verdict = traced_run(sys.executable, PROGRAMS / ASYNC, "freed", run=tmp_path / "run").report.verdict
    assert verdict is not None
    assert (verdict.class_, verdict.confidence) == ("use-after-free", "certain")
    assert verdict.advice is not None
    saves, frees = line_of(ASYNC, "dcp.async_save("), line_of(ASYNC, "WEIGHT.untyped_storage().resize_(0)")
    assert f"async_save(), called at {ASYNC}:{saves} in main, was still writing this tensor" in verdict.advice
    assert f"another thread released it at {ASYNC}:{frees} in main" in verdict.advice


@pytest.mark.slow
def test_copy_that_async_save_makes_is_whole(tmp_path: Path) -> None:
    """torch's own stager copies tensors of the CPU, too."""
    assert traced_run(sys.executable, PROGRAMS / ASYNC, "copied", run=tmp_path / "run").status == 0


def test_copy_that_a_thread_saves_is_whole(tmp_path: Path) -> None:
    """What the advice says helps."""
    assert saved("copied", tmp_path).status == 0
