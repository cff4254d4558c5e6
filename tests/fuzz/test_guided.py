"""Guidance by coverage finds inputs that random mutation does not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conditions import needs_atheris
from tests.support.cli import ROOT, clean_environment

# Four comparisons deep: random mutation of this seed passes all of them once in 10^9 inputs. The input after the first
# success is the last.
PLANTED = """
import os, sys
from pathlib import Path
import atheris
from tests.fuzz import mutations, targets  # before guided, which would instrument all that they import: seconds
from tests.fuzz import guided

found = []

def read(content, folder):
    if found:
        os._exit(0)
    if content[8:9] == b"Q":
        if content[3:4] == b"z":
            if len(content) % 7 == 3:
                if content[5:7] == b"ab":
                    found.append(content)
                    raise KeyError("planted")

read = atheris.instrument_func(read) if sys.argv[1] == "guided" else read
targets.TARGETS["planted"] = targets.Target(lambda: [bytes(16)], mutations.changed_bytes, read)
guided.guide("planted", float(sys.argv[2]), Path(sys.argv[3]), Path(sys.argv[4]))
"""


@needs_atheris
@pytest.mark.parametrize(("how", "seconds", "found"), [("guided", 60, True), ("blind", 4, False)])
@pytest.mark.slow
def test_rare_branch_is_found_by_guidance_alone(how: str, seconds: int, found: bool, tmp_path: Path) -> None:
    """It takes a second or two; the same changes without coverage do not find it in several times as many inputs."""
    aside, inputs = tmp_path / "aside", tmp_path / "inputs"
    inputs.mkdir()  # which is emptied for each input
    done = subprocess.run(
        [sys.executable, "-c", PLANTED, how, str(seconds), str(aside), str(inputs)],
        capture_output=True, text=True, env=clean_environment(), cwd=ROOT, check=False, timeout=250,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert ("'planted'; replay: " in done.stdout) == found, done.stderr
    assert len(list(aside.glob("planted-*.bin"))) == found
