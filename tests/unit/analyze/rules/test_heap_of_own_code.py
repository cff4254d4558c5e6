"""Memory beside a tensor that native code of the program damaged: that code is named, and not what uses the tensor."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from pytracer.analyze.evidence.heap.heap import HeapDamage
from pytracer.analyze.rules.memory import heap_corruption
from pytracer.decode.types.snapshot import CallSite, Holder, Moment, Overrun, PythonFrame, Storage
from tests.support import scenarios as s
from tests.support.deaths import LIBC_SO, PROGRAM, advice, died, image, verdict

BASE = 0x5581_0000_1000
LIBRARY = "/home/me/libtiles.so"
SOURCE = """import ctypes
import torch
tiles = ctypes.CDLL("/home/me/libtiles.so")


def forward(x, out):
    q = x.mul(2).contiguous()
    tiles.attend(q.data_ptr(), out.data_ptr(), 4)
    return out
"""
FREE = [(LIBC_SO, "abort"), (LIBC_SO, "malloc_printerr"), (LIBC_SO, "_int_free"), (LIBC_SO, "__libc_free")]
LIBFFI = ("/usr/lib/libffi.so.8", "ffi_call_int")
IN_TORCH = (s.TORCH_CPU, "c10::free_cpu(void*)")


def advised(run: Path, source: str, caller: tuple[str, str], variable: str) -> str:
    """Of a death in free(), which `caller` called at line 8; the damage lies behind what `variable` holds."""
    file = run / "train.py"
    file.write_text(source, encoding="utf-8")
    os.utime(file, (0, 0))  # before the recorded process began
    frame = PythonFrame("forward", str(file), 8)
    storage = Storage(BASE, 60, "live", Moment(1, 1, None), CallSite(frame, None, None, None), 101)
    report = died(
        run, signal=6, code=-6, sender_pid=101, abort_text="double free or corruption (out)\n", mappings=[PROGRAM],
        stack_of=[*FREE, caller, (s.PYTHON, "_PyEval_EvalFrameDefault")], python=[("forward", str(file), 8)],
        holders=(Holder("local", variable, BASE, frame, True, elements=15),), images=(image(LIBRARY),),
        overruns=(Overrun(storage, 0x3F02_00B2_3EFF_3512, False),),
    )  # fmt: skip
    assert verdict(report) == ("heap-corruption", "certain")
    return advice(report)


@pytest.mark.parametrize("caller", [LIBFFI, (LIBRARY, "attend")], ids=["its last call", "below it"])
def test_native_code_that_called_free_is_the_first_suspect(caller: tuple[str, str], run: Path) -> None:
    said = advised(run, SOURCE, caller, "x")
    assert said.startswith("First suspect is the native function that line 8 calls (`tiles.attend(...)`; the program's")
    assert "`x` is not passed to it, and only lies beside what was written." in said
    assert "calls that use that tensor" not in said and "-fsanitize=address" in said


@pytest.mark.parametrize(
    ("old", "new", "caller", "variable"),
    [
        ("", "", IN_TORCH, "x"),  # another one freed
        ("", "", LIBFFI, "out"),  # it is given the tensor
        ("q.data_ptr()", "x.data_ptr()", LIBFFI, "x"),
        ("attend(q.data_ptr(), out.data_ptr(), 4)", "free(q.data_ptr())", LIBFFI, "x"),  # what it frees may be none
    ],
)
def test_other_frees_name_no_native_code(old: str, new: str, caller: tuple[str, str], variable: str, run: Path) -> None:
    assert "the native function that line 8 calls" not in advised(run, SOURCE.replace(old, new), caller, variable)


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("free(): invalid pointer", True),
        ("free(): invalid next size (fast)", True),
        ("munmap_chunk(): invalid pointer", False),  # a flag that the end of a text takes away
        ("free(): double free detected in tcache 2", False),
    ],
)
def test_room_that_is_short_by_one_is_not_blamed_for_an_address_that_was_no_block(
    text: str, counts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heap_corruption, "own_allocation", lambda view: object())
    view: Any = None
    assert heap_corruption._has_short_room(view, HeapDamage(text, None, None)) == counts
