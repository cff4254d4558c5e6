"""Rules about refused memory accesses: a case that fires and a look-alike that must not."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from pytracer.analyze.evidence.own_code.large_locals import LargeLocal
from pytracer.analyze.evidence.own_code.native_source import LocalArray
from pytracer.analyze.rules.memory import stack_overflow
from pytracer.report.job import Report
from tests.conditions import needs_capstone
from tests.support import scenarios as s
from tests.support.deaths import (
    LIBC_SO,
    PROGRAM,
    advice,
    died,
    evidence,
    finding,
    image,
    memory,
    summary,
    verdict,
)
from tests.support.synth import Box

LOW, HIGH = 0x7F00_0000_1000, 0x7F00_0080_1000
MIB = 1 << 20
GUARD = (LOW - 4096, LOW, "---p", 0, "")
STACK = (LOW, HIGH, "rw-p", 0, "")
DATA = 0x7F50_0000_0000
TMPFS = 0x0102_1994
EXT4 = 0xEF53
HUGETLBFS = 0x9584_58F6


# stack-overflow


def overflow(run: Path, **how: Any) -> Any:
    sp = how.pop("sp", LOW + 16)
    how = {"addr": LOW - 8, "code": 2, "stack": (LOW, HIGH), "mappings": [PROGRAM, GUARD, STACK], **how}
    return died(run, registers={"rsp": sp, "trapno": 14}, error_code=6, sp=sp, **how)


def test_stack_overflow_names_the_native_cycle_depth_and_both_ends(run: Path) -> None:
    """Two functions that call each other, entered from Python."""
    pair = [(s.VICTIM, "descend_left(Node*)"), (s.VICTIM, "descend_right(Node*)")] * 50
    frames = [(s.VICTIM, "visit(Node*)"), *pair, (s.PYTHON, "_PyEval_EvalFrameDefault"), (s.PYTHON, "main")]
    report = overflow(run, stack_of=frames, native_total=90_000)
    assert verdict(report) == ("stack-overflow", "certain")
    assert summary(report) == (
        "Process 101 (train.py) ran over the end of its stack in visit, at train.py:41 in Peek.backward: "
        "recursion of descend_left and descend_right, "
        "44998 levels deep."
    )
    assert "the outermost are descend_right <- _PyEval_EvalFrameDefault <- main" in evidence(report)
    assert "8 bytes below the lowest address of this thread's stack (8.0 MiB)" in evidence(report)
    assert "ulimit -s" in advice(report) and "End the recursion of descend_left (libvictim.so)" in advice(report)


@pytest.mark.parametrize(
    ("function", "words"),
    [
        ("map_next", "The interpreter calls itself for each map(), zip()"),
        ("subtype_dealloc", "The interpreter calls itself for each object that is freed"),
        ("visit", "visit of python3.11 calls itself: look for something nested"),
    ],
)
def test_recursion_of_the_interpreter_says_what_is_nested(function: str, words: str, run: Path) -> None:
    """The reader's program has no map_next: an object of it is as deep."""
    frames = [(s.PYTHON, function)] * 200 + [(s.PYTHON, "_PyEval_EvalFrameDefault"), (s.PYTHON, "main")]
    report = overflow(run, stack_of=frames, native_total=90_000)
    assert advice(report).startswith(words)


def test_stack_overflow_by_python_recursion_names_the_line(run: Path) -> None:
    """Python code calls itself through C functions: the Python line is what to change."""
    frames = [(s.PYTHON, "slot_tp_repr"), (s.PYTHON, "_PyEval_EvalFrameDefault"), (s.PYTHON, "PyObject_Repr")] * 40
    report = overflow(run, stack_of=frames, native_total=60_000, python=[("Node.__repr__", s.SCRIPT, 7)] * 20)
    assert summary(report).endswith(
        ": Python recursion through train.py:7 in Node.__repr__, 60000 frames of native code deep."
    )
    assert "sys.setrecursionlimit" in advice(report)


def test_stack_overflow_of_a_python_thread_advises_its_own_stack_size(run: Path) -> None:
    """`ulimit -s` would not help there."""
    report = overflow(run, tid=202, stack_of=[(s.VICTIM, "f")] * 120)
    assert "threading.stack_size()" in advice(report) and "ulimit" not in advice(report)


def test_stack_overflow_by_one_large_frame_is_told_from_recursion(run: Path) -> None:
    """A frame larger than the guard: address and stack pointer are far below the stack."""
    report = overflow(
        run, addr=LOW - 3 * MIB + 64, code=1, sp=LOW - 3 * MIB, stack_of=[(s.VICTIM, "solve"), (s.PYTHON, "main")]
    )
    assert verdict(report) == ("stack-overflow", "likely")
    assert "only 2 frames deep, at train.py:41 in Peek.backward: a frame reaches 3.0 MiB below it" in summary(report)
    assert "large local arrays" in advice(report)


SMALL_STACK = (LOW, LOW + 64 * 1024)
KERNEL = [(s.TORCH_CPU, "mkl_blas_sgemm_kernel")]


@pytest.mark.parametrize(
    ("stack_of", "depth"), [(KERNEL, ""), ([*KERNEL, (s.PYTHON, "_PyEval_EvalFrameDefault")], ", only 2 frames deep")]
)
def test_depth_is_told_only_of_stacks_that_were_followed_to_python(stack_of: list[Any], depth: str, run: Path) -> None:
    """MKL has no unwind tables: its innermost frame is all that is known."""
    program = run / "train.py"
    program.write_text("threading.stack_size(64 * 1024)\nrun()\nsvd(x)\n", encoding="utf-8")
    os.utime(program, (0, 0))
    report = overflow(
        run, tid=202, stack=SMALL_STACK, stack_of=stack_of, python=[("split", str(program), 3)],
        mappings=[PROGRAM, GUARD, (*SMALL_STACK, "rw-p", 0, "")],
    )  # fmt: skip
    assert f"in mkl_blas_sgemm_kernel{depth}" in summary(report)
    assert ("frame" in summary(report)) == bool(depth)
    assert "the stack of 64.0 KiB is small" in summary(report)
    assert advice(report).startswith("Ask threading.stack_size() for several MiB at line 1, or leave the default: mkl")


@pytest.mark.parametrize(
    ("frame_bytes", "words"),
    [
        (None, "Ask threading.stack_size() for several MiB at line 1"),
        (96 * 1024, "Ask threading.stack_size() for several MiB at line 1"),
        (24 * MIB, "Take the memory of `row` from the heap"),
    ],
)
def test_small_stack_comes_before_an_array_that_another_one_holds(
    frame_bytes: int | None, words: str, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread's 64 KiB are why, unless the frame were too large for most."""
    program = run / "train.py"
    program.write_text("threading.stack_size(64 * 1024)\nrun()\nblur(x)\n", encoding="utf-8")
    os.utime(program, (0, 0))
    array = LocalArray("float", "row", "[w]", None, "blur.c:5")
    monkeypatch.setattr(stack_overflow, "large_local", lambda view: LargeLocal(array, frame_bytes))
    report = overflow(
        run, tid=202, stack=SMALL_STACK, stack_of=[(s.VICTIM, "blur")], python=[("split", str(program), 3)],
        mappings=[PROGRAM, GUARD, (*SMALL_STACK, "rw-p", 0, "")],
    )  # fmt: skip
    assert advice(report).startswith(words)
    assert ("the stack of 64.0 KiB is small" in summary(report)) == words.startswith("Ask")


RESERVED = (LOW - 64 * MIB, LOW - 1 * MIB, "---p", 0, "")  # malloc()'s for another thread, below this one's stack


def test_stack_overflow_by_one_large_frame_may_end_in_reserved_memory(run: Path) -> None:
    """What lies below a thread's stack is chance."""
    report = overflow(
        run, addr=LOW - 3 * MIB + 64, sp=LOW - 3 * MIB, stack_of=[(s.VICTIM, "solve"), (s.PYTHON, "main")],
        mappings=[PROGRAM, RESERVED, GUARD, STACK],
    )  # fmt: skip
    assert verdict(report) == ("stack-overflow", "likely")
    assert "a frame reaches 3.0 MiB below it" in summary(report)


def test_fault_in_reserved_memory_from_a_coroutine_is_no_stack_overflow(run: Path) -> None:
    """Its stack is memory that can be written, elsewhere below the thread's own."""
    coroutine = (LOW - 80 * MIB, LOW - 79 * MIB, "rw-p", 0, "")
    mappings = [PROGRAM, coroutine, RESERVED, GUARD, STACK]
    report = overflow(run, addr=LOW - 3 * MIB, sp=LOW - 79 * MIB - 64, mappings=mappings)
    assert finding(report, "stack-overflow") is None


def test_stack_overflow_of_the_main_thread_needs_no_recorded_bounds(run: Path) -> None:
    """A frame so large that the stack pointer is far from the mapped stack."""
    mapping = (HIGH - 132 * 1024, HIGH, "rw-p", 0, "[stack]")
    report = overflow(run, stack=(0, 0), addr=LOW - 56 * MIB, code=1, sp=LOW - 56 * MIB, mappings=[PROGRAM, mapping])
    assert verdict(report) == ("stack-overflow", "likely")


def test_stack_overflow_does_not_fire_on_a_stack_of_one_s_own_making(run: Path) -> None:
    """A coroutine's stack elsewhere in memory: the bounds of the thread's own do not apply."""
    report = overflow(run, addr=LOW - 8 * MIB, code=1, sp=LOW - 4 * MIB)
    assert finding(report, "stack-overflow") is None


def test_stack_overflow_of_a_small_stack_says_so(run: Path) -> None:
    """A thread with a stack of 64 KiB."""
    report = overflow(run, stack=(LOW, LOW + 65536), stack_of=[(s.VICTIM, "solve"), (s.VICTIM, "work")])
    assert "the stack of 64.0 KiB is small" in summary(report)


def test_wild_pointer_beside_another_thread_s_stack_is_no_stack_overflow(run: Path) -> None:
    """Another stack's guard page, with the thread's own stack pointer far away."""
    other = LOW + 64 * MIB
    mappings = [PROGRAM, GUARD, STACK, (other - 4096, other, "---p", 0, ""), (other, other + 8 * MIB, "rw-p", 0, "")]
    report = overflow(run, addr=other - 8, sp=HIGH - 4096, mappings=mappings)
    assert finding(report, "stack-overflow") is None


def test_wild_pointer_beside_the_own_stack_is_no_stack_overflow(run: Path) -> None:
    """A negative index into an array on a stack with room: the stack pointer is nowhere near its end."""
    report = overflow(run, sp=HIGH - 4096)
    assert finding(report, "stack-overflow") is None
    assert verdict(report)[0] == "wild-pointer"
    assert "by chance" in evidence(report)


# truncated-mapping and shm-exhausted


def bus_error(run: Path, path: str = "/data/weights.bin", offset: int = 8192, **how: Any) -> Any:
    mapping = (DATA, DATA + 65536, "r--s", 4096, path)
    addr = DATA + offset - 4096
    return died(run, signal=7, code=how.pop("code", 2), addr=addr, mappings=[PROGRAM, mapping], **how)


def test_truncated_mapping_is_certain_by_the_size_at_the_crash(run: Path) -> None:
    """File, offset, mapping, and the size at the crash; the file no longer exists."""
    report = bus_error(run, offset=8200, file_nbytes=4100, file_room=1 << 30, file_system=EXT4)
    assert verdict(report) == ("truncated-mapping", "certain")
    assert summary(report) == (
        "Process 101 (train.py) touched byte 8200 of the mapped file /data/weights.bin in read_sum"
        ", at train.py:41 in Peek.backward: "
        ""
        ""
        "the file held 4100 bytes."
    )
    assert "mapped up to byte 69632, the page that was touched begins at byte 8192" in evidence(report)
    assert "its size was 4100 bytes at the crash" in evidence(report)


@pytest.mark.parametrize("path", ["/data/weights.bin", ""])
def test_what_lay_there_before_a_file_was_mapped_is_not_told(path: str, run: Path) -> None:
    """A block of the heap that lay there before was no owner of the file's pages; of other memory it may have been."""
    box = Box(pid=101).freed(DATA + 64, 32768).alloc(DATA, 65536)
    report = bus_error(run, path, file_nbytes=0, box=box)
    fault = (report.processes or [])[0].fault
    assert fault is not None and fault.kind == "in-storage"
    assert bool(fault.earlier_lives) == (path == "")


def test_truncated_mapping_tells_both_sizes(run: Path) -> None:
    """Short at the crash, whole again now: the writer has finished meanwhile."""
    path = run / "data.bin"
    path.write_bytes(b"x" * 65536)
    report = bus_error(run, str(path), file_nbytes=0)
    assert verdict(report) == ("truncated-mapping", "certain")
    assert "its size was 0 bytes at the crash and it is 65536 bytes now" in evidence(report)


@pytest.mark.parametrize(("nbytes", "expected"), [(8192, True), (8193, False), (12288, False), (4097, True)])
def test_truncated_mapping_counts_whole_pages(run: Path, nbytes: int, expected: bool) -> None:
    """The rest of the last, partial page can be read: only a page wholly behind the end is refused."""
    report = bus_error(run, offset=8192 + 4000, file_nbytes=nbytes, file_system=EXT4)
    assert (finding(report, "truncated-mapping") is not None) == expected


def test_truncated_mapping_of_a_deleted_file_says_so(run: Path) -> None:
    """The map of the process calls it deleted; the name is shown without that mark."""
    report = bus_error(run, "/data/weights.bin (deleted)", file_nbytes=0)
    assert (
        "mapped file /data/weights.bin in read_sum, at train.py:41 in Peek.backward: the file held 0 bytes"
        in summary(report)
    )
    assert "deleted or replaced" in evidence(report)


def test_truncated_mapping_does_not_fire_when_only_the_size_now_is_short(run: Path) -> None:
    """Truncated after the crash: the size at the crash counts."""
    path = run / "data.bin"
    path.write_bytes(b"x")
    report = bus_error(run, str(path), file_nbytes=65536, file_system=EXT4)
    assert finding(report, "truncated-mapping") is None
    assert verdict(report) == ("unknown", "unknown")
    assert "long enough but could not be read" in summary(report)


def test_truncated_mapping_cannot_be_decided_without_any_size(run: Path) -> None:
    """A file that no longer exists, from a recorder that did not record its size."""
    report = bus_error(run, "/data/gone.bin")
    assert {item.id: item.result for item in report.checked or []}["truncated-mapping"] == "cannot-decide"
    assert verdict(report) == ("unknown", "unknown")


@pytest.mark.parametrize("code", [1, 3])
def test_bus_error_for_another_reason_is_no_truncated_mapping(run: Path, code: int) -> None:
    """BUS_ADRALN and BUS_OBJERR, at an address behind the end of a file."""
    report = bus_error(run, file_nbytes=0, code=code)
    assert finding(report, "truncated-mapping") is None
    assert verdict(report) == ("unknown", "unknown")
    assert ("misaligned" in summary(report)) == (code == 1)


def test_shm_exhausted_needs_a_long_file_and_no_room(run: Path) -> None:
    """A worker fills a tensor in /dev/shm, whose 64 MB are used up."""
    report = bus_error(run, "/dev/shm/torch_7 (deleted)", file_nbytes=65536 + 4096, file_room=0, file_system=TMPFS)
    assert verdict(report) == ("shm-exhausted", "certain")
    assert (
        "/dev/shm/torch_7 in read_sum, at train.py:41 in Peek.backward: no shared memory was left behind it"
        in summary(report)
    )
    assert "its file system had 0 bytes free" in evidence(report)
    assert "--shm-size" in advice(report) and "file_system" not in advice(report)  # its files are in /dev/shm, too
    assert finding(report, "truncated-mapping") is None


def test_tmpfs_elsewhere_is_known_by_its_file_system(run: Path) -> None:
    """/tmp is often one: no shared memory, but no space either."""
    report = bus_error(run, "/tmp/cache/x.bin", file_nbytes=1 << 20, file_room=100, file_system=TMPFS)
    assert verdict(report) == ("disk-full", "certain")


def test_tmpfs_elsewhere_has_a_limit_of_its_own(run: Path) -> None:
    """`--shm-size` is the limit of /dev/shm only."""
    report = bus_error(run, "/tmp/cache/x.bin", file_nbytes=1 << 20, file_room=0, file_system=TMPFS)
    assert "the tmpfs that holds it was full" in summary(report)
    assert "`df -h /tmp/cache`" in advice(report) and "--shm-size" not in advice(report)


WRITE: dict[str, Any] = {"registers": {"trapno": 14}, "error_code": 6}


def test_file_system_full_is_likely_for_a_write(run: Path) -> None:
    """A sparse file on a disk without a free block."""
    report = bus_error(run, "/data/a.bin", file_nbytes=1 << 20, file_room=0, file_system=EXT4, **WRITE)
    assert verdict(report) == ("disk-full", "likely")
    assert summary(report).startswith("Process 101 (train.py) wrote to the mapped file /data/a.bin in read_sum")
    assert "its file system was full" in summary(report)
    assert "`df -h /data`" in advice(report) and "posix_fallocate" in advice(report)


@pytest.mark.parametrize(
    "how",
    [
        {"file_room": 0},  # a read needs no block
        {"file_room": 1 << 30, **WRITE},
        {"file_room": 0, "file_nbytes": 4096, **WRITE},  # truncated
        {"file_room": None, **WRITE},
    ],
)
def test_file_system_full_does_not_fire_for(how: dict[str, Any], run: Path) -> None:
    """Bus errors for another reason, on a disk that may be full as well."""
    report = bus_error(run, "/data/a.bin", **{"file_nbytes": 1 << 20, "file_system": EXT4, **how})
    assert finding(report, "file-system-full") is None


def test_shm_exhausted_does_not_fire_for_a_truncated_object(run: Path) -> None:
    """Truncated shared memory: free space does not matter."""
    report = bus_error(run, "/dev/shm/torch_7", file_nbytes=4096, file_room=0, file_system=TMPFS)
    assert verdict(report) == ("truncated-mapping", "certain")
    assert finding(report, "shm-exhausted") is None


@pytest.mark.parametrize(("path", "system", "room"), [("/dev/shm/a", TMPFS, 1 << 30), ("/data/a", EXT4, 0)])
def test_shm_exhausted_does_not_fire_with_room_or_on_a_disk(run: Path, path: str, system: int, room: int) -> None:
    """A full disk is no reason for SIGBUS in a file that has its blocks."""
    report = bus_error(run, path, file_nbytes=1 << 20, file_room=room, file_system=system)
    assert finding(report, "shm-exhausted") is None


def test_shm_exhausted_speaks_of_huge_pages(run: Path) -> None:
    """hugetlbfs takes its pages from its own pool."""
    report = bus_error(run, "/mnt/huge/a", file_nbytes=1 << 20, file_room=0, file_system=HUGETLBFS)
    assert "no huge pages were left" in summary(report) and "vm.nr_hugepages" in advice(report)


# memory-hardware-error


@pytest.mark.parametrize("code", [4, 5])
def test_memory_hardware_error_is_certain(run: Path, code: int) -> None:
    """BUS_MCEERR_AR and BUS_MCEERR_AO."""
    report = died(run, signal=7, code=code, addr=DATA, mappings=[PROGRAM, (DATA, DATA + 4096, "rw-p", 0, "")])
    assert verdict(report) == ("hardware-error", "certain")
    assert "node0" in advice(report)


def test_memory_hardware_error_does_not_fire_for_other_bus_errors(run: Path) -> None:
    """BUS_ADRERR."""
    assert finding(bus_error(run, file_nbytes=0), "memory-hardware-error") is None


# device-pointer-on-host


@pytest.mark.parametrize("path", ["/dev/nvidia0", "/dev/nvidia-uvm", "/dev/kfd", "/dev/dri/renderD128"])
def test_device_pointer_on_host_in_a_device_s_mapping(run: Path, path: str) -> None:
    """Host code reads what a device's driver mapped."""
    report = died(run, code=2, addr=DATA + 64, mappings=[PROGRAM, (DATA, DATA + MIB, "rw-s", 0, path)])
    assert verdict(report) == ("device-pointer-on-host", "certain")
    assert path in evidence(report)


def test_device_pointer_on_host_in_reserved_address_space(run: Path) -> None:
    """The CUDA driver reserves address space for the devices, without access rights."""
    mapping = (DATA, DATA + (8 << 30), "---p", 0, "")
    report = died(
        run, code=2, addr=DATA + MIB, mappings=[PROGRAM, mapping], images=(image("/usr/lib/libcuda.so.550.54"),)
    )
    assert verdict(report) == ("device-pointer-on-host", "likely")
    assert "libcuda.so.550.54" in evidence(report)


@pytest.mark.parametrize(("nbytes", "loaded"), [(8 << 30, "/usr/lib/libc.so.6"), (64 << 20, "/usr/lib/libcuda.so.1")])
def test_device_pointer_on_host_does_not_fire_for_other_reservations(run: Path, nbytes: int, loaded: str) -> None:
    """Without a driver, and in memory that the C library reserves for its arenas."""
    mapping = (DATA, DATA + nbytes, "---p", 0, "")
    report = died(run, code=2, addr=DATA + MIB, mappings=[PROGRAM, mapping], images=(image(loaded),))
    assert finding(report, "device-pointer-on-host") is None


# read-only-memory


def test_read_only_memory_names_the_mapped_file(run: Path) -> None:
    """An in-place operation on a tensor over np.memmap(mode='r')."""
    mapping = (DATA, DATA + MIB, "r--s", 0, "/data/weights.bin")
    report = died(run, code=2, addr=DATA + 64, registers={"trapno": 14}, error_code=7, mappings=[PROGRAM, mapping])
    assert verdict(report) == ("read-only-write", "certain")
    assert "wrote to read-only memory, the mapped file /data/weights.bin in read_sum" in summary(report)
    assert "mode 'c'" in advice(report)


def test_read_only_memory_does_not_fire_for_a_refused_read(run: Path) -> None:
    """Memory without any right."""
    mapping = (DATA, DATA + MIB, "---p", 0, "")
    report = died(run, code=2, addr=DATA, registers={"trapno": 14}, error_code=5, mappings=[PROGRAM, mapping])
    assert finding(report, "read-only-memory") is None


# wild-pointer: jumps


def jump(run: Path, target: int, **how: Any) -> Any:
    sp = HIGH - 256
    how = {"mappings": [PROGRAM, STACK], "stack": (LOW, HIGH), "code": 1, "error_code": 20, **how}
    return died(run, addr=target, pc=target, sp=sp, registers={"rsp": sp, "trapno": 14}, **how)


def test_jump_to_data_is_told_from_a_read(run: Path) -> None:
    """A jump through an overwritten vtable to data."""
    data = (DATA, DATA + MIB, "rw-p", 0, "")
    report = jump(
        run,
        DATA + 32,
        code=2,
        error_code=21,
        mappings=[PROGRAM, STACK, data],
        memory=(memory(HIGH - 256, PROGRAM[0] + 64),),
        stack_of=[(None, None), (s.VICTIM, "dispatch(Layer*)")],
    )
    assert verdict(report) == ("wild-pointer", "certain")
    assert summary(report) == (
        "Process 101 (train.py) called data at 0x7f5000000020, at train.py:41 in Peek.backward: "
        "a function pointer or vtable was overwritten, "
        "below dispatch."
    )
    assert "anonymous memory (rw-p), which cannot be executed" in evidence(report)


def test_return_to_garbage_is_a_smashed_stack(run: Path) -> None:
    """The popped return address is still below the stack pointer."""
    target = 0x4141_4141
    report = jump(run, target, memory=(memory(HIGH - 264, target, 0x4141_4141_4141_4141),))
    assert verdict(report)[0] == "wild-pointer"
    assert (
        "returned to 0x41414141, at train.py:41 in Peek.backward: the return address on its stack was overwritten"
        in summary(report)
    )
    assert "local array" in advice(report)


def test_return_to_a_small_number_is_not_null(run: Path) -> None:
    """A return address overwritten with zeros is no null function pointer."""
    report = jump(run, 0, memory=(memory(HIGH - 264, 0, 0),))
    assert finding(report, "null-dereference") is None
    assert "returned to 0x0" in summary(report)


FFI, CTYPES = "/usr/lib/libffi.so.8", "/usr/lib/python3.11/lib-dynload/_ctypes.cpython-311-x86_64-linux-gnu.so"
CALLED_BY_CTYPES = [(FFI, "ffi_call"), (CTYPES, "_ctypes_callproc"), (s.PYTHON, "_PyObject_MakeTpCall")]


@needs_capstone
@pytest.mark.parametrize(
    ("called", "without"),
    [
        ([(s.PYTHON, "_PyErr_Fetch"), (s.PYTHON, "PyDict_GetItemString")], True),
        ([(s.PYTHON, "PyObject_Str")], False),  # a null argument, also by ctypes.pythonapi
        ([(s.PYTHON, "_PyErr_Fetch"), (s.VICTIM, "look_up")], False),  # a library that ctypes called
    ],
)
def test_python_called_by_ctypes_without_the_gil_is_told(
    called: list[tuple[str, str]], without: bool, run: Path
) -> None:
    """On the main thread, too: ctypes.CDLL has released the GIL."""
    report = died(
        run, addr=0x60, registers={"rdi": 0}, code_bytes=b"\x48\x8b\x47\x60", stack_of=[*called, *CALLED_BY_CTYPES]
    )
    assert verdict(report)[0] == "null-dereference"
    assert ("called by ctypes.CDLL, which releases the GIL" in summary(report)) == without
    assert ("ctypes.PyDLL" in advice(report)) == without


def test_call_of_a_null_function_pointer_stays_null(run: Path) -> None:
    """The return address is at the stack pointer, so it was a call; a zero below it is there by chance."""
    report = jump(run, 0, memory=(memory(HIGH - 264, 0, PROGRAM[0] + 64),))
    assert verdict(report) == ("null-dereference", "certain")


def test_return_to_a_non_canonical_address_is_refused_at_the_return(run: Path) -> None:
    """The kernel gives no address; the instruction is a return, its target is at the stack pointer."""
    sp, garbage = HIGH - 256, 0x4141_4141_4141_4141
    report = died(
        run,
        code=128,
        addr=0,
        code_bytes=b"\xc3",
        registers={"rsp": sp, "trapno": 13},
        sp=sp,
        stack=(LOW, HIGH),
        mappings=[PROGRAM, STACK],
        memory=(memory(sp, garbage),),
    )
    assert verdict(report) == ("wild-pointer", "certain")
    assert "returned to 0x4141414141414141" in summary(report)
    assert "where no process can have memory" in evidence(report)


@needs_capstone
def test_call_through_a_garbage_register_is_refused_at_the_call(run: Path) -> None:
    """call rax."""
    report = died(
        run,
        code=128,
        addr=0,
        code_bytes=b"\xff\xd0",
        registers={"rax": 0xDEAD_BEEF_0000_0000, "rsp": HIGH - 256, "trapno": 13},
        mappings=[PROGRAM, STACK],
    )
    assert (
        "called 0xdeadbeef00000000, at train.py:41 in Peek.backward: a function pointer or vtable was overwritten"
        in summary(report)
    )


def test_jump_without_memory_names_all_that_it_may_have_been(run: Path) -> None:
    """No words of the stack were kept, and the unwinder found no caller."""
    report = jump(run, 0x6_0000_0000, stack_of=[(None, None)])
    assert "a function pointer, vtable or return address was overwritten" in summary(report)


def test_execution_of_code_is_no_wild_jump(run: Path) -> None:
    """A page of a library whose file was truncated: SIGBUS while fetching an instruction."""
    mapping = (DATA, DATA + MIB, "r-xp", 0, LIBC_SO)
    report = died(
        run, signal=7, code=2, addr=DATA + 8192, pc=DATA + 8192, mappings=[PROGRAM, mapping], file_nbytes=4096
    )
    assert verdict(report) == ("truncated-mapping", "certain")
    assert finding(report, "wild-pointer") is None


def test_wild_jump_beside_a_storage_is_not_out_of_bounds(run: Path) -> None:
    """A wrong index does not cause an instruction fetch past the end of a tensor."""
    box = Box(pid=101, ppid=99).alloc(DATA, MIB)
    report = jump(run, DATA + MIB + 16, box=box)
    assert finding(report, "out-of-bounds") is None
    assert verdict(report)[0] == "wild-pointer"


# ---- a large block of malloc() ----

ARENA = [(0x7F00_0000_0000, 0x7F00_0001_0000, "rw-p", 0, ""), (0x7F90_0000_0000, 0x7F90_0001_0000, "rw-p", 0, "")]


@pytest.mark.parametrize(("addr", "block"), [(0x7F50_0000_3010, True), (0x7F50_0000_3018, False)])
def test_unmapped_address_16_bytes_into_a_page_may_have_been_a_large_block(addr: int, block: bool, run: Path) -> None:
    """The look-alike lies 8 bytes farther, where no block begins."""
    report = died(run, addr=addr, mappings=ARENA, registers={"rdi": addr})
    assert verdict(report)[0] == "wild-pointer"
    assert ("a large block of malloc() may have begun" in summary(report)) == block
    assert ("Keep what owns the memory" in advice(report)) == block


# ---- an index that is far too large for an array that is no tensor ----

STACK_ARRAY, LARGE = 0x7FFC_21F9_6750, 0x7FFF_FFFF
STACK = (0x7FFC_21F7_0000, 0x7FFC_21F9_8000, "rw-p", 0, "[stack]")


def far(run: Path, **registers: int) -> Report:
    addr = STACK_ARRAY + 8 * LARGE
    return died(
        run, addr=0, code=128, mappings=[STACK], registers={"rbx": addr, "trapno": 13, **registers},
        code_bytes=bytes.fromhex("488903"),
    )  # fmt: skip


@needs_capstone
def test_index_that_leads_out_of_an_array_on_the_stack_is_named(run: Path) -> None:
    """mov [rbx], rax: rsi + 8 * r8."""
    report = far(run, rsi=STACK_ARRAY, r8=LARGE)
    assert verdict(report) == ("out-of-bounds", "likely")
    assert "index 2147483647 leads out of an array" in summary(report)
    assert "an argument" in advice(report)


@needs_capstone
def test_numbers_that_do_not_add_up_name_no_index(run: Path) -> None:
    report = far(run, rsi=STACK_ARRAY + 8, r8=LARGE)
    assert verdict(report) == ("wild-pointer", "likely")
    assert "index" not in summary(report)


# ---- an address that was cut to 32 bits ----

CUT_BASE = 0x7F50_1234_5040


@needs_capstone
@pytest.mark.parametrize(
    ("value", "cut"),
    [(CUT_BASE % (1 << 32), True), (CUT_BASE % (1 << 32) + 64, False), (CUT_BASE % (1 << 32) - (1 << 32), False)],
    ids=["lower half", "beside it", "with a sign that it has not"],
)
def test_address_that_lost_its_upper_half_is_told(value: int, cut: bool, run: Path) -> None:
    """mov rbx, [rdi]; the look-alikes are no half of a storage's address, or not the number in the register."""
    value %= 1 << 64
    box = Box(pid=101).alloc(CUT_BASE, 4 << 20)
    report = died(run, box=box, addr=value, registers={"rdi": value}, code_bytes=bytes.fromhex("488b1f"))
    assert verdict(report)[0] == "wild-pointer"
    told = ": the lower 32 bits of the address of a tensor of 4.0 MiB" in summary(report)
    assert told == cut
    assert ("argtypes" in advice(report)) == told


@needs_capstone
@pytest.mark.parametrize(
    ("pointer", "words"),
    [
        (0xBF42F612BF42F612, "two float32 numbers, -0.7616 and -0.7616"),
        (0x3FE0000000000000, "the float64 number 0.5"),
        (0xDEADBEEFDEADBEEF, None),  # -1.1e18 twice
        (0x00007F3A_3F800000, None),  # an address that a process may have
    ],
)
def test_numbers_in_a_pointer_are_told_as_numbers(pointer: int, words: str | None, run: Path) -> None:
    """An array was written over an object; a pointer that may exist is none."""
    load = bytes.fromhex("c5fa1002")  # vmovss xmm0, dword ptr [rdx]
    report = died(run, addr=0, code=128, registers={"rdx": pointer, "trapno": 13}, code_bytes=load)
    assert report.verdict is not None
    assert ("which holds" in summary(report)) == (words is not None)
    if words is not None:
        assert report.verdict.class_ == "wild-pointer"
        assert f"which holds {words}" in summary(report)
        assert f"The pointer holds {words}: native code wrote an array over the object" in advice(report)
