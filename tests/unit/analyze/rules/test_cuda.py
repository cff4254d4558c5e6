"""Rules about CUDA: a case that fires and a look-alike that must not."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from pytracer.analyze.engine import build_report
from pytracer.report import job as r
from tests.support import scenarios as s
from tests.support.deaths import PROGRAM, advice, died, evidence, finding, summary, verdict
from tests.support.gpu_cores import (
    COMPARE,
    EXIT,
    KERNEL_ADDR,
    LOAD_16,
    MASKED_4,
    STORE_4,
    TRAP,
    WAIT,
    Core,
    Lane,
    Warp,
    accessing,
    faulting,
    halves,
    instructions,
)
from tests.support.synth import Box

DEVICE = 0x7F60_0000_0000
MIB = 1 << 20
ILLEGAL = "CUDA error: an illegal memory access was encountered\nCUDA kernel errors might be asynchronously reported"
ERROR = "torch.AcceleratorError"


def with_block(**more: Any) -> Box:
    """A process with one segment and one block of 4 MiB on cuda:0."""
    box = Box(pid=101, ppid=99)
    box.devices.segment(DEVICE, 20 * MIB)
    box.devices.alloc(DEVICE, 4 * MIB, box.code("make", s.SCRIPT, 12), box.epoch, **more)
    return box


def host_fault(run: Path, box: Box, addr: int) -> Any:
    mapping = (DEVICE - MIB, DEVICE + (1 << 30), "---p", 0, "")
    return died(run, box=box, code=2, addr=addr, mappings=[PROGRAM, mapping])


def raised(run: Path, box: Box, message: str, type: str = ERROR) -> Any:
    """The process ended with this exception."""
    box.at(500).exception(type, message, [("step", s.SCRIPT, 40)]).exit(1)
    launcher = {"child_pid": 101, "exit_code": 1, "ended_mono_ns": box.now}
    return build_report(s.load(run, box, launcher=launcher))


# device-pointer-on-host


def test_device_pointer_on_host_names_the_block_and_who_allocated_it(run: Path) -> None:
    """torch's allocator knows the address."""
    report = host_fault(run, with_block(stream=0x77), DEVICE + 64)
    assert verdict(report) == ("device-pointer-on-host", "certain")
    assert summary(report).endswith(": 64 bytes into a live block of 4.0 MiB on cuda:0.")
    assert "allocated for stream 0x77" in evidence(report) and "train.py:12 in make" in evidence(report)
    fault = next(p for p in report.processes if p.pid == 101).fault
    assert (fault.kind, fault.storage.device, fault.storage.found) == ("device-memory", "cuda:0", "exact")


def test_device_pointer_on_host_says_that_a_block_is_only_awaited(run: Path) -> None:
    """record_stream: freed by the program, and still owned."""
    box = with_block()
    box.devices.free(DEVICE, box.code("drop", s.SCRIPT, 20), box.epoch, awaited=True)
    report = host_fault(run, box, DEVICE)
    assert "a freed but still awaited block of 4.0 MiB on cuda:0" in summary(report)
    assert "kept because other streams still used it" in evidence(report)


def test_device_pointer_on_host_in_a_segment_without_a_block(run: Path) -> None:
    """Memory that the allocator keeps for later."""
    report = host_fault(run, with_block(), DEVICE + 10 * MIB)
    assert "memory of torch's allocator in which no tensor lies, on cuda:0" in summary(report)


def test_device_pointer_on_host_names_the_pool_of_a_graph(run: Path) -> None:
    """A private pool belongs to one CUDA graph."""
    box = with_block(pool=(1, 0))
    box.devices.graph(1, box.code("capture", s.SCRIPT, 30), replays=7, captured_ns=box.now)
    report = host_fault(run, box, DEVICE + 8)
    assert "memory of the pool of CUDA graph 1, captured at train.py:30 in capture" in evidence(report)
    use = next(p for p in report.processes if p.pid == 101).fault.cuda_graph
    assert (use.id, use.pool, use.role, use.replays) == (1, "(1, 0)", "pool-memory", 7)


def test_memory_of_a_device_is_no_use_after_free(run: Path) -> None:
    """A freed block is still the device's: the host may not touch it either way."""
    box = with_block()
    box.devices.free(DEVICE, box.code("drop", s.SCRIPT, 20), box.epoch)
    report = host_fault(run, box, DEVICE)
    assert verdict(report) == ("device-pointer-on-host", "certain")
    assert finding(report, "use-after-free") is None and finding(report, "out-of-bounds") is None


# cuda-error


def test_cuda_error_says_that_the_line_need_not_be_the_cause(run: Path) -> None:
    """An illegal access is sticky, and returned by a later call."""
    report = raised(run, Box(pid=101, ppid=99), ILLEGAL)
    assert verdict(report) == ("cuda-error", "certain")
    assert "ended with a CUDA error: an illegal memory access was encountered at train.py:40 in step" in summary(report)
    assert "that line need not be the one whose kernel failed" in evidence(report)
    assert "CUDA_LAUNCH_BLOCKING=1" in advice(report)
    assert finding(report, "python-exception") is None


def test_cuda_error_with_launch_blocking_trusts_the_line(run: Path) -> None:
    """Then every launch waits for its kernel."""
    report = raised(run, Box(pid=101, ppid=99, environment={"CUDA_LAUNCH_BLOCKING": "1"}), ILLEGAL)
    assert summary(report).endswith("which launched the kernel that failed.")
    assert "need not" not in evidence(report)


def test_cuda_error_says_when_the_device_was_seen_to_have_failed(run: Path) -> None:
    """The error is older than the exception."""
    box = Box(pid=101, ppid=99)
    box.devices.stream(0, 4, since_ns=box.now + 100_000_000, error=700)
    assert "cuda:0 was seen to have failed 0.400 s before (error 700)" in evidence(raised(run, box, ILLEGAL))


@pytest.mark.parametrize(("handle", "words"), [(0x77, "stream 0x77 of cuda:1"), (0, "the default stream of cuda:1")])
def test_cuda_error_says_which_stream_was_filled_last(run: Path, handle: int, words: str) -> None:
    """Records of a process that uses CUDA carry the stream of their thread."""
    box = Box(pid=101, ppid=99).event("NODE", "MulBackward0", stream=(1, handle)).event("NODE", "Plain")
    report = raised(run, box, ILLEGAL)
    assert f"the last recorded work, NODE MulBackward0, was put on {words}" in evidence(report)
    current = next(p for p in report.processes if p.pid == 101).current_stream
    assert (current.device, current.stream, current.crashed_thread) == ("cuda:1", hex(handle), False)


def test_cuda_error_that_is_not_sticky_is_told_by_its_own_line(run: Path) -> None:
    """A refused call does not affect the device."""
    report = raised(run, Box(pid=101, ppid=99), "CUDA error: invalid device ordinal")
    assert verdict(report) == ("cuda-error", "certain")
    assert "need not" not in evidence(report)


def test_cuda_error_does_not_fire_for_other_exceptions(run: Path) -> None:
    """A sentence with CUDA in it."""
    report = raised(run, Box(pid=101, ppid=99), "Torch not compiled with CUDA enabled", "AssertionError")
    assert finding(report, "cuda-error") is None
    assert verdict(report) == ("python-exception", "certain")


# cuda-out-of-memory


def oom_entry(box: Box, wanted: int, *users: tuple[tuple[int, int], int, int]) -> None:
    live = sum(nbytes for _, nbytes, _ in users)
    head = struct.pack("<IIQQQQQIIII", 0, len(users), wanted, 10 * MIB, live, 0, 8192 * MIB, 7, 3, 0, 0)
    box.entry(48, head + b"".join(struct.pack("<IIQII", *by, nbytes, count, 0) for by, nbytes, count in users))


def test_out_of_memory_names_the_places_that_hold_the_most(run: Path) -> None:
    """The allocator's state at that moment."""
    box = Box(pid=101, ppid=99)
    keep, small = box.code("keep", s.SCRIPT, 8), box.code("small", s.SCRIPT, 9)
    oom_entry(box, 512 * MIB, (keep, 7000 * MIB, 20), (small, 900 * MIB, 3))
    report = raised(run, box, "CUDA out of memory. Tried to allocate 512.00 MiB.", "torch.OutOfMemoryError")
    assert verdict(report) == ("cuda-error", "certain")
    assert "asked for 512.0 MiB on cuda:0 at train.py:40 in step, and the device had no room" in summary(report)
    assert "6.8 GiB in 20 blocks allocated at train.py:8 in keep" in evidence(report)
    assert "torch had 8.0 GiB from the driver" in evidence(report)


def test_out_of_memory_tells_fragmentation(run: Path) -> None:
    """Half of torch's memory is in no tensor."""
    box = Box(pid=101, ppid=99)
    oom_entry(box, 512 * MIB, (box.code("keep", s.SCRIPT, 8), 4000 * MIB, 20))
    report = raised(run, box, "CUDA out of memory. Tried to allocate 512.00 MiB.", "torch.OutOfMemoryError")
    assert "expandable_segments" in advice(report) and "of torch's memory lay in no tensor" in evidence(report)


@pytest.mark.parametrize(
    ("other", "shared"),
    [({}, True), ({"CUDA_VISIBLE_DEVICES": "1"}, False), ({"elsewhere": "1"}, False)],
    ids=["same", "devices of its own", "no memory there"],
)
def test_out_of_memory_of_ranks_on_one_device_advises_set_device(
    run: Path, other: dict[str, str], shared: bool
) -> None:
    """All ranks on cuda:0; not where each sees a device of its own, and not where the other one has no memory there."""
    boxes = [Box(pid=101 + n, ppid=99, rank=n, environment=other if n else {}) for n in range(2)]
    for number, box in enumerate(boxes):
        if not (number and "elsewhere" in other):
            box.devices.segment(DEVICE, 20 * MIB)
    oom_entry(boxes[0], 512 * MIB, (boxes[0].code("keep", s.SCRIPT, 8), 7000 * MIB, 20))
    boxes[0].at(500).exception("torch.OutOfMemoryError", "CUDA out of memory.", [("step", s.SCRIPT, 40)]).exit(1)
    report = build_report(s.load(run, s.agent((101, {"exit_code": 1}), (102, {"signal": 15}), at=900), *boxes))
    assert verdict(report) == ("cuda-error", "certain")
    assert ("ranks 0 and 1 of this host all had memory on cuda:0" in evidence(report)) == shared
    assert ("set_device" in advice(report)) == shared


def test_out_of_memory_does_not_fire_for_a_request_that_was_caught(run: Path) -> None:
    """A search for the largest batch runs into it on purpose."""
    box = Box(pid=101, ppid=99)
    oom_entry(box, 512 * MIB)
    report = raised(run, box, "no batch fits", "RuntimeError")
    assert finding(report, "cuda-out-of-memory") is None


# cuda-graph-input-freed


def with_graph(*, broken: int, taken: bool = False) -> Box:
    box = Box(pid=101, ppid=99)
    by = box.code("capture", s.SCRIPT, 30)
    drop = box.code("drop", s.SCRIPT, 35)
    box.devices.graph(1, by, replays=9, broken=broken, captured_ns=box.now)
    taker = (DEVICE, 4096, box.code("bucket", s.SCRIPT, 50)) if taken else None
    box.devices.graph_input(1, DEVICE, MIB, by=by, freed_by=drop, taken=taker)
    return box


@pytest.mark.parametrize("taken", [False, True])
def test_graph_input_freed_accompanies_the_error(run: Path, taken: bool) -> None:
    """Replayed after `del static_input`; the memory may belong to another tensor."""
    report = raised(run, with_graph(broken=3, taken=taken), ILLEGAL)
    found = finding(report, "cuda-graph-input-freed")
    assert found is not None
    assert found.summary is not None and found.evidence
    assert found.summary.startswith(
        "Process 101 (train.py) replayed CUDA graph 1, captured at train.py:30 in capture, 3"
    )
    assert ("belongs to another tensor now" in found.summary) == taken
    assert "freed at train.py:35 in drop" in found.evidence[0]
    assert verdict(report)[0] == "cuda-error"
    assert "Keep the tensor of 1.0 MiB" in advice(report)


def test_graph_input_freed_does_not_fire_without_a_replay(run: Path) -> None:
    """Freed after the last replay: it is no longer read."""
    report = raised(run, with_graph(broken=0), ILLEGAL)
    assert finding(report, "cuda-graph-input-freed") is None


# Xid lines of the kernel's log, as drivers write them


def with_log(run: Path, box: Box, *lines: str, first_pid_namespace: bool = True, message: str = ILLEGAL) -> Any:
    """An illegal access, and these lines in the kernel's log 0.3 s before."""
    box.at(500)
    seen, log_us = box.now - 200_000_000, (box.now - 300_000_000) // 1000
    log = {"readable": True, "lines": [{"text": text, "log_us": log_us, "seen_mono_ns": seen} for text in lines]}
    witness = {"before": {"mono_ns": 1}, "kernel_log": log, "first_pid_namespace": first_pid_namespace}
    box.exception(ERROR, message, [("step", s.SCRIPT, 40)]).exit(1)
    launcher = {"child_pid": 101, "exit_code": 1, "ended_mono_ns": box.now, "witness": witness}
    return build_report(s.load(run, box, launcher=launcher))


MMU = (
    "NVRM: Xid (PCI:0000:41:00): 31, pid={}, name=python, Ch 00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS GPC1 "
    "GPCCLIENT_T1_3 faulted @ 0x{}. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_{}"
)


def test_an_xid_of_the_process_maps_its_address_to_the_block(run: Path) -> None:
    """Xid 31 has the page of the access."""
    report = with_log(run, with_block(), MMU.format(101, "7f60_00001000", "WRITE"))
    told = evidence(report)
    assert "Xid 31 of this process on GPU 0000:41:00: a kernel used an address that is not mapped" in told
    assert (
        "writing 0x7f6000001000 (4096 bytes into a live block of 4.0 MiB on cuda:0, allocated at train.py:12;" in told
    )
    assert "0.300 s before the exception" in told


def test_an_xid_in_a_freed_input_of_a_graph_leads_to_the_graph(run: Path) -> None:
    """The other address is of no graph."""
    report = with_log(run, with_graph(broken=1), MMU.format(101, "7f60_00001000", "READ"))
    assert "after an input of it (1.0 MiB" in summary(report) and "the address of Xid 31 lies in it" in summary(report)


def test_an_xid_elsewhere_does_not(run: Path) -> None:
    """A page behind the input."""
    report = with_log(run, with_graph(broken=1), MMU.format(101, "7f60_00100000", "READ"))
    assert "the address of Xid 31" not in summary(report)


def test_an_xid_outside_of_all_memory_says_so(run: Path) -> None:
    """A wild address."""
    report = with_log(run, with_block(), MMU.format(101, "100_05252000", "READ"))
    assert "reading 0x10005252000, where torch's allocator has no memory" in evidence(report)


ENDED = "NVRM: Xid (PCI:0000:41:00): 43, pid=101, name=python, Ch 00000008"
CUBLAS = "CUDA error: CUBLAS_STATUS_INTERNAL_ERROR when calling `cublasSgemm(handle)`"


@pytest.mark.parametrize(
    ("message", "lines", "names"),
    [
        (CUBLAS, [ENDED], True),
        (CUBLAS, [ENDED, MMU.format(101, "7f60_00001000", "READ")], False),
        (CUBLAS, [], False),
        ("CUDA error: an illegal memory access was encountered", [ENDED], False),
    ],
    ids=["ended itself", "refused access", "no log", "told by CUDA"],
)
def test_a_kernel_that_ended_itself_is_of_an_operator_that_checks(
    message: str, lines: list[str], names: bool, run: Path
) -> None:
    """A library's own error has no word of it, and the driver printed nothing."""
    box = with_block()
    box.device_op("aten::gather", at(box, 20), [DEVICE]).device_op("aten::mm", at(box, 30), [DEVICE])
    report = with_log(run, box, *lines, message=message)
    alone = "may have been launched by aten::gather at train.py:20 in step: a kernel ended itself" in evidence(report)
    assert alone == names
    assert ("Check the indices of train.py:20" in advice(report)) == names


def test_the_address_of_a_fault_that_the_driver_does_not_know_is_none(run: Path) -> None:
    """As driver 580 writes while it makes a core dump."""
    line = MMU.format(101, "1825c9_001016db", "READ").replace(
        "FAULT_PDE ACCESS_TYPE_VIRT_READ", "UNRECOGNIZED_FAULT UNRECOGNIZED_ACCESS_TYPE"
    )
    told = evidence(with_log(run, with_block(), line))
    assert "Xid 31 of this process" in told and "0x1825c9001016db" not in told


def test_an_xid_of_another_process_is_not_told(run: Path) -> None:
    """A neighbour's fault on the same machine."""
    report = with_log(run, with_block(), MMU.format(1010, "7f60_00001000", "WRITE"))
    assert "Xid" not in evidence(report)


def test_in_a_container_only_the_time_of_an_xid_matches(run: Path) -> None:
    """The log has pids of the host: 101 there is another process."""
    report = with_log(run, with_block(), MMU.format(101, "7f60_00001000", "WRITE"), first_pid_namespace=False)
    told = evidence(report)
    assert "writing 0x7f6000001000; the line does not say whose work it was" in told and "of this process" not in told


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("NVRM: Xid (PCI:0000:23:00): 79, GPU has fallen off the bus.", "fallen off the bus. Restart the machine"),
        ("NVRM: Xid (PCI:0000:10:1c): 63, pid=101, Row Remapper: New row marked for remapping, reset gpu to activate.",
         "is to be remapped after an error. Drain the node"),
        ("NVRM: Xid (PCI:0000:19:00): 48, pid='<unknown>', name=<unknown>, DBE (double bit error) at 0x1 (2,3)",
         "an uncorrectable ECC error in the device's memory. Drain"),
    ],
)  # fmt: skip
def test_an_xid_about_the_hardware_changes_the_advice(run: Path, line: str, words: str) -> None:
    """With a pid or without one."""
    said = advice(with_log(run, Box(pid=101, ppid=99), line))
    assert said.startswith("Suspect the device before the program: ") and words in said


def test_an_unknown_xid_is_quoted(run: Path) -> None:
    """Numbers are added with every driver."""
    line = "NVRM: Xid (PCI:0000:23:00): 999, pid=101, name=python, something new"
    assert f'Xid 999 of this process on GPU 0000:23:00 ("{line}")' in evidence(
        with_log(run, Box(pid=101, ppid=99), line)
    )


def test_an_xid_long_before_the_end_is_not_told(run: Path) -> None:
    """Without a pid, only the time could connect them."""
    box = Box(pid=101, ppid=99).at(500)
    lines = [{"text": "NVRM: Xid (PCI:0000:23:00): 79, GPU has fallen off the bus.", "seen_mono_ns": 1}]
    witness = {"before": {"mono_ns": 1}, "kernel_log": {"readable": True, "lines": lines}, "first_pid_namespace": True}
    box.later(120_000).exception(ERROR, ILLEGAL, [("step", s.SCRIPT, 40)]).exit(1)
    report = build_report(s.load(run, box, launcher={"child_pid": 101, "exit_code": 1, "witness": witness}))
    assert "Xid" not in evidence(report)


# core dumps of devices


def with_core(run: Path, box: Box, core: Core, *, abort: bool = False, host: str = "node0") -> Any:
    """An illegal access of process 101 that left this dump."""
    core.write(run / "gpu-cores" / f"{host}.101.nvcudmp")
    launcher = {"child_pid": 101, "gpu_core": {"file": None, "set": {}, "kept": {}}}
    if abort:
        return died(run, box=box, signal=6, code=-6, launcher=launcher)
    box.at(500).exception(ERROR, ILLEGAL, [("step", s.SCRIPT, 40)]).exit(1)
    return build_report(s.load(run, box, launcher=launcher | {"exit_code": 1, "ended_mono_ns": box.now}))


def test_a_core_dump_names_the_kernel_and_what_it_worked_on(run: Path) -> None:
    """Registers and parameters that point into the allocator's memory."""
    registers = (1, 2, *halves(DEVICE + 64), 5)
    parameters = struct.pack("<QQQ", 40, DEVICE, 0xDEAD)
    report = with_core(run, with_block(), faulting(*registers, parameters=parameters))
    assert "illegal memory access was encountered by kernel scatter_add at train.py:40" in summary(report)
    told = evidence(report)
    assert 'kernel scatter_add+0x1a0 met "warp illegal address" at 0x7f49c2e9c1a0, in 1 warp' in told
    assert "first block (2, 0, 0), thread (33, 0, 0)" in told
    assert "register R2 points 64 bytes into a live block of 4.0 MiB on cuda:0" in told
    assert "parameter at 0x8 points 0 bytes into a live block of 4.0 MiB on cuda:0" in told
    assert "what is passed to scatter_add" in advice(report)
    assert not missing(report)
    core = next(p for p in report.processes if p.pid == 101).gpu_core
    assert [item.found for item in core.exceptions[0].pointers] == ["parameter at 0x8", "register R2"]


def test_a_core_dump_that_cannot_be_read_is_told(run: Path) -> None:
    """The finding stays."""
    report = with_core(run, Box(pid=101, ppid=99), Core(machine=62))
    assert verdict(report) == ("cuda-error", "certain")
    assert "node0.101.nvcudmp: it is an ELF file, but not a core dump of a CUDA device" in evidence(report)
    assert "which kernel failed" in missing(report)[0]


def test_an_abort_of_the_driver_after_a_core_dump_is_a_cuda_error(run: Path) -> None:
    """Without skip_abort in the user's own flags, no exception is ever raised."""
    report = with_core(run, Box(pid=101, ppid=99), faulting(), abort=True)
    assert verdict(report) == ("cuda-error", "certain")
    assert "ended with a CUDA error: warp illegal address by kernel scatter_add" in summary(report)


def test_a_core_dump_of_another_host_is_not_taken(run: Path) -> None:
    """Pids are reused."""
    report = with_core(run, Box(pid=101, ppid=99), faulting(), host="node2")
    assert "core dump" not in evidence(report)


def missing(report: r.Report) -> list[str]:
    """What cuda-error would have needed."""
    found = finding(report, "cuda-error")
    assert found is not None
    return found.missing or []


def with_segment(freed: bool = False, live: bool = True) -> Box:
    """A segment of 4 MiB that one block fills, which may have been freed, and the segment given back."""
    box = Box(pid=101, ppid=99)
    box.devices.segment(DEVICE, 4 * MIB, gone=not live)
    box.devices.alloc(DEVICE, 4 * MIB, box.code("make", s.SCRIPT, 12), box.epoch)
    if freed:
        box.devices.free(DEVICE, box.code("drop", s.SCRIPT, 20), box.epoch)
    return box


def addrs(first: int, step: int = 16) -> tuple[int, ...]:
    """Of four threads."""
    return tuple(first + step * lane for lane in range(4))


def test_a_misaligned_access_names_the_address(run: Path) -> None:
    """A slice that begins in the middle."""
    report = with_core(run, with_segment(), accessing(6, addrs(DEVICE + 4), LOAD_16, WAIT))
    assert "kernel scatter_add, which read 16 bytes at an address that is not a multiple of 16, at" in summary(report)
    told = evidence(report)
    assert (
        "thread (0, 0, 0) of block (2, 0, 0) read 16 bytes at 0x7f6000000004, which is not a multiple of 16; it is "
        "4 bytes into a live block of 4.0 MiB on cuda:0 (computed from the instruction and the registers)" in told
    )
    assert "allocated at train.py:12 in make" in told
    assert "multiples of 16" in advice(report) and ".clone()" in advice(report)
    access = next(p for p in report.processes if p.pid == 101).gpu_core.exceptions[0].access
    assert (access.kind, access.nbytes, access.addr, access.last_addr) == ("read", 16, "0x7f6000000004", None)


def test_an_aligned_address_explains_no_misalignment(run: Path) -> None:
    """Then another thread, or another instruction, did it."""
    report = with_core(run, with_segment(), accessing(6, addrs(DEVICE), LOAD_16, WAIT))
    assert "by kernel scatter_add at train.py:40" in summary(report) and "computed from" not in evidence(report)


def test_an_access_behind_a_block_names_the_distance(run: Path) -> None:
    """The first thread that left torch's memory."""
    core = accessing(14, addrs(DEVICE + 4 * MIB - 8, 4), STORE_4, EXIT)
    report = with_core(run, with_segment(), core)
    assert (
        "kernel scatter_add, which wrote 4 bytes right behind the end of a live block of 4.0 MiB on cuda:0"
        in summary(report)
    )
    assert "thread (2, 0, 0) of block (2, 0, 0) wrote 4 bytes at 0x7f6000400000" in evidence(report)


def test_an_access_inside_of_torchs_memory_explains_nothing(run: Path) -> None:
    """The driver has all of the segment: neither a live nor a freed block of it is an illegal address."""
    for freed in (False, True):
        core = accessing(14, addrs(DEVICE), STORE_4, EXIT)
        report = with_core(run / str(freed), with_segment(freed), core)
        assert "by kernel scatter_add at train.py:40" in summary(report) and "computed from" not in evidence(report)


def test_an_access_to_memory_that_was_given_back_names_who_freed_it(run: Path) -> None:
    """empty_cache() after the last reference."""
    core = accessing(14, addrs(DEVICE + 256), MASKED_4, COMPARE, WAIT)
    report = with_core(run, with_segment(freed=True, live=False), core)
    assert "kernel scatter_add, which read 4 bytes of a freed block of 4.0 MiB on cuda:0" in summary(report)
    told = evidence(report)
    assert "a thread of that warp read 4 bytes at an address from 0x7f6000000100 to 0x7f6000000130" in told
    assert "freed at train.py:20 in drop" in told
    assert "Keep a reference to the tensor that train.py:12 in make allocates" in advice(report)


def test_a_masked_access_of_which_only_some_threads_are_wrong_is_not_told(run: Path) -> None:
    """Those may be the ones that the mask left out."""
    core = accessing(14, addrs(DEVICE + 4 * MIB - 8, 4), MASKED_4, COMPARE, WAIT)
    assert "computed from" not in evidence(with_core(run, with_segment(), core))


def test_an_access_is_not_judged_without_the_devices_memory(run: Path) -> None:
    """Nothing is known to be torch's."""
    core = accessing(14, addrs(DEVICE), STORE_4, EXIT)
    assert "computed from" not in evidence(with_core(run, Box(pid=101, ppid=99), core))


def test_a_trap_is_no_exception_of_the_device(run: Path) -> None:
    """__trap() and assertions; the advice does not guess which."""
    warp = Warp([Lane(KERNEL_ADDR + 0x50)], active=1, broken=True)
    core = Core([warp], code=bytes(0x40) + instructions(TRAP, EXIT))
    report = with_core(run, with_segment(), core)
    assert "by kernel scatter_add, which ended itself by a trap" in summary(report)
    assert (
        "kernel scatter_add+0x40 ended itself by a trap (`__trap()` or a failed assertion) at 0x7f49c2e9c040, in 1 warp"
        in evidence(report)
    )
    assert "Read what an assertion printed, if one did" in advice(report)


def test_a_kernel_whose_warps_had_ended(run: Path) -> None:
    """No thread."""
    core = Core([Warp([Lane(KERNEL_ADDR)])], sm_exception=14, sm_pc=KERNEL_ADDR + 0xA0)
    told = evidence(with_core(run, with_segment(), core))
    assert 'kernel scatter_add+0xa0 met "warp illegal address" at 0x7f49c2e9c0a0, whose warps had ended' in told
    assert "first block" not in told


def test_a_core_dump_that_was_cut_off(run: Path) -> None:
    """The process did not wait for the driver."""
    path = faulting().write(run / "gpu-cores" / "node0.101.nvcudmp")
    core = faulting()
    core.content = lambda: path.read_bytes()[:600]  # type: ignore[method-assign]
    told = evidence(with_core(run, with_segment(), core))
    assert "it is cut off: the process ended before the driver had written all of it, or the disk was full" in told


# Who launched it: level ops


ASSERT = "CUDA error: device-side assert triggered"


def at(box: Box, line: int) -> Any:
    return box.code("step", s.SCRIPT, line)


def test_the_only_launch_that_was_not_over_is_named_with_its_memory(run: Path) -> None:
    """item() has waited for what was before it."""
    box = with_block()
    box.device_op("aten::mul", at(box, 20), [DEVICE]).device_op("aten::_local_scalar_dense", at(box, 21), [DEVICE])
    report = raised(run, box.device_op("aten::index_select", at(box, 30), [DEVICE]), ILLEGAL)
    assert "launched by aten::index_select at train.py:30 in step, met first at train.py:40 in step" in summary(report)
    assert "aten::index_select was given a block of 4.0 MiB, allocated at train.py:12" in evidence(report)
    assert "train.py:20" not in evidence(report)


def test_two_launches_that_were_not_over_are_both_suspects(run: Path) -> None:
    """Neither is said to be the one; what makes a view launches nothing."""
    box = with_block()
    box.device_op("aten::mul", at(box, 20), [DEVICE]).device_op("aten::view", at(box, 22), [DEVICE])
    report = raised(run, box.device_op("aten::add", at(box, 30), [DEVICE]), ILLEGAL)
    assert "launched by" not in summary(report)
    assert "may have been launched by aten::add at train.py:30 in step or aten::mul at train.py:20" in evidence(report)
    assert "train.py:22" not in evidence(report)
    assert "aten::add may have been the one, and was given a block of 4.0 MiB, allocated at train.py:12" in evidence(
        report
    )


def test_of_many_suspects_the_programs_own_kernel_is_told_first_with_its_memory(run: Path) -> None:
    """Torch's check more. At most two are told, and memory that was allocated later is another one's."""
    box = with_block()
    box.device_op("triton::scale", at(box, 20), [DEVICE])
    for line in (30, 31, 32):
        box.device_op("aten::add", at(box, line), [DEVICE + 8 * MIB])
    box.step(2)
    box.devices.alloc(DEVICE + 8 * MIB, MIB, at(box, 33), box.epoch)
    told = evidence(raised(run, box, ILLEGAL))
    assert "triton::scale may have been the one, and was given a block of 4.0 MiB, allocated at train.py:12" in told
    assert "train.py:33" not in told


def test_a_value_of_the_cpu_is_waited_for_by_nobody(run: Path) -> None:
    """item() of a tensor on the CPU, as optimizers call it for their steps."""
    box = with_block()
    box.device_op("aten::mul", at(box, 20), [DEVICE]).device_op("aten::_local_scalar_dense", at(box, 21))
    report = raised(run, box.device_op("aten::add", at(box, 30), [DEVICE]), ILLEGAL)
    assert "launched by" not in summary(report) and "train.py:20" in evidence(report)


def test_where_older_records_are_lost_no_launch_is_called_the_one(run: Path) -> None:
    """A ring keeps the last few hundred."""
    box = with_block()
    for _ in range(300):
        box.device_op("aten::mul", at(box, 20), [DEVICE])
    report = raised(run, box, ILLEGAL)
    assert "launched by" not in summary(report)
    assert "may have been launched by aten::mul at train.py:20" in evidence(report)


def test_an_assertion_fails_in_an_operator_that_checks(run: Path) -> None:
    """Of two that were not over."""
    box = with_block()
    box.device_op("aten::nll_loss_forward", at(box, 20), [DEVICE]).device_op("aten::mul", at(box, 30), [DEVICE])
    report = raised(run, box, ASSERT)
    assert "launched by aten::nll_loss_forward at train.py:20 in step" in summary(report)


INDEX = (
    "/pytorch/aten/src/ATen/native/cuda/IndexKernel.cu:111: operator(): block: [4,0,0], thread: [7,0,0] "
    'Assertion `-sizes[i] <= index && index < sizes[i] && "index out of bounds"` failed.'
)
INDEX_KERNEL = "_ZN2at6native24index_elementwise_kernelILi128ELi4EZNS0_16gpu_index_kernelEvEEvlT1_"


def test_the_words_of_an_assertion_name_condition_kernel_and_launch(run: Path) -> None:
    """As the driver prints them; only operators whose kernels have that assertion may have launched it."""
    box = with_block()
    box.device_op("aten::_index_put_impl_", at(box, 20), [DEVICE]).device_op(
        "aten::view", at(box, 20), kernel=INDEX_KERNEL
    )
    box.device_op("aten::nll_loss_forward", at(box, 30), [DEVICE])
    report = raised(run, box.kernel_assertion(INDEX), ASSERT)
    assert "an index in x[...] or x[...] = v is out of range for its dimension" in summary(report)
    assert "launched by aten::_index_put_impl_ at train.py:20 in step (kernel index_elementwise_kernel)" in summary(
        report
    )
    assert "failed at IndexKernel.cu:111, first in block (4, 0, 0), thread (7, 0, 0)" in evidence(report)
    assert "known as" not in evidence(report)
    assert "Print the shape of the indexed tensor" in advice(report)


IN_BLOCK = "block: [0,0,0], thread: [1,0,0] Assertion"
GATHER_KERNEL = "_ZN2at6native24vectorized_gather_kernelEv"


def test_an_assertion_of_the_forward_pass_is_of_no_operator_of_the_backward_pass(run: Path) -> None:
    """The function that the driver printed has the name of its pass."""
    text = f"/x/Loss.cu:245: nll_loss_forward_no_reduce_cuda_kernel: {IN_BLOCK} `t >= 0 && t < n_classes` failed."
    box = with_block()
    box.device_op("aten::nll_loss_forward", at(box, 20), [DEVICE], sequence_nr=7)
    box.device_op("aten::nll_loss_backward", box.node("NllLossBackward0", 7), [DEVICE])
    report = raised(run, box.kernel_assertion(text), ASSERT)
    assert "launched by aten::nll_loss_forward at train.py:20" in summary(report)
    assert "NllLossBackward0" not in evidence(report)


@pytest.mark.parametrize(("kernel", "other"), [(GATHER_KERNEL, False), (None, True), (INDEX_KERNEL, True)])
def test_a_kernel_with_an_assertion_of_its_own_has_no_other(run: Path, kernel: str | None, other: bool) -> None:
    """One that isn't known, or that runs functions with assertions, may have it."""
    text = f"/x/ScatterGatherKernel.cu:163: operator(): {IN_BLOCK} `idx_dim >= 0 && idx_dim < index_size` failed."
    box = with_block()
    box.device_op("aten::gather", at(box, 20), [DEVICE], kernel=kernel).device_op(
        "aten::scatter_", at(box, 30), [DEVICE]
    )
    report = raised(run, box.kernel_assertion(text), ASSERT)
    assert ("train.py:20" in evidence(report)) is other
    assert ("launched by aten::scatter_ at train.py:30" in summary(report)) is not other


def test_what_an_autograd_functions_backward_launched_has_its_line(run: Path) -> None:
    """The forward's is told with it; that of backward() itself is no launch's."""
    box = with_block()
    box.device_op("aten::mul", at(box, 20), [DEVICE], sequence_nr=7)
    box.device_op("aten::_local_scalar_dense", at(box, 21), [DEVICE])
    own = box.site(("Pick.backward", s.SCRIPT, 12), node="PickBackward", sequence_nr=7)
    box.device_op("aten::index_copy_", own, [DEVICE])
    said = "aten::index_copy_ at train.py:12 in Pick.backward, in the backward pass of train.py:20 in step"
    assert said in summary(raised(run, box, ASSERT))


def test_the_call_of_backward_is_not_a_line_that_launched(run: Path) -> None:
    """torch's nodes run below it."""
    box = with_block()
    box.device_op("aten::embedding", at(box, 20), [DEVICE], sequence_nr=7)
    box.device_op("aten::_local_scalar_dense", at(box, 21), [DEVICE])
    inner = ("_engine_run_backward", "/x/site-packages/torch/autograd/graph.py", 829)
    by = box.site(inner, ("step", s.SCRIPT, 25), node="EmbeddingBackward0", sequence_nr=7)
    box.device_op("aten::embedding_dense_backward", by, [DEVICE])
    assert "aten::embedding_dense_backward in EmbeddingBackward0, of train.py:20" in summary(raised(run, box, ASSERT))


GATHER = (
    "/pytorch/aten/src/ATen/native/cuda/IndexKernelUtils.cu:16: vectorized_gather_kernel: block: [2,0,0], thread: "
    '[0,0,0] Assertion `ind >=0 && ind < ind_dim_size && "vectorized gather kernel index out of bounds"` failed.'
)


def test_the_launch_of_the_kernel_that_asserted_is_the_one(run: Path) -> None:
    """Not another operator that may launch it, too, and of which no kernel is known."""
    box = with_block()
    box.device_op(
        "aten::embedding", at(box, 20), [DEVICE], kernel="_ZN2at6native24vectorized_gather_kernelILi16ElEEvPcS2_"
    )
    box.device_op("aten::embedding_dense_backward", at(box, 30), [DEVICE])
    report = raised(run, box.kernel_assertion(GATHER), ASSERT)
    assert "launched by aten::embedding at train.py:20" in summary(report)


def test_an_assertion_is_the_reason_of_what_a_library_returns_later(run: Path) -> None:
    """cuBLAS's own error has no word of it."""
    report = raised(
        run, with_block().kernel_assertion(INDEX), "CUDA error: CUBLAS_STATUS_INTERNAL_ERROR when calling x"
    )
    assert "device-side assert triggered, returned as CUBLAS_STATUS_INTERNAL_ERROR" in summary(report)


def test_an_assertion_of_other_code_is_quoted(run: Path) -> None:
    """Its meaning is not known."""
    text = "/home/me/kernels.cu:12: scale_rows: block: [0,0,0], thread: [1,0,0] Assertion `row < rows` failed."
    box = with_block()
    box.device_op("torch.cuda::scale_rows", at(box, 20), [DEVICE]).device_op("aten::index", at(box, 30), [DEVICE])
    report = raised(run, box.kernel_assertion(text), ASSERT)
    assert "triggered: `row < rows` in scale_rows, launched by torch.cuda::scale_rows at train.py:20" in summary(report)
    assert "Look at kernels.cu:12" in advice(report)


def test_a_line_that_only_looks_like_an_assertion_is_not_one(run: Path) -> None:
    """A damaged entry."""
    report = raised(run, with_block().kernel_assertion("Assertion `x"), ASSERT)
    found = finding(report, "cuda-error")
    assert found is not None and found.missing is not None
    assert "the line that it printed, if there is one, names it" in found.missing[0]


def test_a_launch_of_the_backward_pass_has_the_line_of_its_forward_pass(run: Path) -> None:
    """By the sequence number of autograd."""
    box = with_block()
    box.device_op("aten::embedding", at(box, 20), [DEVICE], sequence_nr=7)
    box.device_op("aten::_local_scalar_dense", at(box, 21), [DEVICE])
    box.device_op("aten::embedding_dense_backward", box.node("EmbeddingBackward0", 7), [DEVICE])
    report = raised(run, box, ASSERT)
    said = "aten::embedding_dense_backward in EmbeddingBackward0, of train.py:20 in step"
    assert said in summary(report)


@pytest.mark.parametrize(("freed_before", "state"), [(False, "live"), (True, "freed")])
def test_memory_is_shown_as_of_the_exception(run: Path, freed_before: bool, state: str) -> None:
    """What is freed while the process ends was there; what was gone before stays freed."""
    box = with_block()
    events = box.devices.order + freed_before
    box.devices.free(DEVICE, at(box, 60), box.epoch)
    box.exception(ERROR, ILLEGAL, [("step", s.SCRIPT, 40)], device_events=events).exit(1)
    launcher = {"child_pid": 101, "exit_code": 1, "ended_mono_ns": box.now}
    (process,) = s.load(run, box, launcher=launcher).processes
    assert [item.state for item in process.snapshot.storages.on_devices()] == [state]


# missing-stream-wait


SIDE = 0x55D0
RACE = "missing-stream-wait"


def written_on_the_side(box: Box) -> Box:
    """A copy on another stream, which the default stream has not waited for."""
    return box.device_op("aten::copy_", at(box, 20), [DEVICE, DEVICE + 8 * MIB], stream=SIDE)


def test_memory_that_another_stream_may_still_write_is_told_with_both_lines(run: Path) -> None:
    """No wait lies between them."""
    box = written_on_the_side(with_block())
    report = raised(run, box.device_op("aten::mm", at(box, 30), [DEVICE]), "the loss is NaN", "ValueError")
    found = finding(report, RACE)
    assert found is not None and found.confidence == "possible"
    assert found.summary is not None
    assert (
        "on the default stream of cuda:0 at train.py:30 in step that stream 0x55d0 of cuda:0 may still" in found.summary
    )
    assert "have written, at train.py:20 in step" in found.summary
    assert verdict(report) == ("python-exception", "certain")


def test_memory_that_another_stream_may_still_read_is_not_to_be_written(run: Path) -> None:
    """The reverse."""
    box = with_block()
    box.device_op("aten::mm", at(box, 20), [DEVICE], stream=SIDE)
    report = raised(run, box.device_op("aten::zero_", at(box, 30), [DEVICE]), "the loss is NaN", "ValueError")
    found = finding(report, RACE)
    assert found is not None and "may still have read, at train.py:20" in (found.summary or "")


@pytest.mark.parametrize("times", [1, 2])
def test_memory_that_was_freed_and_used_again_needs_record_stream(run: Path, times: int) -> None:
    """A batch that a side stream loads; where it was allocated once, a wait is what lacks."""
    box = Box(pid=101, ppid=99)
    box.devices.segment(DEVICE, 20 * MIB)
    for _ in range(times):
        box.devices.alloc(DEVICE, 4 * MIB, at(box, 20), box.epoch, stream=SIDE)
        if times > 1:
            box.devices.free(DEVICE, at(box, 25), box.epoch)
    report = raised(run, written_on_the_side(box.device_op("aten::mean", at(box, 30), [DEVICE])), "no", "ValueError")
    found = finding(report, RACE)
    assert found is not None and found.advice is not None
    assert ("record_stream" in found.advice) == (times > 1)
    assert ("wait_stream" in found.advice) == (times == 1)


def test_memory_with_record_stream_is_not_used_again_too_early(run: Path) -> None:
    """The allocator waits."""
    box = with_block()
    box.device_op("aten::record_stream", at(box, 29), [DEVICE]).device_op("aten::mean", at(box, 30), [DEVICE])
    assert finding(raised(run, written_on_the_side(box), "no", "ValueError"), RACE) is None


@pytest.mark.parametrize("how", ["stream", "event", "host", "device", "value", "copy"])
def test_a_wait_between_two_streams_puts_them_in_order(run: Path, how: str) -> None:
    """By whatever means; of a value and a copy to the host it is the host that waits."""
    box = written_on_the_side(with_block())
    if how == "stream":
        box.stream("waits for stream", 0, other=SIDE)
    elif how == "event":
        box.stream("recorded", SIDE, event=0x77).stream("waits for event", 0, event=0x77)
    elif how == "host":
        box.stream("host waited", SIDE)
    elif how == "device":
        box.stream("host waited for device")
    else:
        name = "aten::_local_scalar_dense" if how == "value" else "aten::copy_"
        box.device_op(name, at(box, 25), [DEVICE + 8 * MIB], stream=SIDE)
    report = raised(run, box.device_op("aten::mm", at(box, 30), [DEVICE]), "the loss is NaN", "ValueError")
    assert finding(report, RACE) is None


def test_what_distributed_data_parallel_launches_is_no_race(run: Path) -> None:
    """Its streams wait in C++, where no record is made."""
    box = with_block()
    torch_file = "/usr/lib/python3/site-packages/torch/nn/parallel/distributed.py"
    inside = box.site(("_sync_params", torch_file, 900), ("step", s.SCRIPT, 20))
    box.device_op("aten::copy_", inside, [DEVICE, DEVICE + 8 * MIB], stream=SIDE)
    report = raised(run, box.device_op("aten::mm", at(box, 30), [DEVICE]), "the loss is NaN", "ValueError")
    assert finding(report, RACE) is None


def test_the_value_of_a_tensor_on_the_cpu_puts_no_streams_in_order(run: Path) -> None:
    """Nothing of the device was waited for."""
    box = written_on_the_side(with_block())
    box.device_op("aten::_local_scalar_dense", at(box, 25), stream=SIDE)
    report = raised(run, box.device_op("aten::mm", at(box, 30), [DEVICE]), "the loss is NaN", "ValueError")
    assert finding(report, RACE) is not None


def test_an_event_that_was_recorded_before_the_write_orders_nothing(run: Path) -> None:
    """Recorded too early."""
    box = with_block().stream("recorded", SIDE, event=0x77)
    written_on_the_side(box).stream("waits for event", 0, event=0x77)
    report = raised(run, box.device_op("aten::mm", at(box, 30), [DEVICE]), "the loss is NaN", "ValueError")
    assert finding(report, RACE) is not None


def test_two_streams_may_read_the_same_memory(run: Path) -> None:
    """Neither writes; and a backward pass waits in C++."""
    box = with_block()
    box.device_op("aten::mm", at(box, 20), [DEVICE], stream=SIDE).device_op("aten::mul", at(box, 30), [DEVICE])
    box.device_op("aten::add_", box.node("AccumulateGrad"), [DEVICE])
    assert finding(raised(run, box, "the loss is NaN", "ValueError"), RACE) is None


def test_a_wait_of_the_host_for_an_event_is_no_wait_for_a_stream(run: Path) -> None:
    """Which work was before that event is not followed: what ran stays suspected."""
    box = with_block()
    box.device_op("aten::mul", at(box, 20), [DEVICE]).stream("host waited", 0, event=0x77)
    report = raised(run, box.device_op("aten::add", at(box, 30), [DEVICE]), ILLEGAL)
    assert "launched by" not in summary(report) and "train.py:20" in evidence(report)
