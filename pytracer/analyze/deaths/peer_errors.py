"""Errors that report another process: a lost or silent peer, the failure of a child."""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import takewhile

from pytracer._library_files import is_library_file
from pytracer._patterns import Pattern
from pytracer.analyze.evidence.cuda.cuda_errors import cuda_error
from pytracer.analyze.view import ProcessView
from pytracer.report.job import ExceptionReport, HandledExceptionReport

# Written by gloo, NCCL, TCPStore and sockets when the other end is gone; seen with torch 2.13, see the tests.
_PEER_GONE = Pattern(
    r"connection (was )?(closed|reset|refused|aborted)|closed by (the )?peer|reset by peer|broken pipe"
    r"|socket (was )?closed|remote process exited|connection lost"
    r"|read error \[|write error \[|failed to (recv|send)|ncclRemoteError",
    re.IGNORECASE,
)
_STORE_ERROR = Pattern(r"(^|\.)DistStoreError$")
# torch 2.13, TCPStore.cpp; not for the keys of a group's backend: `/default_pg/0//cpu//0/0`.
_KEY_TIMEOUT = Pattern(r"^wait timeout after \d+ms, keys: (?!.*//[a-z]+//\d+/)")
PEER_SILENT = Pattern(r"timed out|timeout|failed to pass monitoredBarrier", re.IGNORECASE)
# An exception of c10d: by its type, by what its message names, or by the library that raised it. Other sockets and
# queues write "timed out" and "connection refused", too.
_C10D_TYPE = Pattern(r"^(gloo|c10d|c10)::|(^|\.)Dist(Backend|Network|Store|QueueEmpty)?Error$|^torch\.distributed\.")
_C10D_MESSAGE = Pattern(
    r"\b(gloo|c10d|NCCL|ncclRemoteError|ncclSystemError|UCC|TCPStore|FileStore|ProcessGroup\w*|torch\.distributed"
    r"|monitoredBarrier)\b"
)
_C10D_FILE = Pattern(r"/torch/(distributed/|nn/parallel/distributed\.py)")
# Exceptions by which a parent passes on the failure of a child.
CHILD_FAILED = Pattern(
    r"ChildFailedError|ProcessExitedException|ProcessRaisedException|CalledProcessError|BrokenProcessPool"
    r"|TerminatedWorkerError|UncompletedJobError|FailedJobError"  # joblib's loky, submitit
)
WORKER_DIED = Pattern(r"DataLoader worker \(pid(?:\(s\))? ([\d, ]+)\)")
_WATCHDOGS = ("pt_nccl_watchdg", "pt_nccl_heartbt")  # torch 2.13, ProcessGroupNCCL.cpp


def peer_gone(view: ProcessView) -> bool:
    """Whether the exception reports that another process of the job closed its connection."""
    return _communication_says(view.exception, _PEER_GONE)


def speaks_of_lost_peer(exception: ExceptionReport | HandledExceptionReport | None) -> bool:
    """Whether an exception of c10d reports a lost connection, or an answer that did not arrive in time."""
    return _communication_says(exception, _PEER_GONE) or _communication_says(exception, PEER_SILENT)


def mentions_lost_peer(view: ProcessView) -> bool:
    """Whether the end mentions another process: a lost connection, an answer that did not arrive in time."""
    error = cuda_error(view)
    if error is not None and error.sticky:
        return False  # NCCL's watchdog is often the first one to hear of the device's own failure
    if waited_for_key(view):
        return False
    thread = view.crash.thread_name if view.crash is not None and view.crash.code <= 0 else ""
    return speaks_of_lost_peer(view.exception) or thread.startswith(_WATCHDOGS)


def waited_for_key(view: ProcessView) -> bool:
    """Whether the program's own line waited in vain for a key of the store, which another rank was to set.

    The store answered: nobody was lost. Below init_process_group() and the like, such a wait is torch's.
    """
    exception = view.exception
    if exception is None or not exception.python_stack or is_library_file(exception.python_stack[0].file):
        return False
    return mentions(_STORE_ERROR, exception.type or "") and mentions(_KEY_TIMEOUT, exception.message or "")


def _communication_says(exception: ExceptionReport | HandledExceptionReport | None, pattern: Pattern) -> bool:
    if exception is None or not mentions(pattern, exception.message or ""):
        return False
    if mentions(_C10D_TYPE, exception.type or "") or mentions(_C10D_MESSAGE, exception.message or ""):
        return True
    library = takewhile(lambda frame: is_library_file(frame.file), exception.python_stack or ())
    return any(mentions(_C10D_FILE, frame.file or "") for frame in library)


@lru_cache(maxsize=4096)
def mentions(pattern: Pattern, text: str) -> bool:
    """Cached: thousands of ranks end with the same words."""
    return pattern.search(text) is not None


def reports_a_child(view: ProcessView) -> bool:
    """Whether the exception passes on the failure of a child."""
    exception = view.exception
    if exception is None:
        return False
    return mentions(CHILD_FAILED, exception.type or "") or mentions(WORKER_DIED, exception.message or "")
