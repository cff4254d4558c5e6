"""A call of a TCPStore that lost its connection, where the rank that serves the store had ended well.

Rank 0 holds the store in its own process (`is_master`, and what init_process_group() makes by `env://`): with it the
store ends, whoever still works. The error that others then get reads like one of the network.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping

import msgspec

from pytracer._library_files import is_library_file
from pytracer._patterns import Pattern
from pytracer._text import capital, time_words
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.syntax.calls import called_name, calls_on, keyword_value
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.kin import left_by
from pytracer.analyze.naming import LineWords, line_in
from pytracer.analyze.view import JobView, ProcessView
from pytracer.report.job import PythonFrame

# torch 2.13, TCPStore.cpp and socket.cpp.
_LOST = Pattern(r"Broken pipe|Connection reset|Connection was likely closed|failed to (?:send|recv|read)|recvValue")
_ERRORS = ("DistNetworkError", "DistStoreError")
_CALLS = frozenset(
    ("add", "append", "check", "compare_set", "delete_key", "get", "multi_get", "multi_set", "num_keys", "queue_pop")
    + ("queue_push", "set", "wait")
)
_RANK_0 = Pattern(r"\(?(?:not[\w.]*rank\w*|[\w.]*rank\w*(?:\(\))?==0|[\w.]*(?:main|master)\w*(?:\(\))?)\)?")
_PLACE = 3  # of is_master among TCPStore's arguments


class StoreServer(msgspec.Struct, frozen=True):
    """`rank` had ended `before_ns` before the error. `made`: the line that makes the store, if it was found."""

    rank: int
    before_ns: int
    at: PythonFrame
    made: LineWords | None

    @property
    def subject(self) -> str:
        """Behind the headline."""
        where = f" ({self.made})" if self.made is not None else ""
        return (
            f"rank {self.rank}, which serves the TCPStore{where}, had ended with status 0, "
            f"{time_words(self.before_ns)} before"
        )

    @property
    def advice(self) -> str:
        """What keeps it alive."""
        return (
            f"{capital(self.subject)}: the store ends with that process, whoever still uses it. Let rank {self.rank} "
            f"wait until all are done: dist.barrier() on all ranks behind their last call of the store (line "
            f"{self.at.line} is one), before the function returns. The network is not at fault."
        )


def store_server(job: JobView, view: ProcessView) -> StoreServer | None:
    """None where the failing line calls no store, or its server is not known to have ended well before."""
    raised, exception = view.process.exception_mono_ns, view.exception
    frame = next((item for item in view.exception_stack if not is_library_file(item.file)), None)
    if raised is None or exception is None or frame is None or frame.line is None or not _is_lost(view):
        return None
    files = program_files(view.process.snapshot, [frame])
    tree = files.get(frame.file or "")
    calls = calls_on(tree, frame.line) if tree is not None else []
    if not any(_is_of_store(item) for item in calls):
        return None
    server = next((item for item in job.views if item.process.role == "rank" and item.process.rank == 0), None)
    ended = server.process.ended_mono_ns if server is not None else None
    if server is None or server is view or ended is None or not left_by(server, raised):
        return None
    made = _made(files, frame.file)
    return StoreServer(0, raised - ended, frame, made[0]) if made is not None else None


def _is_lost(view: ProcessView) -> bool:
    """The class and the text of torch's error."""
    exception = view.exception
    kind = ((exception.type if exception is not None else None) or "").rpartition(".")[2]
    return kind in _ERRORS and _LOST.search((exception.message if exception is not None else None) or "") is not None


def _is_of_store(call: ast.Call) -> bool:
    """`self.store.add(...)`, by the names of its methods and of what it is called on."""
    if called_name(call) not in _CALLS or not isinstance(call.func, ast.Attribute):
        return False
    return "store" in ast.unparse(call.func.value).lower()


def _made(files: Mapping[str, ast.Module], here: str | None) -> tuple[LineWords | None] | None:
    """The line of the only TCPStore() that is not a client alone; (None,) where the process group's is meant."""
    stores = [
        (file, node) for file, tree in files.items() for node in nodes_of(tree)
        if isinstance(node, ast.Call) and called_name(node) == "TCPStore"
    ]  # fmt: skip
    serving = [(file, node) for file, node in stores if _serves_rank_0(node)]
    if not stores:
        return (None,)
    return (line_in(serving[0][0], serving[0][1].lineno, here),) if len(serving) == 1 else None


def _serves_rank_0(call: ast.Call) -> bool:
    """By what it passes for that."""
    given = master_of(call)
    return given is not None and is_rank_0(given)


def master_of(call: ast.Call) -> ast.expr | None:
    """What a TCPStore() is given for is_master; None for the default, a client."""
    return keyword_value(call, "is_master") or (call.args[_PLACE] if len(call.args) > _PLACE else None)


def is_rank_0(node: ast.AST) -> bool:
    """`rank == 0`, or `not rank`."""
    return _RANK_0.fullmatch(ast.unparse(node).replace(" ", "")) is not None
