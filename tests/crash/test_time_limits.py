"""A process that a time limit ended while it worked: where it was, and the loop that it was in."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conditions import needs_compiler, needs_native
from tests.support.crash import PROGRAMS, line_of, traced_run
from tests.support.deaths import advice, summary, verdict

pytestmark = needs_native
PACK = "int pack(int length, int room) { volatile int used = 0; while (length + used > room) used = 0; return used; }"


def ended(tmp_path: Path, *how: str, class_: str = "external-kill", confidence: str = "certain") -> tuple[str, str]:
    command = ["timeout", "3", sys.executable, str(PROGRAMS / "does_not_end.py"), *how]
    report = traced_run(*command, run=tmp_path / "run").report
    assert verdict(report) == (class_, confidence)
    return summary(report), advice(report)


def test_loop_whose_condition_may_never_change_is_named(tmp_path: Path) -> None:
    headline, next_step = ended(tmp_path, "loop")
    line = line_of("does_not_end.py", "while len(chosen) < count")
    assert f"in sample, in the loop `while len(chosen) < count` (line {line})" in headline
    assert f"whether `len(chosen) < count` (line {line}) can still become false" in next_step


@needs_compiler
def test_native_function_that_does_not_return_is_named(tmp_path: Path) -> None:
    (tmp_path / "pack.c").write_text(PACK, encoding="utf-8")
    library = tmp_path / "libpack.so"
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", library, tmp_path / "pack.c"], check=True)
    headline, next_step = ended(tmp_path, "native", str(library))
    line = line_of("does_not_end.py", ".pack(600, 512)")
    assert f"it was in pack, called at does_not_end.py:{line} in pack" in headline
    assert f"the numbers that line {line} passes" in next_step


@pytest.mark.slow
def test_wait_for_a_loader_names_the_worker_and_its_samples(tmp_path: Path) -> None:
    command = ["timeout", "20", sys.executable, str(PROGRAMS / "slow_samples.py")]
    report = traced_run(*command, run=tmp_path / "run").report
    assert verdict(report) == ("hang", "possible")
    line = line_of("slow_samples.py", "for batch in")
    assert f"waited for a batch of its DataLoader at slow_samples.py:{line} in main" in summary(report)
    assert "had been loading samples 8-11 for" in summary(report)
    assert "`dataset[i]` for its samples" in advice(report)


@pytest.mark.slow
def test_loop_that_only_sleeps_waited_for_its_condition(tmp_path: Path) -> None:
    """It computed nothing that could end it: somebody else should have."""
    headline, next_step = ended(tmp_path, "sleep", class_="hang", confidence="possible")
    line = line_of("does_not_end.py", "while len(sys.argv) > 1")
    assert (
        f" slept at does_not_end.py:{line + 1} in rest, in the loop `while len(sys.argv) > 1` (line {line})" in headline
    )
    assert next_step.startswith(f"See what should have ended `while len(sys.argv) > 1` (line {line})")
