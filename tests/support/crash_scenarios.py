"""Single processes whose crash leaves every kind of data; see `scenarios.py`."""

from __future__ import annotations

from pathlib import Path

from pytracer.decode.types.snapshot import Job
from tests.support import scenarios as s
from tests.support.synth import Box
from tests.support.synth_threads import OtherThread

GOMP = f"{s.TORCH}/lib/libgomp-98df74fd.so.1"
WEIGHT = 0x7F50_0000_0000
SCRATCH = 0x7F60_0000_0000
STACK = (0x7FFC_0000_0000, 0x7FFC_0080_0000)
SP = STACK[0] + 0x1000


def terminated(run: Path) -> Job:
    """An exception leaves a raw thread while others wait; registers point at a weight and a scratch buffer."""
    box = s.rank(0).thread(555, "loader", pthread=0x7000_0555)
    box.at(10).alloc(WEIGHT, 4096).later(1).module("model", [{"fqn": "layer.weight", "addr": WEIGHT, "nbytes": 4096}])
    box.alloc(SCRATCH, 256 << 10).at(500).cpp_exception("std::runtime_error", "shape mismatch: 8 != 16", tid=555)
    waiting: list[tuple[str | None, int]] = [(s.LIBC, 0x7700), (s.PYTHON, 0x5500)]
    worker: list[tuple[str | None, int]] = [(GOMP, 0x100), (GOMP, 0x200), (s.LIBC, 0x9000)]
    words = b"".join(word.to_bytes(8, "little") for word in (0, WEIGHT + 8, 0x41424344, box.bias(s.LIBC) + 0x9000))
    box.crash(
        signal=6, code=-6, tid=555, sender_pid=101, python_matched=False, stack=STACK,
        native=[(s.LIBC, 0x3400), (s.LIBC, 0x3300), (s.VICTIM, 0x4400), (s.VICTIM, 0x4500), (s.VICTIM, 0x1100)],
        registers={"rdi": WEIGHT + 64, "rsi": SCRATCH, "rbx": SCRATCH + 8, "rsp": SP, "rbp": SP + 0x40},
        memory=[("rsp", SP, SP - 8, bytes(8) + words), ("rdi", WEIGHT + 64, WEIGHT + 60, b"tensor data\0\1\2\3\4\xff")],
        loaded=[GOMP, s.PYTHON], build_ids={s.LIBC: b"\xab" * 20}, other_python={box.threads[0].pthread: s.BACKWARD},
        mappings=[(0x5555_0000_0000, 0x5555_0001_0000, "r-xp", 0, s.PYTHON)],
        threads=[
            OtherThread(603, "python", worker, syscall=202),
            OtherThread(101, "python", waiting, pthread=box.threads[0].pthread, syscall=232),
            OtherThread(601, "python", worker, syscall=202),
            OtherThread(602, "python", worker, syscall=202),
            OtherThread(700, "pt_gloo_runloop", state=1, complete=0),
        ],
        threads_how=1, threads_total=7,
    )  # fmt: skip
    return s.load(run, box)


def overflow(run: Path) -> Job:
    """Endless mutual recursion on the main thread: 128 frames, a gap, the outermost 32."""
    cycle: list[tuple[str | None, int]] = [(s.VICTIM, 0x1100), (s.VICTIM, 0x2500)]
    head: list[tuple[str | None, int]] = [(s.LIBC, 0x8800), *cycle * 64][:128]
    tail: list[tuple[str | None, int]] = [*cycle * 15, (s.PYTHON, 0x5500), (s.LIBC, 0x9000)]
    box = Box(pid=101, ppid=99, argv=("python", "train.py")).at(500)
    box.crash(
        addr=STACK[0] - 8, stack=STACK, registers={"rsp": STACK[0] - 8, "trapno": 14}, error_code=6, code_bytes=b"\x53",
        native=head + tail, native_total=24834, python=s.BACKWARD[:1],
        mappings=[(STACK[0] - 0x1000, STACK[0], "---p", 0, ""), (*STACK, "rw-p", 0, "[stack]")],
    )  # fmt: skip
    return s.load(run, box)


def ended_by_name(run: Path) -> Job:
    """A process with a long command line sends SIGABRT."""
    box = Box(pid=101, ppid=99, argv=("python", "train.py")).at(500)
    command = ["timeout", "--signal=ABRT", "--kill-after=10", "3600", "python", "/home/user/job/train.py", "--epochs=3"]
    box.crash(signal=6, code=0, sender_pid=98, sender_command=command, python=s.BACKWARD[:1], native=s.NATIVE[:2])
    return s.load(run, box)


def heap_damage(run: Path) -> Job:
    """glibc aborts with a message about heap corruption."""
    box = Box(pid=101, ppid=99, argv=("python", "train.py")).at(500)
    box.crash(
        signal=6, code=-6, sender_pid=101, abort_text="free(): invalid pointer", python=s.BACKWARD[:1],
        native=[(s.LIBC, 0x3400), (s.LIBC, 0x3300), (s.LIBC, 0x5600), (s.VICTIM, 0x1100)],
    )  # fmt: skip
    return s.load(run, box)
