"""A training program that is an installed package dies as one of loose files does: its own lines are told."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from pytracer.render.text import render_text
from tests.conditions import needs_native
from tests.support.cli import ROOT
from tests.support.crash import traced_run

pytestmark = needs_native

TRAIN = """\
import sys
from .data import Windows

def main():
    windows = Windows(sys.argv[1])
    windows.trim(4096)
    print(windows.mean(int(sys.argv[2])))

if __name__ == "__main__":
    main()
"""
DATA = """\
import os
import torch

class Windows:
    def __init__(self, path):
        self.path = path
        torch.ones(1 << 20).numpy().tofile(path)
        self.values = torch.from_file(path, shared=True, size=1 << 20)

    def trim(self, kept):
        os.truncate(self.path, kept)

    def mean(self, size):
        windows = self.values.view(-1, size)
        return windows.mean()
"""


@pytest.fixture(name="site")
def _site(tmp_path: Path) -> Path:
    """A site-packages with the package and its console script."""
    site = tmp_path / "lib" / "python3.11" / "site-packages"
    package = site / "winnow"
    package.mkdir(parents=True)
    for name, text in (("__init__", ""), ("train", TRAIN), ("data", DATA)):
        (package / f"{name}.py").write_text(text)
    script = tmp_path / "bin" / "winnow-train"
    script.parent.mkdir()
    script.write_text("import sys\nfrom winnow.train import main\nif __name__ == '__main__':\n    sys.exit(main())\n")
    return site


@pytest.mark.parametrize("how", ["module", "console script"])
def test_a_crash_names_the_line_of_the_package(tmp_path: Path, site: Path, how: str) -> None:
    """SIGBUS behind the end of a file that another method of the package cut."""
    start = ("-m", "winnow.train") if how == "module" else (str(tmp_path / "bin" / "winnow-train"),)
    done = traced_run(
        sys.executable,
        *start,
        str(tmp_path / "windows.bin"),
        "8",
        run=tmp_path / "run",
        PYTHONPATH=f"{site}{os.pathsep}{ROOT}",
    )
    verdict, run = done.report.verdict, done.report.run
    assert verdict is not None and run is not None
    assert (verdict.class_, run.program_packages) == ("truncated-mapping", ["winnow"])
    assert "winnow/data.py:15 in Windows.mean" in (verdict.summary or ""), verdict.summary
    assert "winnow" in render_text(done.report, everything=True).partition("\nprogram ")[2].partition("\n")[0]


def test_an_exception_has_the_values_of_the_packages_frame(tmp_path: Path, site: Path) -> None:
    """As of a file of the user's: `size` at the line that raised."""
    arguments = ("-m", "winnow.train", str(tmp_path / "windows.bin"), "7")
    done = traced_run(sys.executable, *arguments, run=tmp_path / "run", PYTHONPATH=f"{site}{os.pathsep}{ROOT}")
    (raised,) = [process.exception for process in done.job.processes if process.exception is not None]
    assert {item.name: item.value for item in raised.variables}["size"] == "7"
    verdict = done.report.verdict
    assert verdict is not None
    assert "winnow/data.py:14 in Windows.mean" in (verdict.summary or ""), verdict.summary
