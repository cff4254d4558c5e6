"""A job that exits normally is unchanged: output, status, and numbers to the last bit."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conditions import needs_core, needs_native
from tests.support.crash import PROGRAMS, Ended, ended, environment, healthy, torchrun, traced_run, victim

pytestmark = [needs_core, needs_native]

PROGRAM = "healthy_training.py"
LEVELS = ("light", "default", "ops")


@pytest.fixture(scope="module")
def plain(runs: Callable[[], Path]) -> Ended:
    """The training, untraced."""
    done = victim(PROGRAM, run=runs(), way="untraced")
    assert done.status == 0, done.stderr
    return done


@pytest.fixture(scope="module")
def traced(runs: Callable[[], Path]) -> Ended:
    """The same under `pytracer run`."""
    return traced_run(sys.executable, PROGRAMS / PROGRAM, run=runs())


def test_success_is_one_line_on_stderr(plain: Ended, traced: Ended) -> None:
    """stdout is byte-identical, the status is 0, and stderr names the recording and nothing more."""
    assert traced.stdout == plain.stdout
    assert traced.status == 0
    assert plain.stderr == ""
    assert traced.stderr == "pytracer: recorded in run\n"


def test_quiet_success_is_silent(plain: Ended, run: Path) -> None:
    """With --quiet a job that exits normally prints no line at all."""
    done = traced_run(sys.executable, PROGRAMS / PROGRAM, run=run, options=("--quiet",))
    assert (done.status, done.stdout, done.stderr) == (0, plain.stdout, "")


def test_healthy_box_has_no_crash_and_its_report_is_clean(traced: Ended) -> None:
    """The recording ended normally; storages, steps and marks are in it; nothing was lost."""
    (box,) = traced.boxes
    assert (box.state, box.exit_code, box.crash, box.damage) == ("EXITING", 0, None, ())
    assert box.step == 20
    assert (box.counts["dropped"], box.counts["hook_errors"], box.counts["unknown_frees"]) == (0, 0, 0)
    assert box.counts["freed_storages"] > 0
    assert {"STEP", "MARK"} <= {event.kind for event in box.events}
    verdict = traced.report.verdict
    assert verdict is not None
    assert verdict.class_ == "clean"


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.quick(1)
def test_numbers_are_the_same_to_the_last_bit(level: str, plain: Ended, run: Path) -> None:
    """Losses, dropout and final weights do not depend on whether and how much is recorded."""
    done = victim(PROGRAM, run=run, PYTRACER_LEVEL=level)
    assert (done.status, done.stdout, done.stderr) == (0, plain.stdout, "")
    kinds = {event.kind for event in done.box.events}
    assert ("OP" in kinds) == (level == "ops")
    assert level != "default" or "NODE" in kinds
    assert level != "light" or "NODE" not in kinds


@pytest.mark.slow
def test_two_ranks_train_the_same_numbers_with_and_without_tracing(tmp_path: Path) -> None:
    """DDP over gloo: losses and weights of both ranks are the same bits, and stdout is byte-identical."""
    command = torchrun(PROGRAMS / "healthy_ddp_training.py")

    def untraced() -> Ended:
        return ended(command, environment(), tmp_path / "none")

    def traced(name: str) -> Ended:
        return traced_run(*command, run=tmp_path / name)

    plain = healthy(untraced, untraced)
    done = healthy(lambda: traced("run"), lambda: traced("again"))
    assert (plain.status, done.status) == (0, 0), done.stderr
    assert done.stdout == plain.stdout
    assert "pytracer: recorded in" in done.stderr
    ranks = {process.rank: process for process in done.job.ranks}
    assert set(ranks) == {0, 1}
    for process in ranks.values():
        assert {c.state for c in process.snapshot.collectives} == {"completed"}
        assert process.snapshot.counts["hook_errors"] == 0
    last = [max(c.sequence_nr for c in process.snapshot.collectives) for process in ranks.values()]
    assert last[0] == last[1]


@pytest.mark.parametrize(
    ("how", "status"),
    [("exit", 3), ("_exit", 4), ("kill", 137), ("terminate", 143), ("raise", 1), ("child-killed", 137)],
)
def test_status_is_the_programs_own(how: str, status: int, run: Path) -> None:
    """Exit codes are unchanged, 128 + n for signal n; output written before is complete."""
    plain = victim("ends_as_told.py", how, run=run, way="untraced")
    done = traced_run(sys.executable, PROGRAMS / "ends_as_told.py", how, run=run)
    assert done.status == status == (plain.status if plain.status >= 0 else 128 - plain.status)
    assert done.stdout == plain.stdout
    assert done.stderr.startswith(plain.stderr)
    (box,) = [box for box in done.boxes if "ends_as_told.py" in " ".join(box.argv)]
    assert box.exit_code == (status if how in ("exit", "_exit", "raise", "child-killed") else None)


def test_isolated_python_is_traced_without_our_package_on_its_path(run: Path) -> None:
    """`python -I` ignores PYTHONPATH and the user's packages, and is still recorded with its storages."""
    command = [sys.executable, "-m", "pytracer", "run", "-o", str(run), "--", sys.executable, "-I", "-c"]
    code = "import torch; kept = torch.ones(1000); print('pytracer' in __import__('sys').modules)"
    done = subprocess.run(
        [*command, code], env=environment(), cwd=run.parent, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "True\n")
    box = Ended(0, 0, "", "", run).boxes[0]
    assert 4000 in [storage.nbytes for storage in box.storages]
