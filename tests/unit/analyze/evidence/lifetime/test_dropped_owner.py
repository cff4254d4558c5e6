"""Memory that was unmapped because its owner was collected: the variable that held it, and who let it go."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.lifetime import dropped_owner as module
from pytracer.decode.types.snapshot import PythonFrame, Unmapping

LIBRARY = "/usr/lib/python3.11/multiprocessing/shared_memory.py"
CLOSE, DEL = PythonFrame("SharedMemory.close", LIBRARY, 230), PythonFrame("SharedMemory.__del__", LIBRARY, 187)
ATTACH = """def attach(name):
    shm = SharedMemory(name=name)
    table = np.ndarray(SHAPE, buffer=shm.buf)
    return torch.from_numpy(table)
def train(name):
    table = attach(name)
    return table.sum()
"""
LOOP = """class Tables:
    def __init__(self, names):
        for name in names:
            shm = SharedMemory(name=name)
            self.tensors.append(torch.from_numpy(np.ndarray(N, buffer=shm.buf)))
tables = Tables(NAMES)
"""


def view_of(folder: Path, source: str, line: int, *ends: PythonFrame) -> Any:
    """A process whose munmap() was called below these frames and that line."""
    file = folder / "train.py"
    file.write_text(source, encoding="utf-8")
    at = PythonFrame("train", str(file), line)
    unmapping = Unmapping(0x1000, 4096, 1, 1, 0, (*ends, at))
    crash = SimpleNamespace(fault_addr=0x1000, mappings=(1,), unmapping=unmapping, images=(), python_stack=(at,))
    snapshot = SimpleNamespace(argv=(), created_wall_ns=time.time_ns() + 10**9)
    place = SimpleNamespace(addr=0x1000, mapping=None)
    return SimpleNamespace(crash=crash, place=place, process=SimpleNamespace(snapshot=snapshot))


def test_local_of_a_function_that_returned(tmp_path: Path) -> None:
    found = module.dropped_owner(view_of(tmp_path, ATTACH, 6, CLOSE, DEL))
    assert found is not None
    assert found.summary == (
        "`shm` of attach() (line 2: `shm = SharedMemory(name=name)`), which owns it, was collected when attach() "
        "returned to train.py:6 in train"
    )
    said = found.advice("the tensor")
    assert said.startswith("Keep `shm` of attach() for as long as the tensor (as an attribute, or returned")
    assert "return a copy at line 4 (`return torch.from_numpy(table)`: clone() or copy())" in said


def test_address_that_is_returned_is_not_to_be_copied(tmp_path: Path) -> None:
    source = ATTACH.replace("torch.from_numpy(table)", "table.ctypes.data")
    found = module.dropped_owner(view_of(tmp_path, source, 6, CLOSE, DEL))
    assert found is not None and "copy" not in found.advice("the tensor")


@pytest.mark.parametrize(("line", "anew"), [(4, True), (6, False)])
def test_variable_of_a_loop(line: int, anew: bool, tmp_path: Path) -> None:
    """Each round drops the object of the round before; the last one goes with the function."""
    found = module.dropped_owner(view_of(tmp_path, LOOP, line, CLOSE, DEL))
    assert found is not None
    assert found.summary.startswith("line 4 (`shm = SharedMemory(name=name)`) binds `shm` anew") == anew
    assert found.summary.startswith("`shm` of Tables.__init__() (line 4: ") != anew


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("return torch.from_numpy(table)", "return torch.from_numpy(table), shm"),
        ("    return torch", "    KEPT.append(shm)\n    return torch"),
        ("    return torch", "    self.shm = shm\n    return torch"),
        ("shm = SharedMemory", "shm = self.shm = open_shared"),
        ("    table = attach", "    table = HOOK"),
    ],
    ids=["returned", "in a list", "an attribute", "another object", "another call"],
)
def test_where_no_variable_is_known_only_the_line_is(old: str, new: str, tmp_path: Path) -> None:
    line = 6 + new.count("\n")
    found = module.dropped_owner(view_of(tmp_path, ATTACH.replace(old, new), line, CLOSE, DEL))
    assert found is not None
    text = "table = HOOK(name)" if "HOOK" in new else "table = attach(name)"
    assert found.summary == f"the SharedMemory that owned it was collected at train.py:{line} in train (`{text}`)"


def test_close_of_the_program_is_no_collection(tmp_path: Path) -> None:
    """The look-alike: its line is what has to be changed."""
    assert module.dropped_owner(view_of(tmp_path, ATTACH, 6, CLOSE)) is None


REBOUND = """class Cache:
    def __init__(self, rows):
        store = SharedMemory(create=True, size=rows)
        self.name = store.name
        store = np.ndarray(rows, buffer=store.buf)
        self.store = store
def fill(rows):
    return Cache(rows)
"""


@pytest.mark.parametrize(
    ("value", "end"),
    [
        ("np.ndarray(rows, buffer=store.buf)", "line 5 set `store` anew, to the array of its buffer"),
        ("np.frombuffer(store.buf).reshape(2, 2)", "line 5 set `store` anew, to the array of its buffer"),
        ("torch.frombuffer(store.buf, dtype=F)", "line 5 set `store` anew, to the tensor of its buffer"),
        ("np.array(store.buf)", "line 5 set `store` anew, to `np.array(store.buf)`"),
        ("None", "line 5 set `store` anew, to `None`"),
    ],
)
def test_variable_that_is_given_the_array_of_its_buffer(value: str, end: str, tmp_path: Path) -> None:
    """The owner had that name alone."""
    source = REBOUND.replace("np.ndarray(rows, buffer=store.buf)", value)
    found = module.dropped_owner(view_of(tmp_path, source, 5, CLOSE, DEL))
    assert found is not None
    assert found.summary == (
        "`store` (line 3: `store = SharedMemory(create=True, size=rows)`) held the SharedMemory that owned it, which "
        f"was collected when {end}"
    )


@pytest.mark.parametrize(
    "line", ["from reader import frombuffer", "def frombuffer(x): ...", "from numpy import frombuffer"]
)
def test_function_that_is_imported_is_numpys_or_may_drop_another_owner(line: str, tmp_path: Path) -> None:
    source = f"{line}\n{REBOUND}".replace("np.ndarray(rows, buffer=store.buf)", "frombuffer(store.buf)")
    found = module.dropped_owner(view_of(tmp_path, source, 6, CLOSE, DEL))
    assert found is not None and (found.replaced is not None) == ("numpy" in line)


def test_array_is_to_have_another_name_than_its_owner(tmp_path: Path) -> None:
    found = module.dropped_owner(view_of(tmp_path, REBOUND, 5, CLOSE, DEL))
    assert found is not None
    assert found.advice("its memory is used") == (
        "Give the array of line 5 another name, and keep the SharedMemory of line 3 for as long as its memory is used, "
        "such as in an attribute: an array that is made of its buffer does not keep it. Or copy the data (clone(), "
        "copy()) before."
    )


def test_attribute_that_is_set_anew_and_variable_that_is_deleted(tmp_path: Path) -> None:
    attribute = REBOUND.replace("        self.store = store\n", "").replace("store", "self.store")
    found = module.dropped_owner(view_of(tmp_path, attribute, 5, CLOSE, DEL))
    assert found is not None and found.summary.startswith("`self.store` (line 3: `self.store = SharedMemory(")
    deleted = REBOUND.replace("store = np.ndarray(rows, buffer=store.buf)", "del store")
    found = module.dropped_owner(view_of(tmp_path, deleted, 5, CLOSE, DEL))
    assert found is not None and found.summary.endswith("which was collected when line 5 deleted `store`")
    assert found.advice("the tensor").startswith("Do not delete `store` at line 5 while its memory is in use, but keep")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("store = np.ndarray(rows", "table = np.ndarray(rows"),
        ("store = SharedMemory(", "store = open_shared("),
        ("self.name = store.name", "if rows: store = SharedMemory(rows)"),
        ("np.ndarray(rows, buffer=store.buf)", "Reader(self.name, rows).array()"),
        ("np.ndarray(rows, buffer=store.buf)", "Reader(store.buf).array()"),
        ("np.ndarray(rows, buffer=store.buf)", "np.ndarray(Reader(rows).shape, buffer=store.buf)"),
        ("np.ndarray(rows, buffer=store.buf)", "self.attach(store.buf)"),
        ("np.ndarray(rows, buffer=store.buf)", "other"),
    ],
    ids=[
        "another name", "another object", "of two lines", "its own owner", "a class of its buffer", "a class within",
        "a method of its buffer", "another variable",
    ],
)  # fmt: skip
def test_variable_that_may_have_held_something_else_is_not_named(old: str, new: str, tmp_path: Path) -> None:
    """The look-alikes: only the line is known."""
    assert old in REBOUND
    found = module.dropped_owner(view_of(tmp_path, REBOUND.replace(old, new), 5, CLOSE, DEL))
    assert found is not None and found.replaced is None
    assert found.summary.startswith("the SharedMemory that owned it was collected at train.py:5 in train (")
