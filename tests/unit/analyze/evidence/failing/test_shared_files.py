"""Files that a dataset opened before its workers were forked, by the source of the dataset."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.failing.explained import Explanation, explained
from pytracer.report.job import ExceptionReport, PythonFrame

PROGRAM = """
import h5py, numpy as np
from torch.utils.data import DataLoader, Dataset
class Scans(Dataset):
    def __init__(self, path):
        self.data = {opened}
        self.names = list(self.data)
    def __getitem__(self, index):
        return self.data[self.names[index]]
loader = DataLoader(Scans("scans.npz"), num_workers={workers})
"""


CRC = ("zipfile.BadZipFile", "Bad CRC-32 for file 'a.npy'")


def found(
    folder: Path,
    opened: str,
    workers: int = 2,
    dataset: str | None = "Scans",
    error: tuple[str, str] = CRC,
    program: str = PROGRAM,
) -> Explanation:
    """What is said of an exception at line 9 of such a program."""
    file = folder / "train.py"
    file.write_text(program.format(opened=opened, workers=workers), encoding="utf-8")
    snapshot: Any = SimpleNamespace(created_wall_ns=time.time_ns() + 10**9, argv=("train.py",), environment={})
    stack = [PythonFrame(function="__getitem__", file=str(file), line=9)]
    return explained(snapshot, ExceptionReport(type=error[0], message=error[1]), stack, dataset)


@pytest.mark.parametrize("opened", ["np.load(path)", "h5py.File(path, 'r')", "open(path, 'rb')"])
def test_open_file_that_several_workers_share_is_named(opened: str, tmp_path: Path) -> None:
    """With its line; one process does not repeat what takes two."""
    said = found(tmp_path, opened)
    assert (said.words or "").startswith(f"The workers share the open file of `self.data` (line 6: `{opened}`)")
    assert (said.subject or "").startswith("the workers share the open file of `self.data`, which __init__() opened")
    assert said.together


@pytest.mark.parametrize(
    ("opened", "more", "opener"),
    [
        ("self.begin(path)", "def begin(self, path):\n        self.data = h5py.File(path)", "begin"),
        ("pandas.HDFStore(path)", "def begin(self, path): ...", "__init__"),
    ],
)
def test_file_that_a_method_of_init_opened(opened: str, more: str, opener: str, tmp_path: Path) -> None:
    """And a table of another library."""
    program = PROGRAM.replace("self.data = {opened}", opened if opener == "begin" else "self.data = {opened}")
    said = found(tmp_path, opened, program=program.replace("loader =", f"    {more}\nloader ="))
    assert f"which {opener}() opened before they were forked" in (said.words or "")


READER = """
import io, zipfile, numpy as np
from torch.utils.data import DataLoader, Dataset
def decode(entry, {kind}):
    return np.load(io.BytesIO(entry.read()))
class Reader:
    def __init__(self, path):
        self.archive = zipfile.ZipFile(path)
    def load(self, name):
        {opens}
            return decode(entry, 1)
class Scans(Dataset):
    def __init__(self, reader):
        self.reader = reader
    def __getitem__(self, index):
        return self.reader.load(index)
loader = DataLoader(Scans(Reader("scans.zip")), num_workers=4)
"""


@pytest.mark.parametrize(
    ("opens", "named"),
    [
        ("with self.archive.open(name) as entry:", True),
        ("with zipfile.ZipFile(name) as own, own.open('a') as entry:", False),  # each worker opens its own
        ("with self.open(name) as entry:", False),
    ],
)
def test_file_behind_the_variable_that_fails(opens: str, named: bool, tmp_path: Path) -> None:
    """Through the `with` that made it, in the function that passed it on."""
    file = tmp_path / "train.py"
    file.write_text(READER.format(opens=opens, kind="kind"), encoding="utf-8")
    snapshot: Any = SimpleNamespace(created_wall_ns=time.time_ns() + 10**9, argv=("train.py",), environment={})
    way = [("decode", 5), ("Reader.load", 11), ("Scans.__getitem__", 16)]
    stack = [PythonFrame(function=name, file=str(file), line=line) for name, line in way]
    said = explained(snapshot, ExceptionReport(type=CRC[0], message=CRC[1]), stack, "Scans")
    assert ("the open file of `self.archive` (line 8" in (said.words or "")) is named


@pytest.mark.parametrize(
    ("opened", "workers", "dataset"),
    [
        ("np.load(path, mmap_mode='r')", 2, "Scans"),  # has no place that moves
        ("np.load(path)", 1, "Scans"),
        ("np.load(path)", 2, None),  # of no worker
        ("read(path)", 2, "Scans"),
        ("zarr.open(path)", 2, "Scans"),  # opens a file for each chunk
        ("h5py.File(path, driver='core')", 2, "Scans"),
    ],
)
def test_other_data_is_no_shared_file(opened: str, workers: int, dataset: str | None, tmp_path: Path) -> None:
    """What has no place, and where only one reads."""
    assert not found(tmp_path, opened, workers, dataset).together


def test_other_errors_are_not_of_a_shared_file(tmp_path: Path) -> None:
    """Only those that complain of damage."""
    bounds = ("IndexError", "index 9 is out of bounds for axis 0 with size 3")
    assert not found(tmp_path, "np.load(path)", error=bounds).together


FULL = ("lmdb.ReadersFullError", "mdb_txn_begin: MDB_READERS_FULL: Environment maxreaders limit reached")


@pytest.mark.parametrize(("error", "is_full"), [(FULL, True), (("lmdb.CorruptedError", "MDB_CORRUPTED: ..."), False)])
def test_environment_of_lmdb_belongs_to_the_process_that_opened_it(
    error: tuple[str, str], is_full: bool, tmp_path: Path
) -> None:
    """It has no place that moves: the slots of its readers are what workers use up."""
    said = found(tmp_path, "lmdb.open(path, readonly=True)", error=error)
    assert (said.subject or "").startswith("the workers use the LMDB environment `self.data`, which __init__() opened")
    assert ("takes a slot of its table of readers" in (said.words or "")) == is_full
    assert "moved its place" not in (said.words or "")
