"""The signal handler of a program in which it ended itself: of which signal, and for SIGCHLD which children had ended.

SIGCHLD comes for each child: for a DataLoader worker that ends well, too. A handler that takes it for the end of one
certain process ends the program without a reason.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

import msgspec
from msgspec import structs

from pytracer._text import list_words
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.names import last_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import scope_of
from pytracer.analyze.kin import children_of
from pytracer.analyze.naming import line_in, name_words
from pytracer.analyze.view import JobView, ProcessView
from pytracer.report.job import PythonFrame

_RUNS = "PyErr_CheckSignals"  # CPython: what runs the handlers of signals that have come
_SETS = ("signal", "add_signal_handler")
_CHILD = "SIGCHLD"
# How a handler finds out which child it was.
_ASKS = frozenset(
    {"waitpid", "waitid", "wait", "wait4", "is_alive", "poll", "exitcode", "returncode", "pid_exists", "children"}
)
_BEFORE_NS = 2_000_000_000
_MOST = 3


class SignalHandler(msgspec.Struct, frozen=True):
    """`name` handles `signal`, which `place` sets. `ended`: children that had ended well; `asks`: it looks which."""

    name: str
    signal: str
    place: str
    ended: tuple[ProcessView, ...] = ()
    before_ns: int = 0
    asks: bool = False
    failed: bool = False
    """Whether a child that had just ended did not end well."""

    @property
    def words(self) -> str:
        """`, the handler of SIGCHLD that line 38 sets; DataLoader worker 0 (pid 7) had ended well 0.011 s before`."""
        ended = ""
        if self.ended:
            had = list_words([name_words([item]) for item in self.ended], _MOST)
            ended = f"; {had} had ended with status 0, {self.before_ns / 1e9:.3f} s before"
        return f", the handler of {self.signal} that {self.place} sets{ended}"

    @property
    def advice(self) -> str | None:
        """None where it looks which child it was, or a child had failed."""
        if self.signal != _CHILD or self.asks or self.failed:
            return None
        which = "" if self.ended else ", so that it may be another one"
        return (
            f"{_CHILD} comes for each child that ends, and {self.name}() does not look which one did{which}: ask there "
            "whether it was the process that it watches (`is_alive()`, `exitcode`, os.waitpid(pid, os.WNOHANG)) before "
            "it ends the program. Or set no handler, and wait for that process's `sentinel`. What it prints may be "
            "false here."
        )


def signal_handler(job: JobView, view: ProcessView, stack: Sequence[PythonFrame]) -> SignalHandler | None:
    """None where the innermost line of the program is in no handler, or that was called like any function."""
    if not stack or not any(_RUNS in (frame.function or "") for frame in view.native_stack or ()):
        return None
    at = stack[0]
    function = (at.function or "").rpartition(".")[2]
    for file, tree in program_files(view.process.snapshot, stack).items():
        for item in nodes_of(tree):
            if not isinstance(item, ast.Call) or called_name(item) not in _SETS or len(item.args) < 2:
                continue
            signal = last_name(item.args[0])
            if last_name(item.args[1]) != function or signal is None or not signal.startswith("SIG"):
                continue
            place = line_in(file, item.lineno, at.file)
            found = SignalHandler(at.function or function, signal, place)
            return _of_child(job, view, found, tree, at) if signal == _CHILD else found
    return None


def _of_child(
    job: JobView, view: ProcessView, found: SignalHandler, tree: ast.Module, at: PythonFrame
) -> SignalHandler:
    """With the children that had just ended, where all of them ended well."""
    end = view.ended_ns
    if end is None:
        return found
    ended = [
        (item.ended_ns, item)
        for item in children_of(job, view)
        if item.ended_ns is not None and end - _BEFORE_NS <= item.ended_ns <= end
    ]
    failed = any(item.process.status_kind != "exited" or item.process.exit_code for _, item in ended)
    names = {
        name
        for item in nodes_of(scope_of(tree, at.line or 0))
        if (name := item.attr if isinstance(item, ast.Attribute) else item.id if isinstance(item, ast.Name) else None)
    }
    asks = bool(names & _ASKS)
    if failed or not ended:
        return structs.replace(found, asks=asks, failed=failed)
    before = end - max(time for time, _ in ended)
    return structs.replace(found, ended=tuple(item for _, item in ended), before_ns=before, asks=asks)
