"""The callbacks in the real Lightning and Hugging Face Trainer."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import pytracer
from pytracer.report.job import ProcessReport
from tests.conditions import needs_native
from tests.homes.environments import installed, python_of
from tests.homes.homes import PROGRAMS
from tests.support.cli import ROOT, clean_environment
from tests.support.crash import environment

FRAMEWORKS = ("lightning", "huggingface")


def train(framework: str, death: str, callback: str, directory: Path) -> subprocess.CompletedProcess[str]:
    if not installed(framework):
        pytest.skip(f"build/homes/{framework} is not installed: make test-homes")
    return subprocess.run(
        [python_of(framework), PROGRAMS / f"callback_{framework}.py", death, callback],
        env=environment(OMP_NUM_THREADS="1"), cwd=directory, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


def process_of(directory: Path) -> ProcessReport:
    """The training process, of a run without a launcher."""
    (process,) = pytracer.inspect(str(directory / "run")).processes or []
    return process


@pytest.mark.slow
@needs_native
@pytest.mark.timeout(200)
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_crash_names_step_epoch_and_batch(framework: str, tmp_path: Path) -> None:
    """Of the callback's own recording: nothing else was started."""
    done = train(framework, "fault", "callback", tmp_path)
    assert done.returncode == -11, done.stderr
    process = process_of(tmp_path)
    assert process.doing is not None
    text = {"lightning": "1, batch 2", "huggingface": "1"}[framework]
    step = {"lightning": 6, "huggingface": 5}[framework]
    assert (process.doing.kind, process.doing.text, process.step) == ("epoch", text, step)


@pytest.mark.slow
@needs_native
@pytest.mark.timeout(200)
def test_exception_in_lightning_tells_where_the_report_is(tmp_path: Path) -> None:
    """As a note below the traceback; the exception stays the program's."""
    done = train("lightning", "exception", "callback", tmp_path)
    assert done.returncode == 1
    assert done.stderr.rstrip().endswith("ValueError: a bad batch\npytracer: `pytracer inspect run`"), done.stderr
    assert (process_of(tmp_path).doing or pytest.fail("nothing noted")).text == "1, batch 2"


@pytest.mark.slow
@needs_native
@pytest.mark.timeout(200)
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_training_is_the_same_with_the_callback(framework: str, tmp_path: Path) -> None:
    """The same weights, to the last bit."""
    seen = [train(framework, "none", callback, tmp_path) for callback in ("callback", "plain")]
    assert [done.returncode for done in seen] == [0, 0], seen
    weights = [[line for line in done.stdout.splitlines() if line.startswith("weights")] for done in seen]
    assert weights[0] == weights[1] != []


def test_package_imports_no_framework() -> None:
    """Each is imported with its callback; there is no other one."""
    program = (
        "import sys, pytracer.callbacks as c\n"
        "print(sorted(sys.modules.keys() & {'torch', 'lightning', 'transformers'}))\n"
        "print(hasattr(c, 'Nonsense'))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env=clean_environment(), capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\nFalse\n"
