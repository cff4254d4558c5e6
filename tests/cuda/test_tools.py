"""Tools for machines with devices: doctor, and scripts/gpu_check.py as far as the fake runtime supports it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.support.cli import ROOT
from tests.support.crash import ended, environment

pytestmark = pytest.mark.fake_cuda


def test_doctor_follows_devices(run: Path) -> None:
    """Blocks and CUDA graphs of a child, and what --gpu-core could do."""
    code = "from pytracer.cli.checks.cuda import check_cuda; c = check_cuda(); print(c.result, c.detail)"
    done = ended([sys.executable, "-c", code], environment(), run)
    assert done.status == 0, done.stderr
    assert done.stdout.startswith("works 2 devices (Fake CUDA device")
    assert "blocks and CUDA graphs followed; the driver, for CUDA 13.0, can write core dumps" in done.stdout


def test_gpu_check_says_what_it_skipped(run: Path) -> None:
    """It succeeds, and each check that needs kernels is skipped with a reason."""
    out = run.with_suffix(".json")
    # Measuring takes as long as everything else, and is meaningless here.
    command: list[str | Path] = [sys.executable, ROOT / "scripts" / "gpu_check.py", "--out", out, "--skip", "costs"]
    done = ended(command, environment(), run)
    assert done.status == 0, done.stderr
    found = json.loads(out.read_text(encoding="utf-8"))
    results = {name: item["result"] for name, item in found["checks"].items()}
    assert found["fake"] is True and "failed" not in results.values()
    skipped = {name for name, result in results.items() if result == "skipped"}
    assert skipped == {"illegal access", "cudagraph trees of inductor"}
    assert all(found["checks"][name]["why"] for name in skipped)
