"""No rule raises for any crash data: the reader passes on what a dying process wrote."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from pytracer.analyze.engine import CONFIDENCES, build_report
from pytracer.analyze.where import explain_addresses
from pytracer.decode.types.journal import CppException, Fact
from pytracer.decode.types.snapshot import Job, LoadedImage, Mapping, MemoryBlock, NativeFrame, PythonFrame
from pytracer.render.text import render_text
from pytracer.render.where import render_where
from tests.support import scenarios as s
from tests.support.synth import Box

ROUNDS = 60
SIGNALS = (4, 5, 6, 7, 8, 11, 31, 15, 99)
CODES = (0, 1, 2, 3, 4, 5, 8, 128, -6, 77)
ADDRESSES = (0, 8, 0x331, 0x7F00_0000_0000, 0x7F00_0000_0FF8, 0x7F50_0000_1000, 1 << 52, (1 << 64) - 1)
CODE = (
    b"",
    b"\xc3",
    b"\x0f\x0b",
    b"\xf7\xf9",
    b"\xff\xd0",
    b"\x62",
    b"\xc4\xe2",
    b"\x66",
    b"\x48\x8b\x87\xb0\0\0\0",
    b"\xf3\x0f\x10\x04\x8f",
)
FUNCTIONS = (None, "", "abort", "free", "std::terminate()", "_PyEval_EvalFrameDefault", "operator<<(", "pthread_exit")
IMAGES = (None, "", "/usr/lib/libc.so.6", "/x/libgomp.so.1", "/y/libgomp.so.1", "/z/libtorch_python.so", "/w/libc10.so")
TEXTS = (None, "", "free(): invalid pointer", "a: b: Assertion `", "*** stack smashing detected ***", "\n\n")
PATHS = ("", "/", "/dev/shm/x (deleted)", "/dev/nvidia0", "/memfd:a (deleted)", "[stack]", "/x/libgomp.so.1", "[heap]")
PERMISSIONS = ("rw-p", "---p", "r-xp", "r--s")
FACTS = (CppException(tid=101, type="", what=""), CppException(tid=101, type="E", what="w"))


def odd(job: Job, seed: int) -> Job:
    """The job with every field of its crash drawn from odd values."""
    draw = random.Random(seed)
    process = job.processes[0]
    crash = process.snapshot.crash
    assert crash is not None
    mappings = tuple(
        Mapping(addr & ~4095, (addr & ~4095) + draw.choice((4096, 1 << 30)), draw.choice(PERMISSIONS), 0,
                draw.choice(PATHS))
        for addr in draw.sample(ADDRESSES, 4)
    )  # fmt: skip
    frames = tuple(
        NativeFrame(draw.choice(ADDRESSES), draw.choice(IMAGES), draw.choice((None, 16)), None,
                    draw.choice(("exact", "unwound", "scanned")), draw.choice(FUNCTIONS))
        for _ in range(draw.choice((0, 1, 3, 130)))
    )  # fmt: skip
    crash = replace(
        crash,
        signal=draw.choice(SIGNALS),
        code=draw.choice(CODES),
        fault_addr=draw.choice(ADDRESSES),
        pc=draw.choice(ADDRESSES),
        sp=draw.choice(ADDRESSES),
        sender_pid=draw.choice((None, 0, 101, 7)),
        sender_command=draw.choice(((), ("",), ("kill", "-6"))),
        registers=dict.fromkeys(draw.choice(((), ("rax", "rcx", "rdx", "rdi", "trapno"))), draw.choice((0, 14))),
        error_code=draw.choice((None, 0, 7, 20)),
        stack=draw.choice((None, (0, 0), (0x7F00_0000_1000, 0x7F00_0080_0000))),
        code_bytes=draw.choice(CODE),
        native_stack=frames,
        native_total=draw.choice((0, len(frames), 1 << 40)),
        native_gap=draw.choice((0, 5)),
        native_tail=draw.choice((0, min(2, len(frames)))),
        python_stack=(PythonFrame("f", "f.py", None),) * draw.choice((0, 1, 9)),
        mappings=mappings,
        abort_text=draw.choice(TEXTS),
        file_nbytes=draw.choice((None, 0, 1 << 40)),
        file_room=draw.choice((None, 0, 1 << 40)),
        file_system=draw.choice((None, 0x0102_1994, 0x9584_58F6)),
        memory=(MemoryBlock("rsp", draw.choice(ADDRESSES), draw.choice(ADDRESSES), b"\x01" * draw.choice((0, 7, 64))),),
        images=tuple(LoadedImage(path or "", 0, 1 << 47, 0, None) for path in IMAGES[: draw.choice((0, 7))]),
    )  # fmt: skip
    facts = tuple(Fact(crash.mono_ns - 1, 1, "CPP_EXCEPTION", data) for data in FACTS[: draw.choice((0, 1, 2))])
    snapshot = replace(process.snapshot, crash=crash, facts=process.snapshot.facts + facts)
    return replace(job, processes=(replace(process, snapshot=snapshot), *job.processes[1:]))


@pytest.mark.quick(3)
@pytest.mark.parametrize("first", range(0, 600, ROUNDS))
def test_every_odd_crash_has_a_verdict(run: Path, first: int) -> None:
    """One verdict with a class and a confidence, and a text of it."""
    job = s.load(run, Box(pid=101, ppid=99).alloc(0x7F50_0000_0000, 8192).at(500).crash(native=s.NATIVE[:2]))
    for seed in range(first, first + ROUNDS):
        crashed = odd(job, seed)
        report = build_report(crashed)
        verdict = report.verdict
        assert verdict is not None and verdict.class_ and verdict.summary, seed
        assert verdict.confidence in CONFIDENCES, seed
        assert verdict.class_ != "unknown" or verdict.confidence == "unknown", seed
        assert all(item.summary and "None" not in item.summary for item in report.findings or []), seed
        assert render_text(report)
        asked = explain_addresses(crashed, [*ADDRESSES, 0x7F50_0000_0010])
        assert all(item.addr for item in asked.addresses or []) and render_where(asked), seed
