"""A program with torch dies on aarch64, and the report explains it; run by scripts/test_aarch64.py."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from pytracer.analyze.engine import build_report
from pytracer.decode.job.merge import load_job
from pytracer.report.job import ProcessReport, Report
from tests.support.cli import ROOT

pytestmark = pytest.mark.skipif(platform.machine() != "aarch64", reason="needs aarch64: make test-aarch64")
PROGRAM = Path(__file__).parent / "programs" / "ddp_use_after_free.py"


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """The report about the program."""
    run = tmp_path_factory.mktemp("aarch64") / "run"
    environment = dict(os.environ, MIMALLOC_ARENA_RESERVE="0", MIMALLOC_PURGE_DELAY="0")
    traced = [sys.executable, "-m", "pytracer", "run", "-o", str(run), "--", sys.executable, str(PROGRAM)]
    subprocess.run(traced, env=environment, cwd=ROOT, check=False, timeout=600)
    return build_report(load_job(run))


@pytest.fixture(scope="module")
def process(report: Report) -> ProcessReport:
    """The process that died."""
    return next(item for item in report.processes or [] if item.fault is not None)


def test_the_freed_bucket_is_named(report: Report, process: ProcessReport) -> None:
    """With its parameter, and the lines that allocated and freed it."""
    assert report.verdict is not None and report.verdict.class_ == "use-after-free"
    assert report.verdict.confidence == "certain"
    fault = process.fault
    assert fault is not None and fault.kind == "freed-storage" and fault.bucket is not None
    assert fault.storage is not None and fault.storage.allocated is not None and fault.storage.freed is not None


def test_the_instruction_gives_the_address(process: ProcessReport) -> None:
    """Its operands, its registers, and that it reads."""
    fault = process.fault
    assert fault is not None and fault.addr is not None
    assert (fault.access, fault.size, fault.expression) == ("read", 4, "x0 + x1*4")
    registers = process.registers or {}
    assert set(registers) == {*(f"x{number}" for number in range(31)), "sp", "pc", "pstate"}
    assert int(registers["x0"], 16) + 4 * int(registers["x1"], 16) == int(fault.addr, 16)


def test_both_stacks_are_whole(process: ProcessReport) -> None:
    """From the native function through the autograd engine to the script."""
    assert next(frame.function for frame in process.python_stack or []) == "LateRead.backward"
    functions = [frame.function or "" for frame in process.native_stack or []]
    assert functions[0] == "element" and any("Engine::evaluate_function" in name for name in functions)
