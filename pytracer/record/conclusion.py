"""pytracer's conclusion about the job so far, for a process of the job that prints about another one's death.

A separate process, `python -m pytracer inspect --json`, draws it in bounded time: the reader is not imported here.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pytracer._library_files import is_library_file
from pytracer._printable import one_line

if TYPE_CHECKING:
    from typing import TypedDict

    class FrameJson(TypedDict, total=False):
        """`report.PythonFrame`."""

        file: str | None
        function: str | None
        line: int | None

    class ExceptionJson(TypedDict, total=False):
        """`report.ExceptionReport`."""

        python_stack: list[FrameJson] | None

    class ProcessJson(TypedDict, total=False):
        """`report.ProcessReport`."""

        pid: int | None
        host: str | None
        primary: bool | None
        why: str | None
        why_kind: str | None
        python_stack: list[FrameJson] | None
        exception: ExceptionJson | None

    # `report.Verdict`; one key is no name of Python's.
    VerdictJson = TypedDict("VerdictJson", {"pid": int | None, "summary": str | None, "class": str | None}, total=False)

    class ReportJson(TypedDict, total=False):
        """What is read of a report."""

        verdict: VerdictJson | None
        processes: list[ProcessJson] | None


SECONDS = 20


def report_so_far(directory: Path, seconds: float = SECONDS) -> ReportJson:
    """The report about the last attempt as it is recorded so far, created by an untraced process.

    Raises:
        RuntimeError: the job cannot be read; with the reader's last line.
        subprocess.TimeoutExpired: it took longer.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTRACER_")}
    # Removes our core only: the job needs its other preloads.
    others = [item for item in re.split(r"[\s:]+", environment.pop("LD_PRELOAD", "")) if "libpytracer_core" not in item]
    if others:
        environment["LD_PRELOAD"] = ":".join(others)
    done = subprocess.run(
        [sys.executable, "-m", "pytracer", "inspect", str(directory), "--json", "--attempt=-1"],
        env=environment, cwd=Path(__file__).resolve().parents[2],  # where -m searches first
        stdin=subprocess.DEVNULL, capture_output=True, timeout=seconds, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        words = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise RuntimeError(words[-1] if words else f"`pytracer inspect` exited with status {done.returncode}")
    report: ReportJson = json.loads(done.stdout)
    return report


def verdict_sentences(report: ReportJson, host: str) -> dict[int, str]:
    """One sentence for each process of this host that the verdict names, by pid."""
    verdict = report.get("verdict") or {}
    summary = str(verdict.get("summary") or "").strip()
    told: dict[int, str] = {}
    for process in report.get("processes") or ():
        pid, why = process.get("pid"), process.get("why")
        if process.get("host") != host or not isinstance(pid, int):
            continue
        if process.get("primary") is not False and pid == verdict.get("pid") and summary:
            place = _python_place(process)
            told[pid] = f"pytracer: {summary.rstrip('.')}" + (f", {place}" if place and place not in summary else "")
        elif process.get("primary") is True and summary:
            told[pid] = f"pytracer: {summary}"
        elif process.get("primary") is False and why and process.get("why_kind") != "limit":  # of no other death
            told[pid] = f"pytracer: a consequence: {why}"
        elif why:
            told[pid] = f"pytracer: {why}"
    return {pid: one_line(sentence) for pid, sentence in told.items()}  # printed unchanged


def _python_place(process: ProcessJson) -> str | None:
    """`train.py:12 in step`: the innermost line of the program itself."""
    frames = process.get("python_stack") or (process.get("exception") or {}).get("python_stack") or []
    own = [
        frame for frame in frames if (file := frame.get("file")) and not (is_library_file(file) or file.startswith("<"))
    ]
    for frame in [*own, *frames][:1]:
        return f"{os.path.basename(frame.get('file') or '?')}:{frame.get('line')} in {frame.get('function')}"
    return None
