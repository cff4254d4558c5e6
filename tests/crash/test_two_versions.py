"""`pytracer run` of one environment around a program of another, whose pytracer is of another version."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from pytracer._version import __version__
from tests.conditions import needs_native
from tests.support.cli import ROOT
from tests.support.crash import traced_run

pytestmark = [needs_native]

MIXED = f"the core of pytracer {__version__} is preloaded, and the package is pytracer 99.0, of another environment"
PROGRAM = """
import sys
sys.path.insert(0, {path!r})
import pytracer
{enable}
import torch
print(pytracer.__version__, torch.ones(3).sum().item())
import ctypes
ctypes.string_at(0)
"""


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a package of the next version is installed."""
    place = tmp_path_factory.mktemp("other")
    shutil.copytree(
        ROOT / "pytracer", place / "pytracer", ignore=shutil.ignore_patterns("__pycache__", "_torch", "_helper")
    )
    (place / "pytracer" / "_version.py").write_text('__version__ = "99.0"\n')
    return place


@pytest.mark.parametrize("enable", ["pytracer.enable()", ""])
@pytest.mark.quick(1)
def test_core_of_another_version_is_left_alone_and_told(other: Path, enable: str, tmp_path: Path) -> None:
    """The program runs as it would, the core records its crash, and the report says what is missing and why."""
    done = traced_run(sys.executable, "-c", PROGRAM.format(path=str(other), enable=enable), run=tmp_path / "run")
    assert done.status == 139
    assert done.stdout == "99.0 3.0\n"
    assert (f"pytracer: not recording: {MIXED}" in done.stderr) == bool(enable)
    assert done.report.verdict is not None
    assert done.report.verdict.class_ == "null-dereference"
    process = (done.report.processes or [])[0]
    assert any(MIXED in note and "bin/pytracer run`" in note for note in process.notes or ()), process.notes
