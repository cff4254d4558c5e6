"""Tensors that were made of an address alone: whose it was, and how that ended."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.lifetime import ended_owner as module
from pytracer.decode.types.snapshot import PythonFrame
from pytracer.decode.types.storages import CallSite

DECODED = """class Reader:
    def decode(self, path):
        raw = np.fromfile(path, dtype="f2")
        values = raw.astype("f4")
        values *= 2
        return values
    def tensor(self, path):
        values = self.decode(path)
        return torch._from_blob(values.ctypes.data, (9, 9))
reader = Reader()
print(reader.tensor("a").mean())
"""
HELPER = """def wrap(address, rows):
    return torch._from_blob(address, (rows, 4))
def clips(count):
    made = []
    for k in range(count):
        frame = np.full((8, 4), k)
        made.append(wrap(frame.ctypes.data, 8))
    return made
print(sum(clips(3)))
"""
FOREIGN = """def samples(n):
    data = array.array("f", bytes(4 * n))
    address, count = data.buffer_info()
    view = np.ctypeslib.as_array((ctypes.c_float * count).from_address(address))
    return torch.from_numpy(view)
print(samples(9).sum())
"""
MODULE = """rows = np.ones(9)
tensor = torch._from_blob(rows.__array_interface__["data"][0], (9,))
del rows
print(tensor.sum())
"""


def view_of(folder: Path, source: str, made: int, failing: int, unmapping: object = None) -> Any:
    """A process that failed at a line of the module, in a tensor of memory of others that another line made."""
    file = folder / "train.py"
    file.write_text(source, encoding="utf-8")
    at = PythonFrame("<module>", str(file), failing)
    site = CallSite(python=PythonFrame("f", str(file), made))
    storage = SimpleNamespace(origin="BLOB", allocated_by=site, base=0x1000)
    place = SimpleNamespace(addr=0x1000, mapping=None, storage=storage)
    crash = SimpleNamespace(fault_addr=0x1000, mappings=(1,), unmapping=unmapping, python_stack=(at,))
    snapshot = SimpleNamespace(argv=(), created_wall_ns=time.time_ns() + 10**9)
    frame = SimpleNamespace(function="<module>", file=str(file), line=failing)
    process = SimpleNamespace(snapshot=snapshot)
    return SimpleNamespace(crash=crash, place=place, process=process, python_stack=(frame,), python_frame=frame)


def test_local_of_a_function_that_returned(tmp_path: Path) -> None:
    found = module.ended_owner(view_of(tmp_path, DECODED, 9, 11))
    assert found is not None and not found.assumed
    assert found.summary == (
        "its memory was that of `values` of Reader.tensor() (line 8: `values = self.decode(path)`), which was freed "
        "when tensor() returned, as line 9 takes only the address, `values.ctypes.data`"
    )
    assert found.advice.startswith("Use torch.from_numpy(values) at line 9 instead of `values.ctypes.data`: ")
    assert "once Reader.tensor() has returned, it is too late" in found.advice


def test_argument_of_a_helper(tmp_path: Path) -> None:
    """The address is the helper's parameter: the variable is its caller's, and each round has another."""
    found = module.ended_owner(view_of(tmp_path, HELPER, 2, 9))
    assert found is not None and (found.owner, found.function) == ("frame", "clips")
    assert found.ended == "was freed when the next round of its loop bound `frame` anew, or when clips() returned"
    assert found.given.line == 7


def test_address_that_became_an_array(tmp_path: Path) -> None:
    found = module.ended_owner(view_of(tmp_path, FOREIGN, 5, 6))
    assert found is not None and found.taken == "data.buffer_info()"
    assert found.advice.startswith("Use torch.frombuffer(data, dtype=...) at line 3")


def test_deleted_variable_of_the_module(tmp_path: Path) -> None:
    found = module.ended_owner(view_of(tmp_path, MODULE, 2, 4))
    assert found is not None and found.ended == "was freed by `del rows` at line 3"
    assert module.ended_owner(view_of(tmp_path, MODULE.replace("del rows", "pass"), 2, 4)) is None


def test_temporary(tmp_path: Path) -> None:
    source = DECODED.replace("values.ctypes.data", "values.astype('f8').ctypes.data")
    found = module.ended_owner(view_of(tmp_path, source, 9, 11))
    assert found is not None and not found.is_variable
    assert "`values.astype('f8')`, a temporary (line 9), which was freed as soon as that line had run" in found.summary


def test_array_that_a_library_returned(tmp_path: Path) -> None:
    """It may be lent: that it ended there is but likely."""
    source = DECODED.replace('raw.astype("f4")', "camera.grab(raw)")
    found = module.ended_owner(view_of(tmp_path, source, 9, 11))
    assert found is not None and found.assumed
    assert found.summary.startswith("its memory was likely that of `values` of Reader.tensor()")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("return torch._from", "self.held.append(values); return torch._from"),
        ("return torch._from", "self.values = values; return torch._from"),
        ("(values.ctypes.data, (9, 9))", "(values.ctypes.data, (9, 9)), values"),
        ("values = self.decode(path)", "values = self.rows[path]"),
        ("values = self.decode(path)", "values = self.cache.get(path)"),
        ('values = raw.astype("f4")', "values = self.values"),
        ("    def decode", "    @lru_cache\n    def decode"),
        ("tensor(self, path)", "tensor(self, values)"),
        ("_from_blob(values.ctypes.data, (9, 9))", "from_numpy(values)"),
        ("_from_blob(values.ctypes.data, (9, 9))", "from_numpy(lib.made(values.ctypes.data))"),
        ("values.ctypes.data,", "values.ctypes.data_as(POINTER(c_float)),"),
    ],
    ids=["in a list", "attribute", "returned", "item", "cache", "of the object", "cached", "the caller's", "owned"]
    + ["other memory", "pointer that holds"],
)
def test_array_that_may_be_alive(old: str, new: str, tmp_path: Path) -> None:
    """Look-alikes: something else holds the array, or the tensor does."""
    added = new.count("\n")
    source = DECODED.replace(old, new)
    if "tensor(self, values)" in source:
        source = source.replace("        values = self.decode(path)\n", "        pass\n")
    assert source != DECODED
    assert module.ended_owner(view_of(tmp_path, source, 9 + added, 11 + added)) is None


def test_memory_that_a_call_unmapped(tmp_path: Path) -> None:
    """A look-alike: what gave the memory back is on record."""
    assert module.ended_owner(view_of(tmp_path, DECODED, 9, 11, SimpleNamespace(addr=0x1000, nbytes=9))) is None


ARRAY = """class Lut:
    def __init__(self, n):
        self.values = self.build(n)
    def build(self, n):
        grid = np.linspace(0, 1, n) ** 2
        pointer = ctypes.cast(grid.ctypes.data, ctypes.POINTER(ctypes.c_double))
        return np.ctypeslib.as_array(pointer, shape=(n,))
    def at(self, k):
        return self.values[k].sum()
"""


def test_array_of_numpy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No tensor is there: by what the failing line passes, back over the attribute and the method that made it."""
    monkeypatch.setattr(module, "is_numpy", lambda view: True)
    found = module.ended_array(view_of(tmp_path, ARRAY, 1, 9))
    assert found is not None and (found.owner, found.function) == ("grid", "Lut.build")
    assert found.advice.startswith("Use `grid` itself (or a view of it) at line 6 instead of `grid.ctypes.data`")
    held = ARRAY.replace("ctypes.cast(grid.ctypes.data, ", "grid.ctypes.data_as((")
    assert module.ended_array(view_of(tmp_path, held.replace("c_double))", "c_double)))"), 1, 9)) is None
    monkeypatch.setattr(module, "is_numpy", lambda view: False)
    assert module.ended_array(view_of(tmp_path, ARRAY, 1, 9)) is None
