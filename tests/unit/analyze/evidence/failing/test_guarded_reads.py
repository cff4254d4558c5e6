"""Reads of a file by forked workers, one after another by a lock: its place is then not moved meanwhile."""

from __future__ import annotations

import ast

import pytest

from pytracer.analyze.evidence.failing.data.guarded_reads import read_under_lock

SOURCE = """import multiprocessing as mp
import threading
class Packed:
    def __init__(self, path):
        self.handle = open(path, "rb")
        self.count = self.handle.read(4)
        self.lock = mp.Lock()
    def __getitem__(self, i):
        with self.lock:
            self.handle.seek(i)
            return self.handle.read(4)
"""


def test_lock_of_processes_guards_the_place() -> None:
    """Whatever __init__() read before there were workers."""
    assert read_under_lock([ast.parse(SOURCE)], "self.handle")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("mp.Lock()", "threading.Lock()"),
        ("            return self.handle.read(4)", "        return self.handle.read(4)"),
        ("        with self.lock:", "        if self.lock:"),
        ("self.handle.seek(i)", "self.other.seek(i)"),
    ],
    ids=["a lock of threads is copied", "a read outside", "no with", "a place of another file"],
)
def test_other_reads_are_not_guarded(old: str, new: str) -> None:
    """But where another file is moved outside of it."""
    source = SOURCE.replace(old, new)
    assert read_under_lock([ast.parse(source)], "self.handle") is (new == "self.other.seek(i)")
