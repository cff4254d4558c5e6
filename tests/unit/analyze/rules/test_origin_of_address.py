"""Rules about the origin of a wrong address: a case that fires and a look-alike that must not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pytracer.decode.types.snapshot import AlsoCrashed, Holder, PythonFrame
from tests.conditions import needs_capstone
from tests.support import scenarios as s
from tests.support.deaths import PROGRAM, advice, died, evidence, finding, memory, summary, verdict
from tests.support.synth import Box

HEAP = (0x5581_0000_0000, 0x5581_0020_0000, "rw-p", 0, "[heap]")
BASE, INDICES = 0x5581_0000_1000, 0x5581_0010_0000
LOAD = bytes.fromhex("c5fa1002")  # vmovss xmm0, dword ptr [rdx]
STORE = bytes.fromhex("0f1101")  # movups xmmword ptr [rcx], xmm0
FILL = bytes.fromhex("f3aa")  # rep stosb byte ptr [rdi], al
MEMBER = bytes.fromhex("4c8ba0a8000000")  # mov r12, qword ptr [rax + 0xa8]
USER = PythonFrame("step", s.SCRIPT, 41)
KERNEL = [(s.TORCH_CPU, "at::native::gather_kernel(at::Tensor const&)")]
IN_STEP = [("step", s.SCRIPT, 41)]


def local(name: str, base: int, elements: int = 0, *, frame: PythonFrame = USER) -> Holder:
    return Holder("local", name, base, frame, True, elements=elements)


def faulted(run: Path, box: Box, addr: int, **how: Any) -> Any:
    how.setdefault("mappings", [PROGRAM, HEAP])
    how = {"addr": addr, "stack_of": KERNEL, "python": IN_STEP, **how}
    return died(run, box=box, **how)


# wrong-index


@needs_capstone
def test_index_tensor_its_value_and_the_size_it_exceeds_are_named(run: Path) -> None:
    """The index is in the memory of `idx`, the sum in rdx."""
    box, index = Box(pid=101).alloc(BASE, 1024).alloc(INDICES, 64), 1 << 36
    report = faulted(
        run,
        box,
        BASE + 4 * index,
        registers={"rdx": BASE + 4 * index, "r13": BASE, "rcx": INDICES},
        code_bytes=LOAD,
        memory=(memory(INDICES, 3, index, register="rcx"),),
        holders=(local("idx", INDICES), local("table", BASE)),
    )
    assert verdict(report) == ("out-of-bounds", "certain")
    assert summary(report) == (
        "Process 101 (train.py) read out of bounds in at::native::gather_kernel, at train.py:41 in step: "
        "index 68719476736 of `idx` in step() "
        "leads out of `table` in step(), with 256 elements of 4 bytes."
    )
    assert "68719476736 is an element of `idx` in step()" in evidence(report)
    assert advice(report).startswith("Check the values of `idx` in step() before train.py:41 in step passes it")


@needs_capstone
def test_garbage_pointer_stays_a_wild_pointer(run: Path) -> None:
    """No recorded values add up to it."""
    box, addr = Box(pid=101).alloc(BASE, 1024), 0x1357_9BDF_0240
    registers = {"rdx": addr, "r13": BASE, "rcx": 77_777}
    report = faulted(run, box, addr, registers=registers, code_bytes=LOAD, holders=(local("table", BASE),))
    assert verdict(report) == ("wild-pointer", "likely")


# runaway-access


@needs_capstone
def test_memset_names_the_tensor_it_began_at_and_the_bytes_asked_for(run: Path) -> None:
    """It ran through everything behind, up to a library; the record of the tensor itself is overwritten."""
    library = (HEAP[1], HEAP[1] + 0x4000, "r-xp", 0, "/usr/lib/libother.so")
    report = faulted(
        run,
        Box(pid=101),
        HEAP[1],
        code=2,
        error_code=7,
        registers={"rdi": HEAP[1], "rdx": BASE, "rcx": 0x1000},
        code_bytes=FILL,
        mappings=[PROGRAM, HEAP, library],
        stack_of=[("/usr/lib/libc.so.6", "__memset_avx2_unaligned_erms")],
        holders=(local("small", BASE),),
    )
    assert verdict(report) == ("out-of-bounds", "certain")
    asked = HEAP[1] - BASE + 0x1000
    assert summary(report) == (
        "Process 101 (train.py) wrote past the end of `small` in step() in __memset_avx2_unaligned_erms"
        ", at train.py:41 in step: "
        ""
        "it ran on for "
        "2.0 MiB of 2.0 MiB that were asked for, to the end of accessible memory."
    )
    assert f"the instruction had 4096 bytes left of {asked}" in evidence(report)
    assert f"{asked} bytes, with nbytes of `small`" in advice(report)


@needs_capstone
def test_beginning_that_no_register_of_memset_holds_is_never_certain(run: Path) -> None:
    """A pointer into a tensor in between does not prove that the access began there."""
    library = (HEAP[1], HEAP[1] + 0x4000, "r-xp", 0, "/usr/lib/libother.so")
    report = faulted(
        run,
        Box(pid=101).alloc(BASE, 64),
        HEAP[1],
        code=2,
        error_code=7,
        registers={"rdi": HEAP[1], "rdx": BASE + 0x800, "r12": BASE, "rcx": 0x1000},
        code_bytes=FILL,
        mappings=[PROGRAM, HEAP, library],
        stack_of=[("/usr/lib/libc.so.6", "__memset_avx2_unaligned_erms")],
    )
    assert verdict(report) == ("out-of-bounds", "likely")


@needs_capstone
def test_write_to_a_library_far_from_all_storages_stays_a_read_only_write(run: Path) -> None:
    """No register points into a storage, and there is a gap before the library."""
    library = (HEAP[1] + 0x10000, HEAP[1] + 0x14000, "r-xp", 0, "/usr/lib/libother.so")
    report = faulted(
        run,
        Box(pid=101).alloc(BASE, 64),
        library[0],
        code=2,
        error_code=7,
        registers={"rdi": library[0], "rcx": 0x1000},
        code_bytes=FILL,
        mappings=[PROGRAM, HEAP, library],
    )
    assert verdict(report) == ("read-only-write", "likely")


# null-dereference


@needs_capstone
def test_empty_tensor_behind_a_null_pointer_is_named(run: Path) -> None:
    """A torch kernel got a tensor of 0 elements."""
    report = faulted(run, Box(pid=101), 0, registers={"rdx": 0}, code_bytes=LOAD, holders=(local("weight", 0),))
    assert verdict(report) == ("null-dereference", "certain")
    assert summary(report).endswith(
        "in at::native::gather_kernel, at train.py:41 in step: `weight` in step() has 0 elements."
    )
    assert advice(report).startswith("Check the size of `weight` before train.py:41 in step")


@needs_capstone
def test_tensor_whose_storage_was_resized_away_is_named_as_such(run: Path) -> None:
    """It has elements, and no memory."""
    holders = (local("cache", 0, 4096),)
    report = faulted(run, Box(pid=101), 0, registers={"rdx": 0}, code_bytes=LOAD, holders=holders)
    assert "`cache` in step() has 4096 elements and no memory: its storage was resized to 0" in evidence(report)


@needs_capstone
def test_empty_tensor_of_a_caller_or_beside_foreign_code_is_not_blamed(run: Path) -> None:
    """A tensor in a caller's frame was not passed on; ctypes code gets addresses, not tensors."""
    caller = PythonFrame("main", s.SCRIPT, 80)
    crash: dict[str, Any] = {"registers": {"rdx": 0}, "code_bytes": LOAD}
    frames = [*IN_STEP, ("main", s.SCRIPT, 80)]
    report = faulted(run / "1", Box(pid=101), 0, python=frames, holders=(local("w", 0, frame=caller),), **crash)
    assert "0 elements" not in evidence(report)
    foreign = [("/home/user/libkernel.so", "scale")]
    report = faulted(run / "2", Box(pid=101), 0, stack_of=foreign, holders=(local("w", 0),), **crash)
    assert "0 elements" not in evidence(report)


@needs_capstone
def test_worker_of_a_parallel_region_far_from_null_is_known_by_its_sibling(run: Path) -> None:
    """Its part began 2 MiB behind null, where another thread was refused at the same instruction."""
    sibling = AlsoCrashed(102, 11, 1, 0x7000_0000_0000, 0, 0)
    crash: dict[str, Any] = {"registers": {"rdx": 0x20_0000}, "code_bytes": LOAD, "pc": 0x7000_0000_0000}
    box = Box(pid=101).alloc(BASE, 64)
    report = faulted(run / "1", box, 0x20_0000, also_crashed=(sibling,), **crash)
    assert verdict(report) == ("null-dereference", "likely")
    assert "thread 102 was refused at 0x0 in the same loop" in evidence(report)
    report = faulted(run / "2", box, 0x20_0000, **crash)
    assert verdict(report) == ("wild-pointer", "likely")


# wild-pointer


@needs_capstone
def test_size_of_a_heap_block_read_as_a_pointer_is_recognised(run: Path) -> None:
    """A vector of tensors was read past its end: the next word is the size of the block behind."""
    crash: dict[str, Any] = {"code_bytes": MEMBER}
    report = faulted(run / "1", Box(pid=101), 0xC9, registers={"rax": 0x21}, **crash)
    assert verdict(report) == ("wild-pointer", "likely")
    assert "its next block, of 32 bytes: the pointer was read past the end of an array or vector" in evidence(report)
    report = faulted(run / "2", Box(pid=101), 0xC9 + 2, registers={"rax": 0x23}, **crash)
    assert "past the end of an array" not in evidence(report)


# oversized-tensor, unmapped-storage


@needs_capstone
def test_tensor_that_claims_more_than_the_heap_has_is_no_use_after_free(run: Path) -> None:
    """Nothing was unmapped: the address is past the end of the heap."""
    box = Box(pid=101).alloc(BASE, 64 << 20)
    crash: dict[str, Any] = {"registers": {"rdx": HEAP[1] + 0x500}, "code_bytes": LOAD}
    beyond = (0x5590_0000_0000, 0x5590_0000_1000, "rw-p", 0, "")
    mappings = [PROGRAM, HEAP, beyond]
    report = faulted(run, box, HEAP[1] + 0x500, mappings=mappings, holders=(local("windows", BASE),), **crash)
    assert verdict(report) == ("out-of-bounds", "likely")
    assert "`windows` in step()" in summary(report) and "claims 64.0 MiB, of which at most 2.0 MiB exist" in summary(
        report
    )
    assert finding(report, "unmapped-storage") is None
