"""`%load_ext pytracer` in real kernels, which nbclient runs as Jupyter does."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.conditions import needs_core
from tests.homes.environments import installed, python_of
from tests.support.crash import PROGRAMS, environment

pytestmark = [
    needs_core,
    pytest.mark.slow,
    pytest.mark.skipif(not installed("jupyter"), reason="build/homes/jupyter is not installed: make test-homes"),
]

LOAD = "%load_ext pytracer"
RUNNER = PROGRAMS.parents[1] / "homes" / "programs" / "notebook_kernels.py"


def notebooks(directory: Path, *cells: list[str]) -> list[dict[str, Any]]:
    """What each of the notebooks showed; every one has a kernel of its own."""
    python = python_of("jupyter")
    path = os.pathsep.join([str(python.parent), os.environ["PATH"]])
    done = subprocess.run(
        [python, RUNNER], input=json.dumps(cells), env=environment(PATH=path), cwd=directory,
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    found: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_next_kernel_shows_how_the_last_one_died(tmp_path: Path) -> None:
    """Headline, number and source of the cell, also of the one that defined the function; once."""
    dies = [LOAD, "import ctypes\ndef read(n):\n    ctypes.string_at(n)", "x = 1\nread(0)", "print('never')"]
    works = [LOAD, "print('hello')"]
    first, second, third = notebooks(tmp_path, dies, works, works)
    assert first == {"died": True, "shown": []}
    assert second["died"] is False
    report, hello = second["shown"]
    assert hello == "hello\n"
    assert report.startswith("The last kernel of this notebook died.\n\nJupyter kernel (pid ")
    assert "read through a null pointer" in report
    assert re.search(r"^cell +3, line 2: read\(0\); in cell 2, line 3: ctypes.string_at\(n\)$", report, re.M), report
    assert third == {"died": False, "shown": ["hello\n"]}


def test_kernel_that_was_killed_is_shown_with_its_cell(tmp_path: Path) -> None:
    """As by the OOM killer: there is no stack, but the cell is known. The verdict claims no more."""
    kills = [LOAD, "import os, signal\n\nos.kill(os.getpid(), signal.SIGKILL)"]
    first, second = notebooks(tmp_path, kills, [LOAD])
    assert first["died"]
    (report,) = second["shown"]
    assert re.search(r"^cell +2: import os, signal$", report, re.M), report
    assert "(certain)" not in report


def test_kernel_that_ended_well_is_not_shown(tmp_path: Path) -> None:
    """Also with an exception in a cell, which Jupyter shows itself, and after %unload_ext."""
    well = [LOAD, "print('one')", "%unload_ext pytracer", "print('two')"]
    first, second = notebooks(tmp_path, well, [LOAD])
    assert first == {"died": False, "shown": ["one\n", "two\n"]}
    assert second == {"died": False, "shown": []}


def test_cell_that_fails_because_another_process_died_shows_what_became_of_it(tmp_path: Path) -> None:
    """Below the traceback. The look-alike fails for a reason of its own, after such a death."""
    pool = "import concurrent.futures, ctypes\npool = concurrent.futures.ProcessPoolExecutor(1)"
    fails = [LOAD, pool, "pool.submit(ctypes.string_at, 0).result()  # raises", "1 / 0  # raises"]
    (shown,) = (item["shown"] for item in notebooks(tmp_path, fails))
    (line,) = (text for text in shown if text.startswith("pytracer: "))
    assert "read through a null pointer" in line
    place = [n for n, text in enumerate(shown) if "BrokenProcessPool" in text]
    assert shown.index(line) > place[0]
    assert "ZeroDivisionError" in shown[-1]
