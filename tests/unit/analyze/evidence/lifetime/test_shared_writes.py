"""The line that writes again into a NumPy array that a tensor has the memory of."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.lifetime.shared_writes import SharedWrite, shared_write
from pytracer.decode.types.snapshot import PythonFrame

PACKER = """import numpy as np, torch
class Packer:
    def __init__(self):
        self.ids = np.empty(4096, dtype=np.int64)
    def pack(self, bags):
        total = sum(map(len, bags))
        offsets = np.zeros(len(bags), dtype=np.int64)
        np.cumsum([len(b) for b in bags[:-1]], out=offsets[1:])
        {write}
        return torch.from_numpy(self.ids[:total]), torch.from_numpy(offsets)
"""
LOOP = """import numpy as np, torch
def batches(reader):
    {before}
    for n in range(8):
        {inside}
        {write}
        yield torch.from_numpy(buffer)
"""


def found(folder: Path, source: str, line: int, origin: str = "NUMPY") -> SharedWrite | None:
    """Of a tensor that was made at a line."""
    file = folder / "train.py"
    file.write_text(source, encoding="utf-8")
    frame = PythonFrame("pack", str(file), line)
    site = SimpleNamespace(caller=None, python=frame, stack=())
    storage = SimpleNamespace(origin=origin, allocated_by=site, older=False, device="cpu")
    snapshot = SimpleNamespace(argv=(), created_wall_ns=time.time_ns() + 10**9)
    crash = SimpleNamespace(python_stack=(frame,), python_threads=(), threads=())
    view: Any = SimpleNamespace(
        crash=crash, process=SimpleNamespace(snapshot=snapshot), region_opener=None, python_stack=(frame,),
        space=SimpleNamespace(live_around=lambda addr: storage),
    )  # fmt: skip
    return shared_write(view, 1)


@pytest.mark.parametrize(
    "write",
    [
        "np.concatenate(bags, out=self.ids[:total])",
        "self.ids[:total] = bags[0]",
        "self.ids[:total][:2] += 1",
        "self.ids.fill(0)",
        "np.copyto(self.ids[:total], bags[0])",
        "reader.readinto(self.ids)",
    ],
)
def test_a_buffer_of_an_object_is_written_again(tmp_path: Path, write: str) -> None:
    """The array that is new in each call, beside it on the line, is not meant."""
    item = found(tmp_path, PACKER.format(write=write), 10)
    assert item is not None
    assert (item.owner, item.lender) == ("self.ids", "from_numpy")
    assert item.words.startswith("line 9 in Packer.pack (`")
    assert "writes into `self.ids` again" in item.words


def test_a_buffer_made_before_the_loop_is_written_in_each_round(tmp_path: Path) -> None:
    """A local variable."""
    source = LOOP.format(before="buffer = np.empty(8)", inside="pass", write="reader.readinto(buffer)")
    item = found(tmp_path, source, 7)
    assert item is not None and item.owner == "buffer"


@pytest.mark.parametrize(
    ("source", "line"),
    [
        pytest.param(PACKER.format(write="self.ids = np.concatenate(bags)"), 10, id="a new array"),
        pytest.param(PACKER.format(write="self.rows[:total] = bags[0]"), 10, id="another array"),
        pytest.param(PACKER.format(write="self.ids[0] = 1; self.ids[1] = 2"), 10, id="several lines may have"),
        pytest.param(
            LOOP.format(before="pass", inside="buffer = np.empty(8)", write="reader.readinto(buffer)"),
            7,
            id="each round",
        ),
    ],
)
def test_memory_that_is_not_known_to_be_written_again(tmp_path: Path, source: str, line: int) -> None:
    """No line, another array, or more than one that may have."""
    assert found(tmp_path, source, line) is None


def test_memory_of_torchs_own_is_not_numpys(tmp_path: Path) -> None:
    """Whatever the source looks like."""
    assert found(tmp_path, PACKER.format(write="self.ids.fill(0)"), 10, origin="CPU_ALLOCATOR") is None
