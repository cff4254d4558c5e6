"""A connection of multiprocessing, or of torch's RPC, that broke because the process at its other end had died.

A queue, a pipe, a manager and a tensor that is sent between processes all read from such a connection: the process that
is left raises an exception without a word of the one that ended. So does a call of torch.distributed.rpc.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import takewhile

from pytracer._library_files import is_library_file, of_multiprocessing
from pytracer._patterns import Pattern
from pytracer.analyze.platform.signals import SIGKILL
from pytracer.analyze.view import Death, ProcessView
from pytracer.decode.types.snapshot import PythonFrame as SnapshotFrame
from pytracer.report.job import PythonFrame

_TYPES = ("EOFError", "ConnectionResetError", "ConnectionRefusedError", "BrokenPipeError", "FileNotFoundError")
_MODULE = of_multiprocessing("connection")
SHARER = of_multiprocessing("resource_sharer")
# TensorPipe's errors, as torch's RPC passes them on (torch 2.13); the process at the other end may raise them, too.
_RPC_LOST = Pattern(
    r"\beof\b|connection (?:was )?(?:reset|closed|refused|aborted)|pipe closed|broken pipe", re.IGNORECASE
)
_RPC_FILE = "/torch/distributed/rpc/"
_ENDS = ("fault", "abort", "sent", "exception", "exit")


def lost_connection(view: ProcessView) -> bool:
    """Whether the process's exception was raised by multiprocessing's own reading, writing or connecting."""
    exception = view.exception
    if exception is None or not exception.python_stack or exception.type not in _TYPES:
        return False
    return (exception.python_stack[0].file or "").endswith(_MODULE)


def through_sharer(stack: Iterable[PythonFrame | SnapshotFrame]) -> bool:
    """Whether it fetches a descriptor, such as that of a tensor, from its sender, or is the thread that sends it."""
    return any((frame.file or "").endswith(SHARER) for frame in stack)


def lost_rpc(view: ProcessView) -> bool:
    """Whether the process's exception says that a call of torch's RPC lost its connection."""
    exception = view.exception
    if exception is None or _RPC_LOST.search(exception.message or "") is None:
        return False
    library = takewhile(lambda frame: is_library_file(frame.file), exception.python_stack or ())
    return "tensorpipe/" in (exception.message or "") or any(_RPC_FILE in (frame.file or "") for frame in library)


def lost_process(others: Iterable[Death], death: Death, relatives: Iterable[ProcessView]) -> Death | None:
    """Who may have been at the other end: of the process's children and its parent the first that had died by then.

    One that a signal other than SIGKILL ended counts if its sending is on record: a parent that raised ends its
    children by SIGTERM on its way out.
    """
    near = {view.index for view in relatives}
    return next((item for item in others if item.view.index in near and _had_ended(item, death)), None)


def _had_ended(item: Death, death: Death) -> bool:
    if item.nature not in _ENDS or item.boot != death.boot or not item.maybe_before(death):
        return False
    return item.nature != "sent" or item.view.process.signal == SIGKILL or any(s.sure for s in item.view.senders)
