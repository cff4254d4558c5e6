"""A process that died in a given way, decoded, as the rules get it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from pytracer.analyze.engine import build_report
from pytracer.decode.types.journal import CppException, Fact
from pytracer.decode.types.snapshot import Crash, FrameFound, Job, LoadedImage, MemoryBlock, NativeFrame, Process
from pytracer.report.job import Finding, Report
from tests.support import scenarios as s
from tests.support.report_schema import validated
from tests.support.synth import Box

PID = 101
PROGRAM = (0x5555_0000_0000, 0x5555_0001_0000, "r-xp", 0, s.PYTHON)
LIBC_SO = "/usr/lib/x86_64-linux-gnu/libc.so.6"
STDCPP = "/usr/lib/x86_64-linux-gnu/libstdc++.so.6"
TORCH_PYTHON = f"{s.TORCH}/lib/libtorch_python.so"
Stack = Sequence[tuple[str | None, str | None] | tuple[str | None, str | None, FrameFound]]
_OF_CRASH = {item.name for item in fields(Crash)} - {"signal", "code", "pc", "stack", "registers", "mappings"}


def died(
    run: Path,
    *others: Box,
    box: Box | None = None,
    stack_of: Stack | None = None,
    cpp_exceptions: Sequence[CppException] = (),
    launcher: Mapping[str, Any] | None = None,
    **how: Any,
) -> Report:
    """The report about process 101, which died in this way.

    `stack_of`: native frames as (image, function[, found]), innermost first. `cpp_exceptions`: recorded right before.
    `how`: what `Box.crash` takes, and fields of `Crash`.
    """
    of_crash = {name: how.pop(name) for name in list(how) if name in _OF_CRASH and name != "python_matched"}
    how = {"python": s.BACKWARD[:1], "native": s.NATIVE[:2], "mappings": [PROGRAM], **how}
    box = box or Box(pid=PID, ppid=99)
    job = s.load(run, box.at(500).crash(**how), *others, launcher=launcher)
    return validated(build_report(_completed(job, box.pid, of_crash, stack_of, cpp_exceptions)))


def _completed(
    job: Job, pid: int, of_crash: Mapping[str, Any], stack_of: Stack | None, cpp_exceptions: Sequence[CppException]
) -> Job:
    def complete(process: Process) -> Process:
        snapshot = process.snapshot
        if snapshot.pid != pid or snapshot.crash is None:
            return process
        crash = replace(snapshot.crash, **of_crash)
        if stack_of is not None:
            frames = tuple(_frame(number, crash.pc, *item) for number, item in enumerate(stack_of))
            total = crash.native_total if "native_total" in of_crash else len(frames)
            crash = replace(crash, native_stack=frames, native_total=total)
        noted = tuple(Fact(crash.mono_ns - 1000, 1, "CPP_EXCEPTION", data) for data in cpp_exceptions)
        return replace(process, snapshot=replace(snapshot, crash=crash, facts=snapshot.facts + noted))

    return replace(job, processes=tuple(complete(process) for process in job.processes))


def _frame(number: int, pc: int, image: str | None, function: str | None, found: FrameFound = "unwound") -> NativeFrame:
    pc = pc if number == 0 else 0x7000_0000_0000 + number
    return NativeFrame(pc, image, 0x1000 + number if image else None, None, found if number else "exact", function)


def memory(addr: int, *words: int, register: str = "rsp") -> MemoryBlock:
    """A recorded block of memory, given as words."""
    return MemoryBlock(register, addr, addr, b"".join(word.to_bytes(8, "little") for word in words))


def image(path: str, number: int = 0, build_id: str | None = None) -> LoadedImage:
    """A loaded library."""
    start = 0x7100_0000_0000 + number * 0x100_0000
    return LoadedImage(path, start, start + 0x10_0000, start, build_id)


def finding(report: Report, rule: str) -> Finding | None:
    """The finding of a rule, if any."""
    return next((item for item in report.findings or [] if item.id == rule), None)


def verdict(report: Report) -> tuple[str | None, str | None]:
    """Class and confidence of the verdict."""
    assert report.verdict is not None
    return report.verdict.class_, report.verdict.confidence


def summary(report: Report) -> str:
    """The headline."""
    assert report.verdict is not None
    return report.verdict.summary or ""


def evidence(report: Report) -> str:
    """The verdict's evidence, as one text."""
    assert report.verdict is not None
    return "\n".join(report.verdict.evidence or [])


def advice(report: Report) -> str:
    """The verdict's advice, as one text."""
    assert report.verdict is not None
    return report.verdict.advice or ""
