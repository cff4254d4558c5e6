"""Threads work on everything that is published without locks, under a sanitizer: make test-tsan, make test-asan."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from pytracer.decode.recording.reader import read_box
from tests.conditions import STRESS, needs_stress

pytestmark = needs_stress

ROUNDS = 20_000
SUPPRESSIONS = Path(__file__).with_name("tsan.suppressions")


def test_readers_see_whole_items_and_no_access_races(tmp_path: Path) -> None:
    """Rings, slots, storages, collectives, signal actions: no item of two halves, no access that is not ordered."""
    done = subprocess.run(
        [STRESS, tmp_path / "run", str(ROUNDS)],
        env=os.environ | {
            "TSAN_OPTIONS": f"suppressions={SUPPRESSIONS}:halt_on_error=0:exitcode=66",
            "ASAN_OPTIONS": "detect_leaks=0",  # contexts, regions and alternate stacks stay until the process ends
        },
        capture_output=True, text=True, check=False, timeout=170,
    )  # fmt: skip
    assert "stress: 0 items were not whole" in done.stderr, done.stderr[-4000:]
    assert done.returncode == 0, done.stderr[:8000]
    (path,) = (tmp_path / "run" / "boxes").glob("*.blackbox")
    box = read_box(path)
    assert box.counts["torn_graves"] == box.counts["torn_records"] == 0
