"""Runs the programs of this directory, traced, and extracts results for the tests."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from pytracer.report.job import Finding, ProcessReport, Report
from tests.support.crash import Ended, torchrun, traced_run

PROGRAMS = Path(__file__).parent / "programs"
# Watchdogs write their dumps and wait for each other's for a minute otherwise (torch 2.14, ProcessGroupNCCL.cpp).
NCCL = {"TORCH_NCCL_DUMP_ON_TIMEOUT": "0", "TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC": "250"}


def program(name: str, *words: str, run: Path, options: tuple[str, ...] = (), **extra: str) -> Ended:
    """`pytracer run OPTIONS -- python NAME.py WORDS`."""
    return traced_run(sys.executable, PROGRAMS / f"{name}.py", *words, run=run, options=options, **extra)


def job(name: str, function: str, *, run: Path, **extra: Any) -> Ended:
    """The same on two ranks over NCCL."""
    return traced_run(*torchrun(PROGRAMS / f"{name}.py", function), run=run, **{**NCCL, **extra})


def line_of(name: str, text: str) -> int:
    """The number of the one line of a program that contains `text`."""
    lines = (PROGRAMS / f"{name}.py").read_text(encoding="utf-8").splitlines()
    (number,) = [number for number, line in enumerate(lines, 1) if text in line]
    return number


def only_victim(report: Report) -> ProcessReport:
    """The one process that a signal ended, or an exception."""
    assert report.verdict is not None
    return next(process for process in report.processes or [] if process.pid == report.verdict.pid)


def finding(report: Report, rule: str) -> Finding | None:
    """The first finding of a rule."""
    return next((item for item in report.findings or [] if item.id == rule), None)
