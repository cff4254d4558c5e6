"""Processes that outlive a failed job: recorded as running when it ended, with the stacks of that moment."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from pytracer.decode.job.merge import load_job
from tests.conditions import needs_native
from tests.support.cli import pytracer
from tests.support.crash import PROGRAMS

pytestmark = needs_native


@pytest.mark.timeout(120)
@pytest.mark.slow
def test_process_that_outlives_a_failed_job_leaves_its_stacks(tmp_path: Path) -> None:
    """Although it is killed afterwards, it is no death of that job."""
    done = pytracer("run", "-o", "run", "--", sys.executable, PROGRAMS / "outlived.py", cwd=tmp_path)
    assert done.returncode == 3, done.stderr
    pid = int(done.stdout)
    try:
        os.kill(pid, signal.SIGKILL)
    finally:
        job = load_job(tmp_path / "run")
    (child,) = [item for item in job.processes if item.snapshot.pid == pid]
    assert (child.status_kind, child.outlived_mono_ns is not None) == ("running", True)
    assert child.snapshot.live is not None
    assert "stands" in [frame.function for frame in child.snapshot.live.python_stack]
