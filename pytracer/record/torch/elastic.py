"""torchrun's table of failures: adds pytracer's conclusion about the process to each row.

The agent builds the table (`ChildFailedError`) when all its workers have ended: only then are their recordings
complete, and a delay disturbs no evidence. If `record/conclusion.py` draws no conclusions, the table is torch's own.

A worker ended by a signal leaves no error file. The agent writes one in torch's format in its place, so that readers of
TORCHELASTIC_ERROR_FILE above torchrun get the sentence, too.
"""

from __future__ import annotations

import functools
import importlib
import json
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from pytracer.blackbox.note_codes import NoteCode
from pytracer.record.bootstrap.import_hook import when_imported
from pytracer.record.bootstrap.patches import Patches
from pytracer.record.conclusion import report_so_far, verdict_sentences
from pytracer.record.core import Core
from pytracer.record.relayed import headline

if TYPE_CHECKING:
    from pytracer.record.conclusion import ReportJson
    from pytracer.record.torch_objects import ProcessFailure

_ERRORS = "torch.distributed.elastic.multiprocessing.errors"

_patches = Patches()
_error_files: dict[int, str] = {}  # by pid: torch forgets the path when there is no file


def install(box: Core) -> None:
    """Wraps torchrun's agent's failure report once it is imported: other programs do not pay for it.

    Workers of an agent have none. A notebook may be the agent: Accelerate's launcher.
    """
    if "TORCHELASTIC_RUN_ID" not in os.environ:
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
    """Adds a sentence to the message of each failure with a conclusion; the headline to the first if no row has it."""
    report, host = report_so_far(directory), socket.gethostname()
    sentences = verdict_sentences(report, host)
    elsewhere = _cause_elsewhere(report, host, failures)
    first = min(failures.values(), key=lambda failure: failure.timestamp, default=None)
    for failure in failures.values():
        sentence = sentences.get(failure.pid)
        if sentence is None:
            continue
        added = [sentence, elsewhere] if elsewhere and failure is first else [sentence]
        message = failure.message
        if isinstance(message, dict):
            given = message.get("extraInfo")
            extra = given if isinstance(given, dict) else {}
            stack = str(extra.get("py_callstack") or message.get("message") or "").rstrip()
            failure.message = {**message, "extraInfo": {**extra, "py_callstack": "\n".join([stack, *added])}}
        else:
            failure.message = "\n  ".join([str(message), *added])
            _leave_error_file(failure, sentence)


def _cause_elsewhere(report: ReportJson, host: str, failures: Mapping[int, ProcessFailure]) -> str | None:
    """The headline, when the process that died first has no row, and one with a row followed it.

    Of processes that torch.multiprocessing started, the table has one, often the first that lost its peer; the table of
    a node lacks the other nodes' processes.
    """
    listed = {failure.pid for failure in failures.values()}
    here = [item for item in report.get("processes") or () if item.get("host") == host and item.get("pid") in listed]
    if any(item.get("primary") is True for item in here) or all(item.get("primary") is not False for item in here):
        return None
    return headline(report)


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
