"""The file that the process had opened anew while it had it mapped, by a line of its stack; look-alikes are not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pytracer.decode.types.snapshot import HeldArray, PythonFrame
from pytracer.report.job import Report
from tests.support import scenarios as s
from tests.support.deaths import PROGRAM, advice, died, summary, verdict

START = 0x7F00_0000_0000
PATH = "/data/run/scan_07.raw"
SCAN = """import numpy as np
class Scan:
    def __init__(self, path, rows):
        self.path = path
        self.rows = rows
    @classmethod
    def load(cls, path, mmap=True):
        if mmap:
            rows = np.memmap(path, "f4", "c")
        else:
            rows = np.fromfile(path, "f4")
        return cls(path, rows)
    def save(self, path=None):
        path = path or self.path
        with open(path, "wb") as f:
            f.write(self.rows.tobytes())
def main(path):
    scan = Scan.load(path)
    scan.save()
def make(path):
    Scan(path, np.zeros(9)).save()
main(p)
"""


def died_in(run: Path, source: str, *frames: tuple[str, int, str]) -> Report:
    """`frames`: function, line and the mapped array's expression there, innermost first."""
    file = run / "train.py"
    file.write_text(source, encoding="utf-8")
    os.utime(file, (0, 0))  # before the recorded process began
    arrays = tuple(
        HeldArray(name, START + 64, "float32", (9,), (4,), PythonFrame(function, str(file), line), depth)
        for depth, (function, line, name) in enumerate(frames)
        if name
    )
    report = died(
        run, signal=7, code=2, addr=START + 64, file_nbytes=0, file_room=1 << 30, file_system=0xEF53, arrays=arrays,
        python=[(function, str(file), line) for function, line, _ in frames],
        stack_of=[(s.TORCH_CPU, "array_tobytes")],
        mappings=[PROGRAM, (START, START + 0x10_0000, "rw-p", 0, PATH)],
    )  # fmt: skip
    assert verdict(report) == ("truncated-mapping", "certain")
    return report


STACK = (("Scan.save", 16, "self.rows"), ("main", 19, "scan.rows"), ("<module>", 22, ""))


def test_object_that_writes_the_file_it_has_mapped(run: Path) -> None:
    report = died_in(run, SCAN, *STACK)
    assert (
        'the file held 0 bytes; line 15 (`with open(path, "wb") as f:`) emptied it while line 9 had it mapped as '
        "`self.rows`."
    ) in summary(report)
    assert advice(report).startswith("Write to another file at line 15 and rename it over this one when it is whole")
    assert "Or pass mmap=False at line 18 (`scan = Scan.load(path)`)." in advice(report)
    assert "What scan_07.raw held is lost: restore it from a copy" in advice(report)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("scan.save()", "scan.save(other)"),
        ('open(path, "wb")', 'open(path + ".new", "wb")'),
        ('open(path, "wb")', 'open(path, "r+b")'),
        ("return cls(path, rows)", "return cls(path + '.out', rows)"),
        ("scan = Scan.load(path)", "scan = Scan.load(path); scan.path = other"),
        ("Scan(path, np.zeros(9))", "Scan(path, Scan.load(other).rows)"),
        ("f.write(self.rows", "self.rows = np.memmap(path); f.write(self.rows"),
    ],
    ids=["another path is passed", "aside", "not emptied", "another path is kept", "path is set anew"]
    + ["array of another object", "mapped behind"],
)
def test_files_that_may_be_others(old: str, new: str, run: Path) -> None:
    """Look-alikes: at most it may have been so."""
    source = SCAN.replace(old, new)
    assert source != SCAN
    report = died_in(run, source, *STACK)
    assert "emptied it" not in summary(report) and "is lost" not in advice(report)


DATA = """import numpy as np
from dataclasses import dataclass
@dataclass
class Scan:
    path: str
    rows: object
def load(path):
    return Scan(path, np.memmap(path, "f4", "c"))
def save(scan):
    f = open(scan.path, "wb")
    for row in range(3):
        put(f, scan.rows, row)
def put(f, rows, row):
    f.write(rows[row].tobytes())
for name in names:
    save(load(name))
"""


def test_function_that_is_given_the_object_and_a_helper_that_writes(run: Path) -> None:
    frames = (("put", 14, "rows"), ("save", 12, "scan.rows"), ("<module>", 16, ""))
    report = died_in(run, DATA, *frames)
    assert ('; line 10 (`f = open(scan.path, "wb")`) emptied it while line 8 had it mapped as `scan.rows`') in summary(
        report
    )
    assert "Or copy `scan.rows` before." in advice(report)
    other = DATA.replace("return Scan(path, np", "return Scan(path + 'x', np")
    assert "emptied it" not in summary(died_in(run, other, *frames))


@pytest.mark.parametrize(
    "call",
    [
        "save(replace(load(name), path=name + '.out'))",
        "scan = load(name); setattr(scan, 'path', name + '.out'); save(scan)",
        "scan = load(name); object.__setattr__(scan, key, value); save(scan)",
    ],
)
def test_object_that_may_have_another_path_since(call: str, run: Path) -> None:
    frames = (("put", 14, "rows"), ("save", 12, "scan.rows"), ("<module>", 16, ""))
    source = DATA.replace("save(load(name))", call)
    assert source != DATA
    assert "emptied it" not in summary(died_in(run, source, *frames))


SCRATCH = """import numpy as np
class Scan:
    def __init__(self, path):
        self.path = path
        {copied}
        self.rows = np.memmap(path, "f4", "c")
    def save(self):
        with open(self.path, "wb") as f:
            f.write(self.rows.tobytes())
Scan(p).save()
"""


@pytest.mark.parametrize(("copied", "fires"), [("path = to_scratch(path)", False), ("self.name = path", True)])
def test_path_that_is_another_where_it_is_mapped(copied: str, fires: bool, run: Path) -> None:
    """A copy in a folder of its own is mapped there, and the object has the path of the first."""
    report = died_in(run, SCRATCH.format(copied=copied), ("Scan.save", 9, "self.rows"), ("<module>", 10, ""))
    assert ("emptied it" in summary(report)) == fires


LOCAL = """import numpy as np
def main(path, {given}):
    {before}
    with open(path, "wb") as f:
        {behind}
        f.write(rows.tobytes())
main(p, q)
"""


@pytest.mark.parametrize(
    ("given", "before", "behind", "fires"),
    [
        ("other", "rows = np.memmap(path, 'f4', 'c')", "pass", True),
        ("other", "rows = np.memmap(other, 'f4', 'c')", "pass", False),
        ("other", "pass", "f.flush(); rows = np.memmap(path, 'f4', 'c')", False),
        ("rows", "pass", "pass", False),
    ],
)
def test_variables_of_one_function(given: str, before: str, behind: str, fires: bool, run: Path) -> None:
    source = LOCAL.format(given=given, before=before, behind=behind)
    report = died_in(run, source, ("main", 6, "rows"), ("<module>", 7, ""))
    assert ("emptied it" in summary(report) or "rewrites it" in summary(report)) == fires
