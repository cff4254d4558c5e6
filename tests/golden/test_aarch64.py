"""A recording from aarch64 is explained on any machine: registers, operands, threads, regions."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from pytracer.analyze.engine import build_report
from pytracer.blackbox import structures as raw
from pytracer.blackbox.codec import decode
from pytracer.decode.job.merge import load_job
from pytracer.report.job import ProcessReport, Report
from tests.conditions import needs_capstone
from tests.golden.reports import GOLDEN, unpacked

LARGEST_PAGE = 65536
DIRECTORY, ENTRY = 512, struct.Struct("<IIQQQII")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A rank of a DDP job that read a freed bucket, below qemu."""
    return unpacked(GOLDEN / "0.1" / "aarch64-ddp-use-after-free.tar.xz", tmp_path_factory.mktemp("golden"))


@pytest.fixture(scope="module")
def report(run: Path) -> Report:
    """The report about it."""
    return build_report(load_job(run))


@pytest.fixture(scope="module")
def process(report: Report) -> ProcessReport:
    """The process that died."""
    return next(item for item in report.processes or [] if item.fault is not None)


def test_the_freed_bucket_and_its_lines_are_named(report: Report, process: ProcessReport) -> None:
    """As for x86-64: storage, parameter, allocation and free."""
    assert report.verdict is not None
    assert (report.verdict.class_, report.verdict.confidence) == ("use-after-free", "certain")
    fault = process.fault
    assert fault is not None and fault.bucket is not None and fault.bucket.parameter == "last.weight"
    assert fault.storage is not None and fault.storage.allocated is not None and fault.storage.freed is not None


@needs_capstone
def test_the_operands_give_the_address_where_no_syndrome_was_recorded(process: ProcessReport) -> None:
    """qemu's signal frames have none, so the kind of access follows from the instruction."""
    fault = process.fault
    assert fault is not None and fault.instruction is not None
    assert fault.instruction.startswith("ldr s0, [x0, x1, lsl #2]")
    assert (fault.access, fault.size, fault.expression) == ("read", 4, "x0 + x1*4")


def test_stacks_and_system_calls_of_all_threads_are_there(process: ProcessReport) -> None:
    """The crashed thread's down to the interpreter, and in what the others wait."""
    functions = [frame.function or "" for frame in process.native_stack or []]
    assert functions[0] == "element" and any("Engine::evaluate_function" in name for name in functions)
    assert next(frame.function for frame in process.python_stack or []) == "LateRead.backward"
    assert {thread.system_call for thread in process.threads or []} >= {"futex", "epoll_pwait"}


def test_each_region_begins_at_a_page_of_any_kernel(run: Path) -> None:
    """A kernel with pages of 64 KiB can map them; the recording was made below one with 4 KiB."""
    data = next((run / "boxes").iterdir()).read_bytes()
    header = decode(raw.FileHeader, data)
    entries = [ENTRY.unpack_from(data, DIRECTORY + number * ENTRY.size) for number in range(header.region_count)]
    assert header.page_bytes == 4096 and len(entries) > 20
    assert [offset % LARGEST_PAGE for _, _, offset, *_ in entries] == [0] * len(entries)
