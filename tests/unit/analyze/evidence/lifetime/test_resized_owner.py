"""Memory of a tensor that its owner gave back or moved: which line of the program resized it."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.lifetime import resized_owner as module
from pytracer.decode.types.snapshot import PythonFrame
from pytracer.decode.types.storages import CallSite

READER = """class Reader:
    def __init__(self):
        self.buffer = bytearray()
    def __exit__(self, *args):
        self.buffer.clear()
    def read(self, file):
        self.buffer.clear()
        self.buffer.extend(file.read())
        flat = torch.frombuffer(self.buffer, dtype=torch.float32)
        return flat.view(-1, 8)
def main(file):
    with Reader() as reader:
        held = reader.read(file)
        print(held.mean())
    print(held.sum())
main(open("x", "rb"))
"""
LOCAL = """def tensor_of(data):
    return torch.frombuffer(data, dtype=torch.int16)
def main():
    data = bytearray(8000)
    pcm = tensor_of(data)
    data[100:] = b""
    print(pcm.abs())
    data.clear()
main()
"""
GROWING = """class Log:
    def __init__(self):
        self.values = array.array("f")
    def add(self, many):
        self.values.extend(many)
    def tensor(self):
        return torch.frombuffer(self.values, dtype=torch.float32)
    def reset(self):
        del self.values[:]
def main(log, many):
    log.add(many)
    first = log.tensor()
    log.reset()
    print(first.sum())
"""


def view_of(folder: Path, source: str, made: int, *running: tuple[str, int], shared: bool = False) -> Any:
    """A process that failed at the first of these lines, in a tensor that a line made of memory of others."""
    file = folder / "train.py"
    file.write_text(source, encoding="utf-8")
    frames = tuple(SimpleNamespace(function=name, file=str(file), line=line) for name, line in running)
    site = CallSite(python=PythonFrame("f", str(file), made))
    storage = SimpleNamespace(origin="BUFFER", allocated_by=site, base=0x1000)
    place = SimpleNamespace(addr=0x1000, mapping=None, storage=storage)
    crash = SimpleNamespace(fault_addr=0x1000, mappings=(1,), unmapping=None, python_stack=frames)
    snapshot = SimpleNamespace(argv=(), created_wall_ns=time.time_ns() + 10**9)
    lives = [SimpleNamespace(state="live")] * shared
    return SimpleNamespace(
        crash=crash,
        place=place,
        process=SimpleNamespace(snapshot=snapshot),
        python_stack=frames,
        python_frame=frames[0],
        fault=SimpleNamespace(earlier_lives=lives),
    )


def test_end_of_a_with_that_empties_it(tmp_path: Path) -> None:
    """read() empties and fills it before it makes the tensor: only the end of the `with` can have left so little."""
    found = module.resized_owner(view_of(tmp_path, READER, 9, ("main", 15), shared=True), shrunk=True)
    assert found is not None
    assert found.summary == (
        "has the memory of the bytearray `self.buffer`, which `self.buffer.clear()` at line 5 in Reader.__exit__ (at "
        "the end of the `with` at line 12) gave back since"
    )
    assert found.advice.startswith("Copy where the tensor is made: `.clone()` behind frombuffer() at line 9 in Reader.")
    assert "Other tensors were made of the same memory" in found.advice


def test_with_that_is_not_over(tmp_path: Path) -> None:
    """Then only the next read() can have moved it."""
    found = module.resized_owner(view_of(tmp_path, READER, 9, ("main", 14)), shrunk=False)
    assert found is not None and [at.line for _, at in found.calls] == [7, 8]
    assert found.done == "moved or gave back" and found.through is None


def test_part_that_the_caller_deletes(tmp_path: Path) -> None:
    """The helper's parameter is the caller's variable; what comes behind the running line has not run."""
    found = module.resized_owner(view_of(tmp_path, LOCAL, 2, ("main", 7)), shrunk=True)
    assert found is not None and [(text, at) for text, at in found.calls] == [("data[100:] = b''", "line 6 in main")]
    assert found.done == "gave back"


def test_growth_before_the_tensor_was_made_is_none(tmp_path: Path) -> None:
    found = module.resized_owner(view_of(tmp_path, GROWING, 7, ("main", 14)), shrunk=False)
    assert found is not None
    assert [(text, at.line) for text, at in found.calls] == [("del self.values[:]", 9)]
    assert found.through == "called at line 13"


def test_array_of_numpy(tmp_path: Path) -> None:
    source = LOCAL.replace("bytearray(8000)", "np.zeros(8000)").replace(
        "frombuffer(data", "_from_blob(data.ctypes.data"
    )
    source = source.replace('data[100:] = b""', "data.resize(10, refcheck=False)")
    found = module.resized_owner(view_of(tmp_path, source, 2, ("main", 7)), shrunk=True)
    assert found is not None and found.kind == "ndarray"
    assert "_from_blob() shares the memory, but does not keep it" in found.advice
    checked = source.replace(", refcheck=False", "")
    assert module.resized_owner(view_of(tmp_path, checked, 2, ("main", 7)), shrunk=True) is None


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("torch.frombuffer(data", "torch.frombuffer(bytes(data)"),
        ("torch.frombuffer(data", "np.frombuffer(data"),
        ("bytearray(8000)", "open_buffer(8000)"),
        ('data[100:] = b""', "data[100] = 7"),
        ('data[100:] = b""', "other.clear()"),
        ('data[100:] = b""', "data = data[:100]"),
    ],
    ids=["copied", "locked by NumPy", "another object", "an item", "another variable", "bound anew"],
)
def test_buffer_that_is_not_resized(old: str, new: str, tmp_path: Path) -> None:
    """Look-alikes: the buffer is as large as it was, or is another one's."""
    source = LOCAL.replace(old, new)
    assert source != LOCAL
    assert module.resized_owner(view_of(tmp_path, source, 2, ("main", 7)), shrunk=True) is None
