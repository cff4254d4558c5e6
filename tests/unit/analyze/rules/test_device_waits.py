"""standstill: a time limit ended a process that waited for its CUDA device."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from pytracer.analyze.engine import build_report
from pytracer.report.job import Report
from tests.support import scenarios as s
from tests.support.deaths import advice, evidence, summary, verdict
from tests.support.standing import TIMEOUT, stopped
from tests.support.synth import Box

CUDA, CUDART, C10 = "/usr/lib/libcuda.so.1", "/opt/cuda/libcudart.so.13", f"{s.TORCH}/lib/libc10_cuda.so"
SIDE = 0x55D0
SYNCHRONIZES = [(None, CUDA), ("cuCtxSynchronize_v2", CUDA), ("cudaDeviceSynchronize", CUDART), ("f", C10)]
QUEUE = '''\
import torch

SOURCE = """
extern "C" __global__ void scale(float* items) {
    while (*items < 1.0f) { *items *= 2.0f; }
}
extern "C" __global__ void drain(const int* ready, float* items) {
    volatile const int* flag = ready;
    while (*flag == 0) {
    }
}
"""


def main():
    ready = torch.zeros(1, dtype=torch.int32, device="cuda")
    kernel = torch.cuda._compile_kernel(SOURCE, "drain")
    kernel(args=[ready, torch.ones(4, device="cuda")])
    torch.cuda.synchronize()
'''


def waiting(
    run: Path,
    box: Box,
    *others: Box,
    busy_s: float = 20,
    file: str = s.SCRIPT,
    line: int = 41,
    native: Sequence[tuple[str | None, str]] = SYNCHRONIZES,
) -> Report:
    """Process 101 was in this call when a time limit ended it, 60 s after its start."""
    since = box.now
    box = stopped(box, [("main", file, line)], [(image, 0x10) for _, image in native])
    box.devices.stream(0, 2, since_ns=since)
    root = Box(pid=90, ppid=80, argv=TIMEOUT).at(60_010).wait(101, signal=15).exit(124)
    job = s.load(run, root, box, *others)
    (process,) = (item for item in job.processes if item.snapshot.pid == 101)
    ending = process.snapshot.ending
    assert ending is not None
    frames = tuple(replace(frame, function=name) for frame, (name, _) in zip(ending.native_stack, native, strict=False))
    streams = tuple(
        replace(item, since_ns=ending.mono_ns - int(busy_s * 1e9), asked_ns=ending.mono_ns - 500_000_000)
        for item in process.snapshot.cuda_streams
    )
    snapshot = replace(process.snapshot, ending=replace(ending, native_stack=frames), cuda_streams=streams)
    changed = replace(process, snapshot=snapshot)
    return build_report(replace(job, processes=tuple(changed if item is process else item for item in job.processes)))


def process() -> Box:
    return Box(pid=101, ppid=90).versions(torch="2.13.0", cuda="13.0")


def test_a_wait_for_a_busy_device_is_the_cause(run: Path) -> None:
    """Nothing was recorded for almost a minute."""
    report = waiting(run, process())
    assert verdict(report) == ("hang", "likely")
    assert "waited for the CUDA device at train.py:41 in main, while the default stream of cuda:0 was busy" in summary(
        report
    )
    assert "raise the time limit" in advice(report) and "--level ops" in advice(report)
    assert "cuCtxSynchronize" not in summary(report) + advice(report)


def test_a_wait_that_has_just_begun_is_work(run: Path) -> None:
    """The look-alike: a training step ends in item(), and its device is always busy."""
    report = waiting(run, process().at(58_000).mark("step"))
    assert verdict(report)[0] == "external-kill"
    assert "it waited for the CUDA device at train.py:41 in main" in summary(report)
    assert "loops" not in advice(report)


def test_allocations_without_a_time_may_be_progress(run: Path) -> None:
    """The look-alike: a loop whose lines are all known allocates without a new entry."""
    box = process()
    for number in range(40):
        box.live(0x7000_0000 + 4096 * number, 64, box.code("step", s.SCRIPT, 20))
    assert verdict(waiting(run, box))[0] == "external-kill"


def test_a_device_that_waits_for_other_ranks_is_no_kernel_of_the_program(run: Path) -> None:
    """The look-alike: NCCL's kernel ends when all ranks have entered the collective."""
    report = waiting(run, process().collective("allreduce", state="started"))
    assert "waited for the CUDA device" not in summary(report) or verdict(report)[0] == "external-kill"


def test_a_loop_of_the_runtime_is_a_wait_only_in_a_call_that_waits(run: Path) -> None:
    """The look-alike: libcuda compiles a module."""
    report = waiting(run, process(), native=[(None, CUDA), ("cuModuleLoadData", CUDA), ("f", C10)])
    assert verdict(report)[0] == "external-kill"


CREATES = [(None, CUDA), ("cuStreamCreateWithPriority", CUDA), ("cudaStreamCreateWithPriority", CUDART), ("f", C10)]


def test_any_call_of_the_driver_may_wait_for_a_device_that_stays_busy(run: Path) -> None:
    """Nothing was recorded meanwhile; which call it was is said, not that it waits."""
    report = waiting(run, process(), native=CREATES)
    assert verdict(report) == ("hang", "likely")
    assert "was in cuStreamCreateWithPriority of the CUDA driver at train.py:41 in main, while the default" in summary(
        report
    )


@pytest.mark.parametrize("late", [False, True])
def test_a_call_of_the_driver_alone_is_work(run: Path, late: bool) -> None:
    """The look-alikes: no stream is known to be busy; or something was recorded just before."""
    box = process().at(58_000).mark("step") if late else process()
    report = waiting(run, box, native=CREATES, busy_s=20 if late else 0)
    assert verdict(report)[0] == "external-kill" and "CUDA driver" not in summary(report)


def test_a_collective_of_gloo_waits_on_the_host(run: Path) -> None:
    """It copies from the device first, and there this rank stood; where the other one was is said."""
    box = process().rank(1)
    group = box.group_seen()
    box.collective("allreduce_", state="scheduled", group=group)
    other = Box(pid=102, ppid=90).rank(0)
    other.collective("allreduce_", state="started", group=other.group_seen())
    other = stopped(other, [("main", s.SCRIPT, 41)])
    report = waiting(run, box, other, native=CREATES)
    assert verdict(report) == ("hang", "likely") and summary(report).startswith("Rank 1 was in cuStreamCreate")
    assert "; meanwhile rank 0 was in all_reduce" in summary(report)


def test_a_collective_of_nccl_waits_on_the_device(run: Path) -> None:
    """The look-alike: its kernel keeps the device busy until all ranks have entered it."""
    box = process().rank(1)
    box.collective("allreduce_", state="scheduled", group=box.group_seen(backend="nccl"))
    assert verdict(waiting(run, box, native=CREATES))[0] == "external-kill"


def test_an_idle_device_makes_it_only_possible(run: Path) -> None:
    """Another stream may be busy, which nobody asks."""
    report = waiting(run, process(), busy_s=0)
    assert verdict(report) == ("hang", "possible") and "was busy" not in summary(report)


def test_the_first_launch_that_is_not_known_to_be_over_is_named(run: Path) -> None:
    """At level ops, of each stream; what a wait has covered is over."""
    box = process()
    box.device_op("aten::mul", box.code("step", s.SCRIPT, 20), [0x7F00]).stream("host waited for device")
    box.device_op("torch.cuda::gate", box.code("upload", s.SCRIPT, 29), [0x7F00], stream=SIDE)
    box.device_op("aten::mean", box.code("step", s.SCRIPT, 31), [0x7F00])
    report = waiting(run, box)
    assert "the first launch that is not known to be over is torch.cuda::gate at train.py:29 in upload" in summary(
        report
    )
    assert "aten::mean at train.py:31 in step" in evidence(report) and "train.py:20" not in evidence(report)
    assert "--level ops" not in advice(report)


@pytest.mark.parametrize("ops", [False, True])
def test_a_kernel_that_waits_by_its_text_is_named_with_what_it_reads(run: Path, ops: bool) -> None:
    """Its loop does nothing else; the one above it does."""
    script = run / "queue.py"
    script.write_text(QUEUE)
    os.utime(script, (0, 0))
    box = process()
    if ops:
        box.device_op("torch.cuda::drain", box.code("main", str(script), 18), [0x7F00])
    report = waiting(run, box, file=str(script), line=19)
    assert verdict(report) == ("hang", "likely")
    assert (
        "the kernel drain, which waits in `while (*flag == 0)` (queue.py:9), and is launched at queue.py:18,"
        in summary(report)
    )
    assert "who writes `ready` (queue.py:16: `ready = torch.zeros(1" in advice(report)


def test_a_kernel_that_was_not_launched_last_is_not_named(run: Path) -> None:
    """The look-alike: the launch that is not over is another one."""
    script = run / "queue.py"
    script.write_text(QUEUE)
    os.utime(script, (0, 0))
    box = process()
    box.device_op("aten::mul", box.code("main", str(script), 18), [0x7F00])
    report = waiting(run, box, file=str(script), line=19)
    assert "the kernel drain" not in summary(report) and "aten::mul at queue.py:18" in summary(report)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("while (atomicCAS(flags + index(threadIdx.x), 0, 1) != 0) ;", True),
        ("while (*flags == 0) { __nanosleep(100); }", True),
        ("int i = 0; while (i++ < 1000000) ;", False),
        ("int old = *flags; do { old = atomicAdd(flags, 1); } while (old < 100);", False),
        ("// while (*flags == 0) ;\n", False),
        ("*flags = 1; } __device__ void hold(int* flags) { while (*flags == 0) ;", False),
    ],
)
def test_only_a_loop_that_changes_nothing_waits(run: Path, body: str, said: bool) -> None:
    """Of the kernel itself."""
    script = run / "queue.py"
    source = f'"""__global__ void drain(int* flags) {{ {body} }}"""'
    script.write_text(
        f'SOURCE = {source}\nkernel = torch.cuda._compile_kernel(SOURCE, "drain")\nkernel(args=[flags])\n'
    )
    os.utime(script, (0, 0))
    report = waiting(run, process(), file=str(script), line=3)
    assert ("the kernel drain" in summary(report)) == said


def test_a_barrier_of_the_grid_is_told_by_what_it_counts(run: Path) -> None:
    """Its own blocks wait for each other: what it waits for, where that is made, and the launch."""
    script = run / "queue.py"
    script.write_text(
        'SOURCE = """\n__global__ void mix(int* arrived, int blocks) {\n    atomicAdd(arrived, 1);\n'
        '    while (atomicAdd(arrived, 0) < blocks) {\n    }\n}\n"""\n'
        'kernel = torch.cuda._compile_kernel(SOURCE, "mix")\narrived = torch.zeros(1)\nblocks = rows // 256\n'
        "kernel(grid=(7, 1, 1), args=[arrived, blocks])\n"
    )
    os.utime(script, (0, 0))
    report = waiting(run, process(), file=str(script), line=11)
    assert "which waits in `while (atomicAdd(arrived, 0) < blocks)` (queue.py:4)" in summary(report)
    assert (
        "until `arrived` (queue.py:9: `arrived = torch.zeros(1)`) has reached `blocks` (queue.py:10: "
        "`blocks = rows // 256`), which the kernel itself writes by `atomicAdd(arrived, 1)`: compare that number with "
        "the grid of the launch (line 11)" in advice(report)
    )


@pytest.mark.parametrize(
    ("loop", "lock"), [("atomicCAS(held, 0, 1) != 0", True), ("atomicCAS(held, 0, 0) != 0", False)]
)
def test_a_lock_that_threads_of_a_warp_take_is_told_as_one(run: Path, loop: str, lock: bool) -> None:
    """The look-alike only reads by atomicCAS."""
    script = run / "queue.py"
    script.write_text(
        f'SOURCE = """\n__global__ void put(int* held) {{\n    while ({loop}) {{\n    }}\n'
        '    atomicExch(held, 0);\n}\n"""\n'
        'kernel = torch.cuda._compile_kernel(SOURCE, "put")\nheld = torch.zeros(1)\nkernel(args=[held])\n'
    )
    os.utime(script, (0, 0))
    report = waiting(run, process(), file=str(script), line=10)
    assert ("as a lock, which `atomicExch(held, 0)` gives back" in advice(report)) == lock
    assert ("makes no room for another" in advice(report)) != lock


@pytest.mark.parametrize("ops", [False, True])
def test_a_kernel_of_an_extension_is_told_by_the_function_that_launches_it(run: Path, ops: bool) -> None:
    """Its own launch is in the C++ text; the line of the program calls the function."""
    script = run / "queue.py"
    script.write_text(
        'SOURCE = """\n__global__ void hold(float* out, const int* gate) {\n'
        "    while (atomicAdd((int*)gate, 0) == 0) {}\n"
        "}\nvoid keep(torch::Tensor gate, torch::Tensor out) {\n    if (out.numel() > 0) {\n"
        '        hold<<<1, 32>>>(out.data_ptr<float>(), gate.data_ptr<int>());\n    }\n}\n"""\n'
        'ext = load_inline(name="ext", cpp_sources=HEAD, cuda_sources=SOURCE, functions=["keep"])\n'
        'closed = torch.zeros(1, dtype=torch.int32, device="cuda")\next.keep(closed, out)\n'
    )
    os.utime(script, (0, 0))
    box = process()
    if ops:
        box.device_op("aten::mul", box.code("main", str(script), 11), [0x7F00])
    report = waiting(run, box, file=str(script), line=12)
    assert "the kernel hold, which waits in `while (atomicAdd((int*)gate, 0) == 0)` (queue.py:3)" in summary(report)
    assert "is launched at queue.py:13" in summary(report)
    assert "who writes `closed` (queue.py:12: `closed = torch.zeros(1" in advice(report)


def test_a_kernel_of_triton_that_waits_is_named(run: Path) -> None:
    """`while ...: pass`."""
    script = run / "queue.py"
    script.write_text(
        "@triton.jit\ndef update(lock, out):\n    while tl.atomic_cas(lock, 0, 1) == 1:\n        pass\n"
        "locks = torch.ones(4)\nupdate[(8,)](locks, out)\n"
    )
    os.utime(script, (0, 0))
    report = waiting(run, process(), file=str(script), line=6)
    assert "the kernel update, which waits in `while tl.atomic_cas(lock, 0, 1) == 1` (queue.py:3)" in summary(report)
    assert "who writes `locks` (queue.py:5: `locks = torch.ones(4)`)" in advice(report)


def test_a_rank_that_others_wait_for_stood_in_its_device(run: Path) -> None:
    """It never entered the collective: the report names it by what it waited for."""
    box = process().rank(1)
    group = box.group_seen()
    box.group("0", [0, 1]).collective("allreduce_", state="completed", group=group)
    other = Box(pid=102, ppid=90).rank(0)
    mine = other.group("0", [0, 1]).group_seen()
    other.collective("allreduce_", state="completed", group=mine).collective("allreduce_", state="started", group=mine)
    report = waiting(run, box, stopped(other, [("main", s.SCRIPT, 41)]))
    assert verdict(report)[0] == "missing-rank"
    assert (
        "when it ended, rank 1 waited for the CUDA device at train.py:41 in main, while the default stream of cuda:0 "
        "was busy whenever it was asked" in summary(report)
    )
    assert "raise the time limit" in advice(report)
