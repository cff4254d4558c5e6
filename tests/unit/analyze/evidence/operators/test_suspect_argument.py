"""Which argument of the running line looks wrong by itself, and which large number does not."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.operators import suspect_argument as module
from pytracer.decode.types.snapshot import HeldNumber, Mapping, PythonFrame

HANDLE = 0x5587_A456_5320


def view_of(folder: Path, value: int, mappings: tuple[Mapping, ...]) -> Any:
    """A process that died in a native function to which the line passes `handle`."""
    program = folder / "train.py"
    program.write_text("lib.reader_reset(handle)\n", encoding="utf-8")
    frame = PythonFrame("main", str(program), 1)
    crash = SimpleNamespace(
        numbers=(HeldNumber("handle", value, frame, 0),), mappings=mappings, arguments=(), holders=(), arrays=(),
        python_stack=(frame,), python_threads=(), registers={}, native_stack=(), images=(),
    )  # fmt: skip
    snapshot = SimpleNamespace(pid=1, threads=(), argv=(), created_wall_ns=time.time_ns() + 10**9, version=(1, 9))
    return SimpleNamespace(
        crash=crash, process=SimpleNamespace(snapshot=snapshot), native_stack=[], python_stack=None, region_python=()
    )


@pytest.mark.parametrize(
    ("value", "permissions", "suspected"),
    [
        (HANDLE, "rw-p", False),
        (HANDLE, "---p", True),
        (HANDLE & 0xFFFF_FFFF, "rw-p", True),
        (-1, "rw-p", True),
    ],
    ids=["a handle", "memory that nothing reads", "half of a handle", "negative"],
)
def test_address_of_memory_that_was_there_is_no_suspect(
    value: int, permissions: str, suspected: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what only looks like one is."""
    monkeypatch.setattr(module, "line_tensors", lambda view: [])
    monkeypatch.setattr(module, "find_operator", lambda view: None)
    heap = Mapping(HANDLE & ~0xFFF, (HANDLE & ~0xFFF) + 0x2_1000, permissions, 0, "[heap]")
    assert (module.suspect_argument(view_of(tmp_path, value, (heap,)), zero=True) is not None) == suspected


@pytest.mark.parametrize(("made", "suspected"), [("torch.empty(9)", False), ("torch.load(path)", True)])
def test_tensor_that_nothing_has_filled_yet_is_no_suspect(
    made: str, suspected: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It holds what its memory held before, until the function writes there."""
    view = view_of(tmp_path, 7, ())
    program = tmp_path / "train.py"
    program.write_text(f"out = {made}\nlib.pick(points, out)\n", encoding="utf-8")
    frame = PythonFrame("main", str(program), 2)
    view.crash.python_stack = (frame,)

    def tensor(name: str, dtype: str, most: int | None) -> Any:
        item = SimpleNamespace(
            elements=9, is_integer=most is not None, minimum=0, maximum=most, dtype=dtype, sizes=(9,), dimensions=1
        )
        return SimpleNamespace(name=name, item=item)

    tensors = [tensor("points", "float32", None), tensor("out", "int64", 1 << 60)]
    monkeypatch.setattr(module, "line_tensors", lambda view: tensors)
    monkeypatch.setattr(module, "find_operator", lambda view: None)
    assert (module.suspect_argument(view) is not None) == suspected
