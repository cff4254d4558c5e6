"""Rules about the origin of a wrong address: a case that fires and a look-alike that must not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

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
    assert advice(report).startswith("Check the values of `idx` in step() before line 41 passes it")


@needs_capstone
def test_garbage_pointer_stays_a_wild_pointer(run: Path) -> None:
    """No recorded values add up to it."""
    box, addr = Box(pid=101).alloc(BASE, 1024), 0x1357_9BDF_0240
    registers = {"rdx": addr, "r13": BASE + 64, "rcx": 77_777}
    report = faulted(run, box, addr, registers=registers, code_bytes=LOAD, holders=(local("table", BASE),))
    assert verdict(report) == ("wild-pointer", "likely")


@needs_capstone
@pytest.mark.parametrize("addr", [0x1357_9BDF_0240, 0x1357_9BDF_0246_8ACE])
def test_garbage_pointer_beside_the_first_byte_of_a_storage_is_merely_possible(run: Path, addr: int) -> None:
    """It may be the sum of that and of an index which no register holds any more; even where it is no address."""
    registers = {"rdx": addr, "r13": BASE, "rcx": 77_777}
    report = faulted(run, Box(pid=101).alloc(BASE, 1024), addr, registers=registers, code_bytes=LOAD)
    assert verdict(report) == ("wild-pointer", "possible")


@needs_capstone
def test_sum_that_overwrote_its_pointer_names_the_storage_it_began_at(run: Path) -> None:
    """`add rdi, rsi`: the number that is left leads to the first byte of a storage, to the bit."""
    index = -0x0321_FDE4_0000
    registers = {"rdx": BASE + index, "rsi": index % (1 << 64)}
    report = faulted(run, Box(pid=101).alloc(BASE, 1024), BASE + index, registers=registers, code_bytes=LOAD)
    assert verdict(report) == ("out-of-bounds", "likely")
    assert f"index {index} leads out of a tensor of 1024 bytes" in summary(report)


@needs_capstone
def test_unscaled_number_that_leads_elsewhere_is_no_index(run: Path) -> None:
    """The look-alike: it leads into the storage, but not to its first byte."""
    registers = {"rdx": BASE + 8 - 0x0321_FDE4_0000, "rsi": -0x0321_FDE4_0000 % (1 << 64)}
    report = faulted(run, Box(pid=101).alloc(BASE, 1024), registers["rdx"], registers=registers, code_bytes=LOAD)
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
        "Process 101 (train.py) wrote past the end of `small` in step() in memset()"
        ", at train.py:41 in step: "
        ""
        "it ran on for "
        "2.0 MiB of 2.0 MiB that were asked for, to the end of accessible memory."
    )
    assert f"the instruction had 4096 bytes left of {asked}" in evidence(report)
    assert f"{asked} bytes, with nbytes of `small`" in advice(report)


@needs_capstone
@pytest.mark.parametrize("begun", [BASE, HEAP[0] - 0x1000])
def test_memset_whose_storage_is_not_recorded_any_more_has_its_beginning_and_length(begun: int, run: Path) -> None:
    """It may have run over the recording; the look-alike: rdx holds something else."""
    library = (HEAP[1], HEAP[1] + 0x4000, "r-xp", 0, "/usr/lib/libother.so")
    report = faulted(
        run,
        Box(pid=101),
        HEAP[1],
        code=2,
        error_code=7,
        registers={"rdi": HEAP[1], "rdx": begun, "rcx": 0x1000},
        code_bytes=FILL,
        mappings=[PROGRAM, HEAP, library],
        stack_of=[("/usr/lib/libc.so.6", "__memset_avx2_unaligned_erms")],
    )
    known = begun == BASE
    assert verdict(report) == ("out-of-bounds", "likely" if known else "possible")
    assert (f"wrote past the end of the memory at {BASE:#x} in memset()" in summary(report)) == known
    assert (f"passes, {HEAP[1] - BASE + 0x1000} bytes, with nbytes" in advice(report)) == known


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


@needs_capstone
@pytest.mark.parametrize(("far", "confidence"), [(44 << 20, "possible"), (1 << 40, "likely")])
def test_pointer_behind_a_storage_that_the_stack_has_is_only_possibly_wild(
    far: int, confidence: str, run: Path
) -> None:
    """A loop over a tensor of another size: its start is in the frame, and the registers have moved on."""
    addr, stack = BASE + far, 0x7FFC_0000_0100
    registers = {"rdx": addr, "rsp": stack}
    block = memory(stack, 7, BASE, register="rsp")
    box = Box(pid=101).alloc(BASE, 64)
    report = faulted(run, box, addr, registers=registers, code_bytes=LOAD, memory=(block,), sp=stack)
    assert verdict(report) == ("wild-pointer", confidence)


ARENA = (0x7F3D_C000_0000, 0x7F3D_C019_3000, "rw-p", 0, "")
BATCH = (0x7F3D_B000_0000, 0x7F3D_BFFF_F000, "rw-p", 0, "")
STORE_INDEXED = bytes.fromhex("f30f110498")  # movss dword ptr [rax + rbx*4], xmm0


@needs_capstone
@pytest.mark.parametrize("base", [ARENA[0] + 0xCEC80, BATCH[0] + 0x40])
def test_tensor_beside_what_was_meant_is_not_blamed(base: int, run: Path) -> None:
    """A loop over a block of malloc's runs off the arena, far behind a tensor; and one that counted from the tensor."""
    reserved = (ARENA[1], ARENA[0] + (64 << 20), "---p", 0, "")
    box = Box(pid=101).alloc(BATCH[0] + 0x40, BATCH[1] - BATCH[0] - 0x40)
    registers = {"rax": base, "rbx": (ARENA[1] - base) // 4}
    mappings = [PROGRAM, BATCH, ARENA, reserved]
    code = {"code": 2, "error_code": 7, "code_bytes": STORE_INDEXED}
    report = faulted(run, box, ARENA[1], registers=registers, mappings=mappings, **code)
    assert report.verdict is not None and report.verdict.class_ == "out-of-bounds"
    assert ("tensor" in summary(report) or "storage" in summary(report)) == (base == BATCH[0] + 0x40), summary(report)


@needs_capstone
@pytest.mark.parametrize(("base", "named"), [(BASE - 0x800, False), (BASE - 16, True), (BASE + 480, True)])
def test_loop_that_counts_from_other_memory_did_not_begin_at_a_tensor_on_its_way(
    base: int, named: bool, run: Path
) -> None:
    """What another register points at was only passed: a copy reads one array and writes the other."""
    registers = {"rax": base, "rbx": (HEAP[1] - base) // 4, "rdi": BASE + 8}
    code = {"code_bytes": STORE_INDEXED, "error_code": 7}
    report = faulted(run, Box(pid=101).alloc(BASE, 480), HEAP[1], registers=registers, **code)
    assert ("tensor of 480 bytes" in summary(report)) == named
    assert verdict(report)[0] == "out-of-bounds"


@needs_capstone
@pytest.mark.parametrize("ahead", [-1, 0, 1])
def test_loop_over_rows_is_told_by_its_stride_and_its_counter(ahead: int, run: Path) -> None:
    """Of two storages that registers point at, the equation decides; it stopped one part of a row behind the heap."""
    stride = 240
    count = (HEAP[1] - BASE) // stride + 1
    addr = BASE + stride * count
    assert 0 < addr % 4096 < stride
    registers = {"rdx": addr, "r13": BASE, "r12": BASE - 0x80, "r8": stride, "rcx": count + ahead}
    box = Box(pid=101).alloc(BASE, 480).alloc(BASE - 0x80, 16)
    report = faulted(run, box, addr, registers=registers, code_bytes=LOAD)
    assert verdict(report) == ("out-of-bounds", "likely")
    assert "read past the end of a tensor of 480 bytes" in summary(report)
    assert f"the address is {count} steps of {stride} bytes behind {BASE:#x}, to which r13 pointed" in evidence(report)


@needs_capstone
@pytest.mark.parametrize("registers", [{"r8": 240}, {"r8": 240, "rcx": 4711}, {"r8": 241, "rcx": 100}])
def test_address_behind_the_heap_without_stride_and_counter_names_no_tensor(
    registers: dict[str, int], run: Path
) -> None:
    """A pointer to a storage, and a number that may be anything."""
    addr = BASE + 240 * ((HEAP[1] - BASE) // 240 + 1)
    box = Box(pid=101).alloc(BASE, 480).alloc(BASE - 0x80, 16)
    report = faulted(run, box, addr, registers={"rdx": addr, "r13": BASE, **registers}, code_bytes=LOAD)
    assert "tensor of 480 bytes" not in summary(report)


@needs_capstone
def test_rows_across_a_hole_were_not_run_over(run: Path) -> None:
    """The loop would have been refused before."""
    addr = HEAP[1] + 0x10000
    stride = 256
    assert (addr - BASE) % stride == 0
    registers = {"rdx": addr, "r13": BASE, "r8": stride, "rcx": (addr - BASE) // stride}
    report = faulted(run, Box(pid=101).alloc(BASE, 480), addr, registers=registers, code_bytes=LOAD)
    assert "it ran on" not in summary(report)


@needs_capstone
def test_loop_that_ran_downwards_names_the_tensor_it_began_at(run: Path) -> None:
    """Refused at the last word of the page before the heap."""
    addr, registers = HEAP[0] - 4, {"rdx": HEAP[0] - 4, "r13": BASE, "r9": BASE + 16}
    report = faulted(run, Box(pid=101).alloc(BASE, 64), addr, registers=registers, code_bytes=LOAD)
    assert verdict(report) == ("out-of-bounds", "likely")
    assert "read before the beginning of a tensor of 64 bytes in at::native::gather_kernel" in summary(report)
    assert "to the beginning of accessible memory" in summary(report)


@needs_capstone
def test_loop_whose_beginning_no_register_holds_is_found_by_the_stack(run: Path) -> None:
    """Its caller's arguments are still there."""
    addr, stack = HEAP[0] - 4, 0x7FFC_0000_0100
    registers = {"rdx": addr, "rsp": stack}
    block = memory(stack, 7, BASE, register="rsp")
    box = Box(pid=101).alloc(BASE, 64)
    report = faulted(run, box, addr, registers=registers, code_bytes=LOAD, memory=(block,), sp=stack)
    assert verdict(report) == ("out-of-bounds", "likely")


@needs_capstone
def test_read_that_ran_on_to_the_kernels_pages_has_run_on(run: Path) -> None:
    """[vvar] may be read, but for the pages that this machine does not have: SIGBUS."""
    low = HEAP[1]
    vvar = (low, low + 0x4000, "r--p", 0, "[vvar]")
    report = died(
        run,
        addr=low + 0x15A5,
        signal=7,
        code=2,
        code_bytes=LOAD,
        registers={"rdx": low + 0x15A5},
        mappings=[PROGRAM, HEAP, vvar],
    )
    assert verdict(report) == ("out-of-bounds", "possible")
    assert "read over the end of accessible memory" in summary(report)


def test_access_at_the_edge_of_accessible_memory_has_run_on_from_somewhere(run: Path) -> None:
    """Nothing says from where: then it is merely possible, and no tensor is named."""
    box = Box(pid=101).alloc(BASE, 64)
    report = faulted(run, box, HEAP[1], registers={"rdx": HEAP[1]}, code_bytes=LOAD)
    assert verdict(report) == ("out-of-bounds", "possible")
    assert "read over the end of accessible memory" in summary(report)


@needs_capstone
@pytest.mark.parametrize("addr", [HEAP[1] + 0x800, HEAP[1] + 0x1_0000])
def test_address_that_is_no_edge_stays_a_wild_pointer(run: Path, addr: int) -> None:
    """The look-alikes: in the middle of a page, and at the beginning of one that lies alone."""
    report = faulted(run, Box(pid=101).alloc(BASE, 64), addr, registers={"rdx": addr}, code_bytes=LOAD)
    assert verdict(report) == ("wild-pointer", "likely")


@needs_capstone
def test_misaligned_access_at_the_beginning_of_a_page_has_not_run_there(run: Path) -> None:
    """The look-alike: the memory on both sides of the edge may be read."""
    behind = (HEAP[1], HEAP[1] + 0x4000, "rw-p", 0, "")
    aligned = bytes.fromhex("c5fd6f02")  # vmovdqa ymm0, ymmword ptr [rdx]
    how: dict[str, Any] = {"registers": {"rdx": HEAP[1] + 6}, "code_bytes": aligned, "code": 0x80}
    report = faulted(run, Box(pid=101).alloc(BASE, 64), HEAP[1] + 6, mappings=[PROGRAM, HEAP, behind], **how)
    assert verdict(report) == ("misaligned-access", "certain")


@needs_capstone
def test_write_that_ran_into_a_file_mapping_is_no_read_only_write(run: Path) -> None:
    """What lies before it may be written, without a gap."""
    data = (HEAP[1], HEAP[1] + 0x4000, "r--s", 0, "/data/tokens.bin")
    registers = {"rdi": HEAP[1], "rcx": 0x1000}
    how: dict[str, Any] = {"registers": registers, "code_bytes": FILL, "mappings": [PROGRAM, HEAP, data]}
    report = faulted(run, Box(pid=101).alloc(BASE, 64), HEAP[1], code=2, error_code=7, **how)
    assert verdict(report) == ("out-of-bounds", "possible")


@needs_capstone
def test_write_into_the_middle_of_a_file_mapping_stays_a_read_only_write(run: Path) -> None:
    """The look-alike: nothing ran there."""
    data = (HEAP[1], HEAP[1] + 0x4000, "r--s", 0, "/data/tokens.bin")
    registers = {"rdi": HEAP[1] + 0x2000, "rcx": 0x1000}
    how: dict[str, Any] = {"registers": registers, "code_bytes": FILL, "mappings": [PROGRAM, HEAP, data]}
    report = faulted(run, Box(pid=101).alloc(BASE, 64), HEAP[1] + 0x2000, code=2, error_code=7, **how)
    assert verdict(report) == ("read-only-write", "certain")


# null-dereference


@needs_capstone
def test_null_that_was_indexed_is_null_however_far_the_index_leads(run: Path) -> None:
    """The register that the instruction multiplies is no pointer."""
    code = bytes.fromhex("f20f1004f7")  # movsd xmm0, qword ptr [rdi + rsi*8]
    report = faulted(run, Box(pid=101), 8 * 0x2_0000, registers={"rdi": 0, "rsi": 0x2_0000}, code_bytes=code)
    assert verdict(report) == ("null-dereference", "certain")


@needs_capstone
def test_multiple_of_a_register_beside_null_is_likely_an_index_from_null(run: Path) -> None:
    """The compiler computed the sum before."""
    registers = {"rdx": 8 * 0x2_0000, "rdi": 0, "rsi": 0x2_0000}
    report = faulted(run, Box(pid=101), registers["rdx"], registers=registers, code_bytes=LOAD)
    assert verdict(report) == ("null-dereference", "likely")


@needs_capstone
def test_small_address_that_is_no_such_multiple_stays_a_wild_pointer(run: Path) -> None:
    """The look-alike: one element beside."""
    registers = {"rdx": 8 * 0x2_0000, "rdi": 0, "rsi": 0x2_0001}
    report = faulted(run, Box(pid=101), registers["rdx"], registers=registers, code_bytes=LOAD)
    assert verdict(report)[0] == "wild-pointer"


@needs_capstone
def test_empty_tensor_behind_a_null_pointer_is_named(run: Path) -> None:
    """A torch kernel got a tensor of 0 elements."""
    report = faulted(run, Box(pid=101), 0, registers={"rdx": 0}, code_bytes=LOAD, holders=(local("weight", 0),))
    assert verdict(report) == ("null-dereference", "certain")
    assert summary(report).endswith(
        "in at::native::gather_kernel, at train.py:41 in step: `weight` in step() has 0 elements."
    )
    assert advice(report).startswith("Check the size of `weight` before line 41")


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


@needs_capstone
@pytest.mark.parametrize("addr", [0x40, 0x880])
def test_worker_that_was_refused_no_farther_back_is_no_sibling(addr: int, run: Path) -> None:
    """The look-alike: parts of one tensor begin behind each other; these are addresses that the threads were given."""
    sibling = AlsoCrashed(102, 11, 1, 0x7000_0000_0000, addr, 0)
    crash: dict[str, Any] = {"registers": {"rdx": 0x40}, "code_bytes": LOAD, "pc": 0x7000_0000_0000}
    report = faulted(run, Box(pid=101).alloc(BASE, 64), 0x40, also_crashed=(sibling,), **crash)
    assert "in the same loop" not in evidence(report)


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
