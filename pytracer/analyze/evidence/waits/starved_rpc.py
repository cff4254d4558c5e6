"""torch.distributed.rpc: a worker whose RPC threads all wait for calls themselves, so that none is left to run these.

A worker runs the calls that it gets in a pool of threads. A call that waits for another one inside keeps its thread
meanwhile. Where the other one is to the same worker, the nested call needs one more thread of the same pool.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec

from pytracer._library_files import is_library_file
from pytracer._patterns import Pattern
from pytracer._text import list_words, shortened
from pytracer.analyze.evidence.syntax.calls import called_name, calls_on
from pytracer.analyze.evidence.syntax.scopes import own_nodes, scope_of
from pytracer.analyze.evidence.waits.rpc_pools import POOL_SIZE, RPC_FILES, PoolSize, is_complete, pool_size
from pytracer.analyze.evidence.waits.waits import end_of
from pytracer.analyze.naming import line_in, name_words, place_words
from pytracer.analyze.parts import python_frame
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import JobView, ProcessView
from pytracer.decode.types.snapshot import PythonFrame as SnapshotFrame
from pytracer.report.job import Confidence, Evidence, PythonFrame

_SERVES = Pattern(r"/torch/distributed/rpc/internal\.py$")
_FUTURES = Pattern(r"/torch/futures/__init__\.py$")
_RUNS = "_run_function"  # torch: what a thread of the pool calls for each function that a worker asks for
_WAITS = ("rpc_sync", "_invoke_rpc")
_WAITS_FOR_FUTURES = ("wait", "wait_all")
_CALLS = ("rpc_sync", "rpc_async", "remote")
_TO_HERE = "to_here"
_BOTH, _SHOWN, _LONGEST = 2, 3, 60


class Serving(msgspec.Struct, frozen=True):
    """A thread that runs a call for a worker, and waits for another call at a line of the program.

    `sure`: that it is a call which it waits for, and no other Future.
    """

    at: PythonFrame
    sure: bool


class _Worker(msgspec.Struct, frozen=True):
    """The threads of one worker that serve calls, all of which wait; `size` where it is known."""

    view: ProcessView
    serving: tuple[Serving, ...]
    size: PoolSize | None

    @property
    def is_full(self) -> bool:
        return self.size is not None and len(self.serving) == self.size.count


class StarvedRpc(msgspec.Struct, frozen=True):
    """`full`: the workers without a free thread. `others`: those whose threads wait, too, but that have free ones.

    `at`: where the first one's threads wait, `count` of them there. `call`: the text of that call, and `owner` of the
    RRef that it is made by.
    """

    full: tuple[_Worker, ...]
    others: tuple[_Worker, ...]
    at: PythonFrame
    count: int
    call: str | None
    owner: str | None
    complete: bool = True
    """Whether there are no more workers than are recorded, as far as the program says."""

    @property
    def view(self) -> ProcessView:
        """The worker to begin with."""
        return self.full[0].view

    @property
    def confidence(self) -> Confidence:
        """Less where another worker may run what they wait for, or they may wait for something else."""
        sure = all(item.sure for worker in (*self.full, *self.others) for item in worker.serving)
        return "likely" if sure and self.complete else "possible"

    @property
    def words(self) -> str:
        """After the worker."""
        first = self.full[0]
        count = len(first.serving)
        threads = {1: "its only RPC thread", _BOTH: "both its RPC threads"}.get(count, f"all its {count} RPC threads")
        size = first.size.words(self.at.file) if first.size is not None else ""
        there = f" waiting for calls, {self.count} of them" if self.count < count else ""
        what = f"in `{self.call}`, " if self.call is not None else "for "
        begin, left = "waited for itself", "only this worker had no thread left for it"
        if len(self.full) > 1:
            others = list_words([name_words([item.view]) for item in self.full[1:]], _SHOWN)
            begin, left = "got no further", f"{others} had no thread left, either"
        return (
            f"{begin}: {threads} ({size}) {'was' if count == 1 else 'were'}{there} at {place_words(self.at)}, {what}a "
            f"call that no {'' if self.complete else 'recorded '}worker ran; {left}"
        )

    @property
    def advice(self) -> str:
        """More threads; or no wait inside of what they run."""
        first = self.full[0]
        size = first.size
        setting = (
            f"`{POOL_SIZE}` ({line_in(size.file, size.line, self.at.file)})" if size and size.line else f"`{POOL_SIZE}`"
        )
        local = (
            f"use `{self.owner}.local_value()` where `{self.owner}.is_owner()`"
            if self.owner is not None
            else "call the function itself where it is this worker's own"
        )
        waits = (self.at.function or "").rpartition(".")[2] or "it"
        return (
            f"A call that waits for another one keeps its thread meanwhile. Let {waits}() not wait: {local}, "
            "or return a Future (@rpc.functions.async_execution, rpc_async().then()). Or give the pool more threads "
            f"than such calls may run at once: {setting}, now {len(first.serving)}."
        )

    @property
    def evidence(self) -> list[Evidence]:
        """The threads of the other workers, which wait as well."""
        return [
            Evidence(
                "rank-state",
                f"{name_words([item.view])} had {_threads(len(item.serving))} in a call, waiting for another one at "
                f"{place_words(item.serving[0].at)}",
                pid=item.view.process.snapshot.pid,
                rank=item.view.process.rank,
                python=item.serving[0].at,
            )
            for item in (*self.full[1:], *self.others)
        ][:_SHOWN]


def _threads(count: int) -> str:
    return f"{count} RPC thread{'s' if count > 1 else ''}"


def starved_rpc(job: JobView) -> StarvedRpc | None:
    """None where a call is being run anywhere, or every worker has a thread left as far as is known."""
    workers = []
    for view in job.views:
        stacks = [*_serving(view)]
        waits = [_waits(view, frames) for frames in stacks]
        known = tuple(item for item in waits if item is not None)
        if len(known) < len(waits):
            return None  # that one works
        if known:
            workers.append(_Worker(view, known, pool_size(view)))
    full = tuple(item for item in workers if item.is_full)
    if not full:
        return None
    at, count = Counter(item.at for item in full[0].serving).most_common(1)[0]
    call = _call(full[0].view, at)
    text = shortened(ast.unparse(call), _LONGEST) if call is not None else None
    others = tuple(item for item in workers if not item.is_full)
    return StarvedRpc(full, others, at, count, text, _owner(call), is_complete(job, full[0].view))


def _serving(view: ProcessView) -> Iterator[Sequence[SnapshotFrame]]:
    """The stacks of the threads that run a call for a worker."""
    end = end_of(view)
    for _, frames in end.python_threads if end is not None else ():
        if any(_SERVES.search(item.file) and item.function.rpartition(".")[2] == _RUNS for item in frames):
            yield frames


def _waits(view: ProcessView, frames: Sequence[SnapshotFrame]) -> Serving | None:
    """None where it works, or waits for something else."""
    place = next((n for n, item in enumerate(frames) if not is_library_file(item.file)), None)
    if place is None:
        return None
    at, inner = python_frame(frames[place]), frames[0]
    last = inner.function.rpartition(".")[2]
    if place and RPC_FILES.search(inner.file) and last in _WAITS:
        return Serving(at, sure=True)
    if place and _FUTURES.search(inner.file) and last in _WAITS_FOR_FUTURES:
        return Serving(at, _asks_others(view, at))
    calls = _calls_at(view, at) if not place else []
    return Serving(at, sure=True) if any(called_name(item) == _TO_HERE for item in calls) else None


def _asks_others(view: ProcessView, at: PythonFrame) -> bool:
    """Whether its function makes calls of which it has Futures."""
    tree = syntax_tree(view.process.snapshot, at)
    nodes = own_nodes(scope_of(tree, at.line)) if tree is not None and at.line is not None else ()
    return any(isinstance(item, ast.Call) and called_name(item) == "rpc_async" for item in nodes)


def _calls_at(view: ProcessView, at: PythonFrame) -> list[ast.Call]:
    tree = syntax_tree(view.process.snapshot, at)
    return calls_on(tree, at.line) if tree is not None and at.line is not None else []


def _call(view: ProcessView, at: PythonFrame) -> ast.Call | None:
    """`self.policy.rpc_sync().act(state)`: the outermost call on the line that is one to a worker."""
    found = [item for item in _calls_at(view, at) if _is_remote(item)]
    return max(found, key=lambda item: len(ast.unparse(item)), default=None)


def _is_remote(call: ast.Call) -> bool:
    """`rpc.rpc_sync(...)`, `rref.rpc_sync().act(...)`, `rref.to_here()`."""
    inner = call.func.value if isinstance(call.func, ast.Attribute) else None
    names = {called_name(call), called_name(inner) if isinstance(inner, ast.Call) else None}
    return bool(names & {*_CALLS, _TO_HERE})


def _owner(call: ast.Call | None) -> str | None:
    """`self.policy` of a call by an RRef; `rpc.rpc_async(to, ...).wait()` names the worker."""
    match call:
        case ast.Call(func=ast.Attribute(value=ast.Call(func=ast.Attribute(rref, name), args=[]))) if name in _CALLS:
            return ast.unparse(rref)
    return None
