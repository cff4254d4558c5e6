"""A call of torch.distributed.rpc that lost its connection, where another process of the job left without an error."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import msgspec

from pytracer._library_files import is_library_file
from pytracer._text import capital
from pytracer.analyze.deaths.lost_connection import lost_rpc
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import own_nodes, scope_of
from pytracer.analyze.kin import are_siblings, left_by
from pytracer.analyze.naming import line_in, name_words
from pytracer.analyze.view import JobView, ProcessView

_AT_THAT_TIME_NS = 3_000_000_000  # a process that has shut down its RPC takes a while to end


class RpcPeer(msgspec.Struct, frozen=True):
    """The process that had ended, as the explanation of an exception."""

    subject: str
    advice: str


class _Source(msgspec.Struct, frozen=True):
    """`abrupt`: lines with shutdown(graceful=False); `early`: what returns after a time in any case before one."""

    abrupt: tuple[str, ...]
    early: str | None
    shuts: bool


def rpc_peer(job: JobView, view: ProcessView) -> RpcPeer | None:
    """Where other processes that were started beside it left with status 0, before or at that time."""
    raised = view.process.exception_mono_ns
    gone = [item for item in _others(job, view) if raised is not None and left_by(item, raised + _AT_THAT_TIME_NS)]
    if not lost_rpc(view) or raised is None or not gone:
        return None
    found = _read(view)
    name = name_words(gone[:1]) if len(gone) == 1 else f"{len(gone)} other processes"
    had = f"{name} had ended" if all(left_by(item, raised) for item in gone) else f"{name} ended at that time"
    had += ", with status 0"
    if found.abrupt:
        lines = " and ".join(found.abrupt)
        how, mend = f"rpc.shutdown(graceful=False) at {lines}", f"Write rpc.shutdown() at {lines}, which"
        subject, why = f"{had} ({how} waits for no other process)", f"{how} waits for no other process. "
    else:
        mend = "Let every process come to rpc.shutdown(), which"
        subject, why = had, "" if found.shuts else "No line that was found calls rpc.shutdown(). "
    early = f" {found.early} returns after its timeout in any case." if found.early is not None else ""
    return RpcPeer(
        subject,
        f"{capital(had)}: a call to a process that leaves loses its connection. {why}{mend} waits until all processes "
        f"have come to it, and their calls are done.{early}",
    )


def _others(job: JobView, view: ProcessView) -> Iterator[ProcessView]:
    """Children of the same parent, on its host; of a rank the other ranks."""
    for item in job.views:
        is_member = item.process.role in ("rank", "child", "process")
        if item.index != view.index and is_member and are_siblings(item, view):
            yield item


def _read(view: ProcessView) -> _Source:
    frames = [frame for frame in view.exception_stack if not is_library_file(frame.file)]
    own = frames[0].file if frames else None
    abrupt: list[str] = []
    early, shuts = None, False
    for file, tree in program_files(view.process.snapshot, frames).items():
        for call in (item for item in nodes_of(tree) if isinstance(item, ast.Call) and called_name(item) == "shutdown"):
            if (
                not any(word in ast.unparse(call.func) for word in ("rpc", "api"))
                and ast.unparse(call.func) != "shutdown"
            ):
                continue
            shuts = True
            options = [*call.args, *(item.value for item in call.keywords if item.arg == "graceful")]
            if any(isinstance(item, ast.Constant) and item.value is False for item in options):
                place = line_in(file, call.lineno, own)
                abrupt.append(place)
                early = early or _returns_early(tree, call.lineno)
    return _Source(tuple(abrupt), early, shuts)


def _returns_early(tree: ast.Module, line: int) -> str | None:
    """A `wait(timeout=...)` above, whose result nobody asks for."""
    for item in own_nodes(scope_of(tree, line)):
        call = item.value if isinstance(item, ast.Expr) and item.lineno < line else None
        if isinstance(call, ast.Call) and called_name(call) == "wait" and "timeout" in {k.arg for k in call.keywords}:
            return f"Line {call.lineno} (`{source(call)}`)"
    return None
