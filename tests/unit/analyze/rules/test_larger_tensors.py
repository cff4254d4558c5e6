"""A tensor whose sizes need more memory than its storage has, and tensors that only look so."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.heap.beyond_storage import BeyondStorage, beyond_advice
from pytracer.decode.types.snapshot import Argument, Holder, PythonFrame
from pytracer.report.job import Report
from tests.conditions import needs_capstone
from tests.support import scenarios as s
from tests.support.deaths import LIBC_SO, PROGRAM, advice, died, finding, summary, verdict
from tests.support.synth import Box

MAIN = 0x7E00_0000_0000 + 101 * 64  # pthread_t of the process's main thread
BASE, NBYTES = 0x5581_0000_1000, 256_000
SOURCE = """def reserve(frames, length):
    try:
        frames.resize_(16, length)
    except RuntimeError:
        pass


def decode(frames):
    frames.zero_()
    other()
"""
LOAD = bytes.fromhex("c5fa1002")  # vmovss xmm0, dword ptr [rdx]
COMPILED = [("/tmp/kernels/main.so", "kernel"), (s.PYTHON, "_PyEval_EvalFrameDefault")]
REALLOC = [(LIBC_SO, "abort"), (LIBC_SO, "malloc_printerr"), (LIBC_SO, "realloc"), ("/lib64/ld.so", "_dl_resize_dtv")]
ABORT: dict[str, Any] = {"signal": 6, "code": -6, "sender_pid": 101, "abort_text": "realloc(): invalid pointer\n"}
OF_HEAP = "Process 101 (train.py) aborted because the C library found its heap damaged"


def tensor(*sizes: int, strides: tuple[int, ...] | None = None, **how: Any) -> Argument:
    elements = 1
    steps: list[int] = []
    for size in reversed(sizes):
        steps.insert(0, elements)
        elements *= size
    known = {
        "impl": 0x10, "base": BASE, "elements": elements, "offset": 0, "dimensions": len(sizes), "dtype": "float32",
        "device": "cpu", "minimum": None, "maximum": None, "frame": None, "outer_frame": None, "register": None,
        "how": "held", **how,
    }  # fmt: skip
    return Argument(sizes=sizes, strides=tuple(steps) if strides is None else strides, **known)


LARGER = tensor(16, 400_000)


def crashed(
    run: Path, item: Argument, *, box: Box | None = None, line: int = 9, held: bool = True, source: str = SOURCE,
    **how: Any,
) -> Report:  # fmt: skip
    file = run / "decode.py"
    file.write_text(source, encoding="utf-8")
    os.utime(file, (0, 0))  # before the recorded process began
    frame = PythonFrame("decode", str(file), line)
    holders = (Holder("local", "frames", BASE, frame, True, elements=item.elements if held else 4),)
    how = {
        **ABORT, "stack_of": REALLOC, "python": [("decode", str(file), line)], "holders": holders,
        "arguments": (item,), **how,
    }  # fmt: skip
    return died(run, box=box or Box(pid=101).alloc(BASE, NBYTES), **how)


def test_tensor_larger_than_its_storage_is_named_in_the_headline(run: Path) -> None:
    """With its shape and both sizes; the class rests on the text of the C library alone."""
    report = crashed(run, LARGER)
    assert verdict(report) == ("heap-corruption", "certain")
    assert summary(report) == (
        f"{OF_HEAP}, at decode.py:9 in decode: `frames` in decode() [16, 400000] float32 needs 24.4 MiB, and has "
        "250.0 KiB of memory."
    )
    assert advice(report).startswith("`frames` is larger than its memory")
    assert "check_invariants" not in advice(report)


def test_thread_without_python_names_the_line_of_the_main_thread_that_uses_it(run: Path) -> None:
    """The look-alike is at another line, which does not use it."""
    for line, told in ((9, True), (10, False)):
        frame = PythonFrame("decode", str(run / "decode.py"), line)
        report = crashed(run, LARGER, line=line, python=[], python_threads=((MAIN, (frame,)),), tid=102,
                         box=Box(pid=101).alloc(BASE, NBYTES).thread(102, "pool"))  # fmt: skip
        assert f"{OF_HEAP}: `frames`" in summary(report)
        assert ("; the main thread was at decode.py:9 in decode, which uses it" in summary(report)) == told


@pytest.mark.parametrize(
    "item",
    [
        tensor(16, 4000),  # fits exactly
        tensor(16, 400_000, strides=(0, 0)),  # expanded
        tensor(
            16, 400_000, strides=(0, 1), dtype="int8", elements=6_400_000, offset=-200_000
        ),  # the last byte is there
        tensor(0, 400_000),  # nothing
        tensor(16, 400_000, dtype="quint4x2"),  # of an unknown size
        tensor(16, 400_000, device="cuda:0"),
        tensor(16, 400_000, strides=()),  # of an older recording
        tensor(16, 400_000, base=BASE + 64),  # not the storage's
    ],
    ids=["fits", "expanded", "rows repeat", "empty", "other type", "device", "no strides", "another base"],
)
def test_tensors_that_fit_or_are_not_known_are_not_named(item: Argument, run: Path) -> None:
    report = crashed(run, item)
    assert "`frames`" not in summary(report)
    assert "First suspect is libvictim.so" in advice(report)


def test_word_of_a_stack_without_a_variable_is_no_proof(run: Path) -> None:
    """The tensor may have ended, and its place be another's."""
    assert "`frames`" not in summary(crashed(run, LARGER, held=False))


def test_larger_storage_at_the_same_memory_counts(run: Path) -> None:
    """Two tensors of one NumPy array: that of its first rows has the same base, and that of all of it begins before."""
    before = BASE - 4096
    box = Box(pid=101).alloc(BASE, NBYTES).alloc(before, 32 << 20)
    assert "`frames`" not in summary(crashed(run, LARGER, box=box))


def test_storages_that_were_not_recorded_leave_it_open(run: Path) -> None:
    box = Box(pid=101).alloc(BASE, NBYTES).count(storages_dropped=1)
    assert "`frames`" not in summary(crashed(run, LARGER, box=box))


def test_tensor_that_is_being_resized_has_its_new_sizes_already(run: Path) -> None:
    """The heap was damaged by others, and malloc() noticed in resize_(): the dynamic linker's function is none."""
    resizing = (s.TORCH_CPU, "at::native::resize_bytes_cpu(c10::StorageImpl*, unsigned long)")
    report = crashed(run, LARGER, stack_of=[*REALLOC[:3], resizing])
    assert "`frames`" not in summary(report)


@pytest.mark.parametrize(
    ("origin", "source", "says"),
    [
        ("NUMPY", SOURCE, "(from_numpy() at line 2), so that writing to it damages the heap. Look at line 3 (`frames."),
        ("BLOB", SOURCE, "(from_blob() at line 2), so that writing to it damages the heap. Look at line 3 (`frames."),
        ("CPU_ALLOCATOR", SOURCE, "(made at line 2), so that writing to it damages the heap. Look for what changed"),
        ("NUMPY", SOURCE.replace("resize_", "set_"), "Look for what changed its shape"),
        ("NUMPY", SOURCE.replace("pass", "other.resize_(3)"), "Look for what changed its shape"),
    ],
    ids=["NumPy", "an extension", "torch's own memory", "no resize_()", "two of them"],
)
def test_resize_of_memory_of_others_is_what_left_the_shape(origin: str, source: str, says: str, tmp_path: Path) -> None:
    """Torch's own memory can be resized, so that the line does not explain it; of two lines, none is chosen."""
    file = tmp_path / "decode.py"
    file.write_text(source, encoding="utf-8")
    frame = PythonFrame("decode", str(file), 9)
    made = SimpleNamespace(python=PythonFrame("reserve", str(file), 2), caller=None)
    storage: Any = SimpleNamespace(origin=origin, allocated_by=made, base=BASE)
    crash = SimpleNamespace(python_stack=(frame,))
    snapshot = SimpleNamespace(argv=(), created_wall_ns=time.time_ns() + 10**9)
    view: Any = SimpleNamespace(crash=crash, process=SimpleNamespace(snapshot=snapshot))
    assert says in beyond_advice(view, BeyondStorage("`frames` in decode()", LARGER, storage, 25_600_000, NBYTES))


@needs_capstone
@pytest.mark.parametrize("larger", [True, False])
def test_fault_behind_the_storage_of_a_larger_tensor_has_the_same_advice(larger: bool, run: Path) -> None:
    """mov byte ptr [r8 + rcx], al; the look-alike's tensor fits."""
    heap = (BASE - 0x1000, BASE + 0x40000, "rw-p", 0, "[heap]")
    report = crashed(
        run, LARGER if larger else tensor(16, 4000), signal=11, code=1, addr=BASE + 0x40000, abort_text=None,
        stack_of=[(s.TORCH_CPU, "at::native::fill_kernel(at::Tensor const&)")], mappings=[PROGRAM, heap],
        registers={"r8": BASE, "rcx": 0x40000}, code_bytes=bytes.fromhex("41880408"),
    )  # fmt: skip
    assert finding(report, "heap-corruption") is None
    assert advice(report).startswith("`frames` is larger than its memory") == larger


@needs_capstone
@pytest.mark.parametrize(("offset", "named"), [(20_000_000, True), (900_000_000, False)])
def test_address_that_only_the_sizes_reach_is_out_of_bounds(offset: int, named: bool, run: Path) -> None:
    """The storage ends before it; one behind the tensor's last element is not explained."""
    addr = BASE + offset
    wild: dict[str, Any] = {"signal": 11, "code": 1, "addr": addr, "registers": {"rdx": addr}, "code_bytes": LOAD}
    wild["stack_of"] = COMPILED
    report = crashed(run, LARGER, sender_pid=0, abort_text=None, **wild)
    assert ("needs 24.4 MiB, and has 250.0 KiB of memory" in summary(report)) == named
    assert (verdict(report)[0] == "out-of-bounds") == named
