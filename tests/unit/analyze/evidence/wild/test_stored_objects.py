"""Addresses of Python objects that NumPy read from a file or from shared memory."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.wild import stored_objects as module
from pytracer.decode.types.snapshot import Mapping, MemoryBlock, PythonFrame

ADDR, FILE = 0x7F0F50D34940, 0x7FF9EE000000
NUMPY = "/site-packages/numpy/_core/_multiarray_umath.cpython-311-x86_64-linux-gnu.so"
CAPTIONS = """FIELDS = np.dtype([("id", "i8"), ("caption", "O"), ("words", "i4")])
def pack(path):
    rows = np.memmap(path, dtype=FIELDS, mode="w+", shape=(9,))
    check = np.memmap(path, dtype=FIELDS, mode="r")
class Captions:
    def __init__(self, path):
        self.rows = np.memmap(path, dtype=FIELDS, mode="r")
    def text(self, row):
        return self.rows[row]["caption"]
"""
SHARED = """def labels(shm):
    names = np.ndarray((9,), dtype=object, buffer=shm.buf)
    return [names[i] for i in range(9)]
"""


def view_of(
    folder: Path, source: str, line: int, path: str | None, function: str = "OBJECT_getitem", image: str = NUMPY
) -> Any:
    """A process that failed in a function of NumPy; `path`: the mapped file whose word at byte 44 is the address."""
    file = folder / "train.py"
    file.write_text(source, encoding="utf-8")
    at = PythonFrame("f", str(file), line)
    frame = SimpleNamespace(function=function, image=image, pc=1, lines=())
    blocks = (MemoryBlock("rdi", FILE + 44, FILE + 20, b"\x07" * 24 + ADDR.to_bytes(8, "little") + b"\x07" * 24),)
    crash = SimpleNamespace(
        fault_addr=ADDR, images=(SimpleNamespace(path=image, start=0, end=1),), registers={"rdi": FILE + 44, "rip": 5},
        mappings=(Mapping(FILE, FILE + 4096, "r--s", 0, path),) if path else (), memory=blocks, python_stack=(at,),
    )  # fmt: skip
    snapshot = SimpleNamespace(argv=(), created_wall_ns=time.time_ns() + 10**9, crash=crash)
    return SimpleNamespace(
        crash=crash, place=SimpleNamespace(addr=ADDR, kind="unmapped"), process=SimpleNamespace(snapshot=snapshot),
        python_stack=(at,), python_frame=at, native_stack=[frame], fault=SimpleNamespace(access="write"),
    )  # fmt: skip


def test_field_of_a_file_that_is_mapped(tmp_path: Path) -> None:
    """Of several lines that map such a file, the one of the failing line's class is named."""
    view = view_of(tmp_path, CAPTIONS, 9, "/data/captions.rec")
    found = module.stored_objects(view)
    assert found is not None and found.confidence(view) == "certain"
    assert found.access(view) == (
        "wrote memory at 0x7f0f50d34940, which it had read from the file captions.rec (byte 44) as the address of a "
        "Python object,"
    )
    assert found.clause(view) == (
        ": the array of line 7 (`np.memmap(path, dtype=FIELDS, mode='r')`) has objects in it (`('caption', 'O')`, "
        "line 1), so that its memory holds addresses of the process that wrote it, not the objects"
    )
    assert "delete captions.rec and write it again" in found.advice(view)


def test_shared_memory_of_another_process(tmp_path: Path) -> None:
    view = view_of(tmp_path, SHARED, 3, "/dev/shm/psm_1", "_strided_to_strided_copy_references")
    found = module.stored_objects(view)
    assert found is not None and found.mapped is not None and found.mapped.field == "object"
    assert "delete" not in found.advice(view) and "a queue or a pipe" in found.advice(view)


def test_source_alone_is_but_likely(tmp_path: Path) -> None:
    view = view_of(tmp_path, SHARED, 3, None)
    found = module.stored_objects(view)
    assert found is not None and found.stored is None and found.confidence(view) == "likely"
    assert found.access(view) is None


@pytest.mark.parametrize(
    ("source", "path", "function", "image"),
    [
        (SHARED.replace("dtype=object", "dtype=float"), None, "OBJECT_getitem", NUMPY),
        (CAPTIONS.replace('mode="r"', 'mode="w+"'), None, "OBJECT_getitem", NUMPY),
        (CAPTIONS, "/data/captions.rec", "DOUBLE_add", NUMPY),
        (CAPTIONS, "/data/captions.rec", "OBJECT_getitem", "/opt/libown.so"),
        (SHARED.replace("buffer=shm.buf", "order='C'"), NUMPY, "OBJECT_getitem", NUMPY),
    ],
    ids=["numbers", "written by itself", "another function", "another library", "objects of this process"],
)
def test_what_is_no_such_address(source: str, path: str | None, function: str, image: str, tmp_path: Path) -> None:
    assert module.stored_objects(view_of(tmp_path, source, 3, path, function, image)) is None
