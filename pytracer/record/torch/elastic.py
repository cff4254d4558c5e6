"""torchrun's table of failures: adds pytracer's conclusion about the process to each row.

The agent builds the table (`ChildFailedError`) when all its workers have ended: only then are their recordings
complete, and a delay disturbs no evidence. A separate process, `python -m pytracer inspect --json`, draws the
conclusions in bounded time; if it fails, the table is torch's own.

A worker ended by a signal leaves no error file. The agent writes one in torch's format in its place, so that readers of
TORCHELASTIC_ERROR_FILE above torchrun get the sentence, too.
"""

from __future__ import annotations

import functools
import importlib
import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from pytracer._printable import one_line
from pytracer.blackbox.note_codes import NoteCode
from pytracer.record.bootstrap.import_hook import when_imported
from pytracer.record.bootstrap.patches import Patches
from pytracer.record.core import Core

if TYPE_CHECKING:
    from typing import TypedDict

    from pytracer.record.torch_objects import ProcessFailure

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
        python_stack: list[FrameJson] | None
        exception: ExceptionJson | None

    class VerdictJson(TypedDict, total=False):
        """`report.Verdict`."""

        pid: int | None
        summary: str | None

    class ReportJson(TypedDict, total=False):
        """What is read of a report."""

        verdict: VerdictJson | None
        processes: list[ProcessJson] | None


SECONDS = 20
_ERRORS = "torch.distributed.elastic.multiprocessing.errors"
_LIBRARY = re.compile(r"/(site-packages|dist-packages|lib/python3\.\d+|pytracer/record)/|^<")

_patches = Patches()
_error_files: dict[int, str] = {}  # by pid: torch forgets the path when there is no file


def install(box: Core) -> None:
    """Wraps torchrun's agent's failure report once it is imported: other programs do not pay for it.

    Workers of an agent, and programs with their own launcher, have none.
    """
    if box.preloaded and "TORCHELASTIC_RUN_ID" not in os.environ:
        when_imported(_ERRORS, lambda: _wrap(box, importlib.import_module(_ERRORS)))


def _wrap(box: Core, errors: ModuleType) -> None:
    remember, build = errors.ProcessFailure.__post_init__, errors.ChildFailedError.__init__

    @functools.wraps(remember)
    def remember_path(self: ProcessFailure) -> None:
        _error_files[self.pid] = self.error_file
        remember(self)

    @functools.wraps(build)
    def tell_and_build(self: object, name: str, failures: Mapping[int, ProcessFailure]) -> None:
        try:
            if box.recording:
                _tell(box.directory, failures)
        except Exception as error:
            if type(error).__name__ == "SignalException":  # torch's agent converts SIGTERM into it
                raise
            box.lib.pytracer_count_hook_error()
            box.note(NoteCode.ELASTIC, f"torchrun's table was not completed: {type(error).__name__}: {error}")
        build(self, name, failures)

    _patches.replace(errors.ProcessFailure, "__post_init__", remember_path)
    _patches.replace(errors.ChildFailedError, "__init__", tell_and_build)


def uninstall() -> None:
    """Restores what is still ours."""
    _patches.put_back()


def _tell(directory: Path, failures: Mapping[int, ProcessFailure]) -> None:
    """Adds a sentence to the message of each failure with a conclusion."""
    sentences = verdict_sentences(_inspect(directory), socket.gethostname())
    for failure in failures.values():
        sentence = sentences.get(failure.pid)
        if sentence is None:
            continue
        message = failure.message
        if isinstance(message, dict):
            given = message.get("extraInfo")
            extra = given if isinstance(given, dict) else {}
            stack = str(extra.get("py_callstack") or message.get("message") or "").rstrip()
            failure.message = {**message, "extraInfo": {**extra, "py_callstack": f"{stack}\n{sentence}"}}
        else:
            failure.message = f"{message}\n  {sentence}"
            _leave_error_file(failure, sentence)


def _inspect(directory: Path) -> ReportJson:
    """The report about the last attempt as it is recorded so far, created by an untraced process."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTRACER_")}
    # Removes our core only: the job needs its other preloads.
    others = [item for item in re.split(r"[\s:]+", environment.pop("LD_PRELOAD", "")) if "libpytracer_core" not in item]
    if others:
        environment["LD_PRELOAD"] = ":".join(others)
    done = subprocess.run(
        [sys.executable, "-m", "pytracer", "inspect", str(directory), "--json", "--attempt=-1"],
        env=environment, cwd=Path(__file__).resolve().parents[3],  # where -m searches first
        stdin=subprocess.DEVNULL, capture_output=True, timeout=SECONDS, check=False,
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
        elif process.get("primary") is False and why:
            told[pid] = f"pytracer: a consequence: {why}"
        elif why:
            told[pid] = f"pytracer: {why}"
    return {pid: one_line(sentence) for pid, sentence in told.items()}  # torchrun prints them unchanged


def _python_place(process: ProcessJson) -> str | None:
    """`train.py:12 in step`: the innermost line of the program itself."""
    frames = process.get("python_stack") or (process.get("exception") or {}).get("python_stack") or []
    own = [frame for frame in frames if (file := frame.get("file")) and not _LIBRARY.search(file)]
    for frame in [*own, *frames][:1]:
        return f"{os.path.basename(frame.get('file') or '?')}:{frame.get('line')} in {frame.get('function')}"
    return None


def _leave_error_file(failure: ProcessFailure, sentence: str) -> None:
    """Writes the file that the worker could not write, as torch's ErrorHandler would have."""
    path = _error_files.get(failure.pid, "")
    if not path or path == os.devnull or os.path.exists(path) or not os.path.isdir(os.path.dirname(path)):
        return
    message = {
        "message": failure.message,
        "extraInfo": {"py_callstack": failure.message, "timestamp": str(int(failure.timestamp))},
        "errorCode": failure.exitcode,
        "pytracer": sentence.removeprefix("pytracer: "),
    }
    aside = f"{path}.{os.getpid()}"
    with open(aside, "x", encoding="utf-8") as file:
        json.dump({"message": message}, file)
    os.replace(aside, path)
    failure.error_file = path
