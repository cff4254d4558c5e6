"""A program that ends by an exception about another process's death: one line on stderr with what pytracer concludes.

Ray's driver prints "the actor died unexpectedly", multiprocessing's parent "process 1 terminated with signal SIGSEGV",
Lightning's launcher "terminated with code -11". The line comes right below, where the reader looks first.
Exception, exit status and stdout stay as they are.
"""

from __future__ import annotations

import functools
import os
import socket
import sys
from types import ModuleType
from typing import TYPE_CHECKING

from pytracer._printable import one_line
from pytracer.blackbox.note_codes import NoteCode
from pytracer.record.bootstrap.patches import Patches
from pytracer.record.conclusion import report_so_far, verdict_sentences
from pytracer.record.core import Core

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytracer.record.conclusion import ReportJson

# Package and name of the exceptions by which a parent or driver passes on what became of another process.
_RELAYED = {
    ("ray", "RayActorError"),
    ("ray", "RayTaskError"),
    ("ray", "WorkerCrashedError"),
    ("ray", "OutOfMemoryError"),
    ("ray", "NodeDiedError"),
    ("ray", "OwnerDiedError"),
    ("ray", "TrainingFailedError"),
    ("torch", "ProcessException"),  # of torch.multiprocessing.spawn, below Lightning's ddp_spawn, too
    ("concurrent", "BrokenProcessPool"),  # joblib's TerminatedWorkerError, too
    ("submitit", "UncompletedJobError"),
    ("nbclient", "DeadKernelError"),
}
_NOTHING_DIED = ("clean", "recovered", "unknown")
_CAUSES = 4
_LAUNCHERS = (
    "lightning.fabric.strategies.launchers.subprocess_script",
    "lightning_fabric.strategies.launchers.subprocess_script",
)
_TERMINATION_SECONDS = 10  # the launcher is about to end the job

_patches = Patches()


def install(box: Core) -> None:
    """Wraps the thread of Lightning's launcher that ends all ranks when one has died. The launcher is imported."""
    for launcher in filter(None, map(sys.modules.get, _LAUNCHERS)):
        _wrap(box, launcher)


def _wrap(box: Core, launcher: ModuleType) -> None:
    observer = getattr(launcher, "_ChildProcessObserver", None)
    terminate: Callable[..., object] | None = getattr(observer, "_terminate_all", None)
    if terminate is None:
        return

    @functools.wraps(terminate)
    def tell_and_terminate(self: object) -> object:
        _tell(box, _TERMINATION_SECONDS)
        return terminate(self)

    _patches.replace(observer, "_terminate_all", tell_and_terminate)


def uninstall() -> None:
    """Restores what is still ours."""
    _patches.put_back()


def is_relayed(error: BaseException | None) -> bool:
    """Whether the exception, or one that it was raised from, is about another process's death."""
    for _ in range(_CAUSES):
        if error is None:
            return False
        if any((kind.__module__.partition(".")[0], kind.__name__) in _RELAYED for kind in type(error).__mro__):
            return True
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return False


def tell(box: Core, error: BaseException | None) -> None:
    """Prints the line if the exception is relayed. Never raises an Exception."""
    if box.recording and is_relayed(error):
        _tell(box)


def _tell(box: Core, seconds: float | None = None) -> None:
    try:
        line = headline(report_so_far(box.directory, *([seconds] if seconds else [])))
        if line is not None and sys.stderr is not None:
            sys.stderr.write(f"{line}\n")
            sys.stderr.flush()
    except KeyboardInterrupt:  # the reader is not waited for
        pass
    except Exception as error:
        box.lib.pytracer_count_hook_error()
        box.note(NoteCode.RELAYED, f"no line about another process's death: {type(error).__name__}: {error}")


def headline(report: ReportJson) -> str | None:
    """What became of the other process; None if nothing died, or nothing but this process is known to have failed."""
    verdict = report.get("verdict") or {}
    summary = str(verdict.get("summary") or "").strip()
    if not summary or verdict.get("class") in _NOTHING_DIED or verdict.get("pid") == os.getpid():
        return None
    sentences = verdict_sentences(report, socket.gethostname())
    return sentences.get(verdict.get("pid") or 0) or one_line(f"pytracer: {summary}")
