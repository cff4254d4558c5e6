"""Files that the reading methods of a class take from what was opened before, by syntax."""

from __future__ import annotations

import ast
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.failing.data.open_handles import shared_handle
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.report.job import PythonFrame

SNAPSHOT: Any = SimpleNamespace(argv=(), created_wall_ns=time.time_ns() + 10**13)
PROGRAM = """\
class Rows:
    def __init__(self, path):
        self.file = {opened}
        self.names = list(self.file)
    def raw(self, i):
        return {raw}
    def __getitem__(self, i):
        return self.raw(self.names[i])
class Packed(Rows):
    def {method}(self, i):
        return self.file.seek(i) and self.file.read(9)
main(Packed("a.bin"))
"""


def handle(folder: Path, opened: str, raw: str = "i", method: str = "raw", owner: str = "Packed") -> str | None:
    """The file that objects of a class share, with the line that reads it."""
    source = PROGRAM.format(opened=opened, raw=raw, method=method)
    (folder / "train.py").write_text(source)
    file = str(folder / "train.py")
    found = shared_handle({file: ast.parse(source)}, Slice(SNAPSHOT, [PythonFrame(file=file, line=12)]), owner)
    return f"{found.name} {found.opened.line} {found.reads.line}" if found is not None else None


@pytest.mark.parametrize("opened", ["open(path)", "gzip.open(path)", "fs.open(path)", "path.open('rb')"])
def test_method_that_a_derived_class_has_instead_is_the_one_that_reads(opened: str, tmp_path: Path) -> None:
    assert handle(tmp_path, opened) == "self.file 3 11"
    assert handle(tmp_path, opened, owner="Rows") is None


def test_what_is_copied_from_a_file_is_not_the_file(tmp_path: Path) -> None:
    assert handle(tmp_path, "h5py.File(path)", "self.file[i]", "other") == "self.file 3 6"
    assert handle(tmp_path, "h5py.File(path)", method="other") is None


@pytest.mark.parametrize("opened", ["np.load(path)", "lmdb.open(path)", "zarr.open(path)", "Image.open(path)"])
def test_what_checks_or_has_no_position_is_not_shared(opened: str, tmp_path: Path) -> None:
    """The look-alikes: what an archive checks is not read at another place."""
    assert handle(tmp_path, opened) is None
