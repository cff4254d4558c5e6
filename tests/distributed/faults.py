"""Runs the programs in which one rank prints what is at an address and faults there; keeps both results."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytracer.report.job import Fault, ProcessReport, Report, Verdict
from tests.distributed.jobs import PROGRAMS
from tests.support.crash import new_store, traced_run

# glibc gives every block of 16 KiB and more a mapping of its own, which ends when it is freed: a late read faults. The
# heap grows only by what is needed, so that such a block is not taken from its top.
MALLOC = {"MALLOC_MMAP_THRESHOLD_": str(16 * 1024), "MALLOC_TOP_PAD_": "0"}


@dataclass(frozen=True)
class Faulted:
    """The rank's own output, and the report about it."""

    truth: dict[str, Any]
    report: Report
    process: ProcessReport
    run: Path

    @property
    def fault(self) -> Fault:
        """The fault of the rank."""
        assert self.process.fault is not None
        return self.process.fault

    @property
    def verdict(self) -> Verdict:
        """The verdict of the job."""
        assert self.report.verdict is not None
        return self.report.verdict


def faulted(program: str, function: str, run: Path, *, ranks: int = 2, victim: int = 1) -> Faulted:
    """Runs one function of a program on `ranks` ranks; `victim` faults."""
    path = PROGRAMS / f"{program}.py"
    words = [sys.executable, str(path), function, "--spawn", str(ranks), new_store(run)]
    done = traced_run(*words, run=run, options=(), **MALLOC)
    said = [line.removeprefix("TRUTH ") for line in done.stdout.splitlines() if line.startswith("TRUTH ")]
    assert len(said) == 1, f"{done.stdout}\n{done.stderr}"
    report = done.report
    process = next(item for item in report.processes or [] if item.rank == victim and item.role == "rank")
    assert process.signal is not None, done.stderr
    assert process.signal.name == "SIGSEGV"
    assert not [note for note in process.notes or [] if "could not be noted" in note]
    assert (report.counts or {}).get("hook_errors") == 0
    return Faulted(json.loads(said[0]), report, process, run)
