"""Lines that keep files open, where these use up the file descriptors of a process."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytracer.analyze.evidence.limits.words import LimitReason
from tests.unit.analyze.evidence.limits.test_reached import FILES, reason

HEAD = "def load(i):\n    return data[i]\n"
READER = """class Reader:
    def __init__(self, path):
        self.file = open(path, "rb")
    def get(self, i):
        self.file.seek(i)
        return self.file.read(1)
class Data:
    def __init__(self):
        self.readers = {}
    def __getitem__(self, i):
        if i not in self.readers:
            self.readers[i] = Reader(str(i))
        return self.readers[i].get(i)
"""
LIST = """class Data:
    def __init__(self):
        self.opened = []
    def read(self, path):
        handle = h5py.File(path, "r")
        self.opened.append(handle)
        return handle["x"][:]
"""
CACHE = "@functools.lru_cache(maxsize=None)\ndef volume(path):\n    return open(path, 'rb')\n"
SET_DEFAULT = """class Data:
    def __init__(self):
        self.files = {}
    def tile(self, path):
        return self.files.setdefault(path, open(path, "rb"))
"""
AT_ONCE = """class Scene(Dataset):
    def __init__(self, path):
        self.handle = open(path, "rb")
    def __getitem__(self, i):
        return self.handle.read(i)
data = ConcatDataset([Scene(path) for path in paths])
"""
MADE = """class Data:
    def __init__(self):
        self.maps = []
    def _open(self, path):
        return np.memmap(path)
    def add(self, path):
        self.maps.append(self._open(path))
"""
WITH = """class Data:
    def __init__(self):
        self.rows = {}
    def __getitem__(self, i):
        with open(str(i)) as f:
            self.rows[i] = f.read()
        self.rows[i] = open(str(i)).read()
        return self.rows[i]
"""


def of_files(tmp_path: Path, source: str, like: str = "900 /data/scene#.jsonl", **more: object) -> LimitReason:
    """What is told of an exception at line 2 of a program whose descriptors are those of files."""
    program = tmp_path / "train.py"
    program.write_text(HEAD + source)
    values = {**FILES, "open files like": like, **more}
    found = reason("OSError", "[Errno 24] Too many open files: '/data/scene1.jsonl'", values, source=program)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("source", "kept", "advice"),
    [
        (READER, "line 14 keeps each file that line 5 opens in `self.readers`", "by `with` in Reader.get() (line 6)"),
        (LIST, "line 8 keeps each file that line 7 opens in `self.opened`", "for each item in `self.opened` (line 8)"),
        (CACHE, "line 5 keeps each file in the cache of volume()", "in the cache of volume() (line 5)"),
        (SET_DEFAULT, "line 7 keeps each file in `self.files`", "for each item in `self.files` (line 7)"),
        (AT_ONCE, "line 8 keeps each file that line 5 opens in `data`", "by `with` in Scene.__getitem__() (line 6). "),
        (MADE, "line 9 keeps each file that line 7 opens in `self.maps`", "for each item in `self.maps` (line 9)"),
    ],
    ids=["object", "list", "cache", "setdefault", "comprehension", "method"],
)  # fmt: skip
def test_line_that_keeps_files_open_is_named(source: str, kept: str, advice: str, tmp_path: Path) -> None:
    found = of_files(tmp_path, source)
    assert found.subject == (
        f"900 of the 1024 file descriptors that it may have (RLIMIT_NOFILE) are for files like scene#.jsonl; {kept}"
    )
    assert advice in found.advice
    assert found.advice.endswith("only if so many are meant to be open at once.")
    assert found.line is not None


@pytest.mark.parametrize(
    "source",
    [
        WITH,
        READER.replace("        return self.readers", "        self.readers.popitem()\n        return self.readers"),
        CACHE.replace("None", "8"),
        SET_DEFAULT.replace("self.files.", "self.names."),
        f"{READER}{LIST}".replace("h5py.File", "open"),
        AT_ONCE.replace('"rb")', '"rb")\n        self.handle.close()'),
    ],
    ids=["with", "drops some", "bounded cache", "of another class", "two lines", "closes it"],
)
def test_program_that_keeps_none_or_several_has_no_such_line(source: str, tmp_path: Path) -> None:
    if "names" in source:
        source = source.replace("self.files = {}", "self.names = Names()")
    found = of_files(tmp_path, source)
    assert "keeps each" not in found.subject
    assert found.line is None


@pytest.mark.parametrize("like", ["900 socket", "900 /torch_#", "900 /dev/shm/torch_#"])
def test_descriptors_that_are_no_files_are_not_those(like: str, tmp_path: Path) -> None:
    """The look-alike: the program keeps files open, and they are not what has used up the descriptors."""
    assert of_files(tmp_path, READER, like).line is None


def test_descriptors_that_were_closed_on_the_way_leave_those_of_files(tmp_path: Path) -> None:
    """A collate_fn that fails gives back what it had; the look-alike has few files."""
    found = of_files(tmp_path, READER, "600 /data/scene#.jsonl (deleted)", **{"used open files": 700})
    assert found.subject.startswith("600 of the 1024 file descriptors that it may have")
    program = tmp_path / "train.py"
    values = {**FILES, "used open files": 700, "open files like": "400 /data/scene#.jsonl"}
    assert reason("OSError", "[Errno 24] Too many open files", values, source=program) is None
