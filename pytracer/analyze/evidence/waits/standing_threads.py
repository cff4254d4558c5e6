"""The other threads of a process, where each waits for something that only a thread of that process can end."""

from __future__ import annotations

import ast
from collections.abc import Sequence

import msgspec

from pytracer._library_files import is_library_file
from pytracer._patterns import Pattern
from pytracer.analyze.behind import Place
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import spans
from pytracer.analyze.evidence.waits.lock_order import wanted
from pytracer.analyze.evidence.waits.waits import end_of
from pytracer.analyze.parts import python_frame
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import PythonFrame as SnapshotFrame
from pytracer.report.job import PythonFrame

# Of threading and queue: what they wait for, another thread of the process has to do. Names are bare in CPython 3.10.
_IN_MEMORY = frozenset({"get", "put", "join", "wait", "wait_for", "acquire", "__enter__", "result", "result_iterator"})
_METHODS = {"result_iterator": "result", "__enter__": "acquire"}
_OWN = Pattern(r"/(threading|queue|concurrent/futures/(_base|thread))\.py$")
# Threads that do nothing by themselves: those of an executor between two tasks, and those that send or look on.
_IDLE = Pattern(
    r"/(concurrent/futures/thread|multiprocess(?:ing)?/(queues|resource_sharer)|tqdm/_monitor|logging/handlers)\.py$"
)


class ThreadReason(msgspec.Struct, frozen=True):
    """`words`: after the wait. `places`: the lines that decide it. `sure`: whether it can never end."""

    words: str
    advice: str
    places: tuple[Place, ...] = ()
    sure: bool = True


class StandingThread(msgspec.Struct, frozen=True):
    """`called`: the function of the library that its line had called; None where the line itself takes one of `locks`.

    `frames`: its stack, innermost first.
    """

    name: str | None
    at: PythonFrame
    called: str | None
    frames: tuple[SnapshotFrame, ...]
    locks: frozenset[str]

    @property
    def who(self) -> str:
        """`its thread ema`."""
        return f"its thread {self.name}" if self.name else "another thread"


def others_of(view: ProcessView) -> list[Sequence[SnapshotFrame]]:
    """The stacks of the other threads, without those that do nothing by themselves."""
    end, main = end_of(view), view.process.snapshot.main_pthread
    stacks = end.python_threads if end is not None else ()
    return [frames for pthread, frames in stacks if pthread != main and not _is_idle(frames)]


def standing_threads(view: ProcessView) -> list[StandingThread]:
    """All other threads of a process, where each of them stands so; none where one may be at work."""
    end, snapshot = end_of(view), view.process.snapshot
    process = next((item.name for item in snapshot.threads if item.tid == snapshot.pid), None)
    names = {item.pthread: item.name for item in snapshot.threads if item.name != process}
    found = []
    for pthread, frames in end.python_threads if end is not None else ():
        if pthread == snapshot.main_pthread or _is_idle(frames):
            continue
        stands = _standing(view, names.get(pthread), frames)
        if stands is None:
            return []
        found.append(stands)
    return found


def threads_words(threads: Sequence[StandingThread]) -> str:
    """`its thread ema`, `3 threads`."""
    return threads[0].who if len(threads) == 1 else f"{len(threads)} threads"


def _standing(view: ProcessView, name: str | None, frames: Sequence[SnapshotFrame]) -> StandingThread | None:
    place = next((number for number, item in enumerate(frames) if not is_library_file(item.file)), None)
    if place is None:
        return None
    at = python_frame(frames[place])
    if place == 0:
        locks = wanted(view, frames[0])
        ever = bool(locks) and not _limited(view, at, "acquire")
        return StandingThread(name, at, None, tuple(frames), locks) if ever else None
    called = frames[place - 1].function or ""
    method = called.rpartition(".")[2]
    own = all(_OWN.search(item.file) for item in frames[:place])
    if not own or method not in _IN_MEMORY or _limited(view, at, _METHODS.get(method, method)):
        return None
    return StandingThread(name, at, called, tuple(frames), frozenset())


def _limited(view: ProcessView, at: PythonFrame, method: str) -> bool:
    """Whether the line gives the call a time limit, or may: it has arguments besides what is put or asked."""
    tree, line = syntax_tree(view.process.snapshot, at), at.line
    if tree is None or line is None:
        return True
    calls = [
        item
        for item in nodes_of(tree)
        if isinstance(item, ast.Call) and isinstance(item.func, ast.Attribute) and item.func.attr == method
        if spans(item, line)
    ]
    most = 1 if method in ("put", "wait_for") else 0
    return any(item.keywords or len(item.args) > most for item in calls)


def _is_idle(frames: Sequence[SnapshotFrame]) -> bool:
    """Whether it has no line of the program, and waits in a loop of a library for what others give it."""
    return not any(not is_library_file(item.file) for item in frames) and any(
        _IDLE.search(item.file) for item in frames[:6]
    )
