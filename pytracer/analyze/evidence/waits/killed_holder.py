"""A process that a signal ended inside of a lock between processes: nobody gives it back, and others wait for ever.

A lock of multiprocessing is a semaphore without an owner: the end of the process that took it does not release it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

import msgspec

from pytracer._library_files import is_library_file
from pytracer._text import list_words
from pytracer.analyze.evidence.ends.signal_senders import from_time_limit, sender_words
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.scopes import own_nodes, scope_of, withs_around
from pytracer.analyze.evidence.waits.busy import busy_at
from pytracer.analyze.evidence.waits.wait_kinds import ProcessWait
from pytracer.analyze.evidence.waits.waited_object import last_name
from pytracer.analyze.evidence.waits.waits import end_of, main_native, main_stack, wait_of, waiting_frame
from pytracer.analyze.naming import line_in, name_words, place_words
from pytracer.analyze.parts import python_frame
from pytracer.analyze.platform.signals import SIGHUP, SIGINT, SIGTERM, signal_name
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import JobView, ProcessView
from pytracer.report.job import Evidence, PythonFrame

_SEMAPHORE = "_multiprocessing_SemLock_acquire_impl"  # CPython; threading has locks of another kind
_SYNCHRONIZE = re.compile(r"/multiprocess(ing)?/synchronize\.py$")
_MADE = ("Lock", "RLock", "Semaphore", "BoundedSemaphore", "Condition")
_SERVERS = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")
_SIGNALS = (SIGTERM, SIGINT, SIGHUP)
_BEFORE_NS = 2_000_000_000
_NEAR, _MOST_FRAMES, _NAMED = 8, 32, 3


class Inside(msgspec.Struct, frozen=True):
    """Where a process was between the taking of a lock and its release. `line`: of the taking, in the file of `frame`.

    `inner`: its innermost line of the program, which `frame` had called or is.
    """

    lock: str
    line: int
    frame: PythonFrame
    inner: PythonFrame


class KilledHolder(msgspec.Struct, frozen=True):
    """`waiting`: all that wait for the lock of `inside`, the first one at `at`. `asking`: their parent, if it waits."""

    killed: ProcessView
    inside: Inside
    waiting: tuple[ProcessView, ...]
    at: PythonFrame
    asking: tuple[ProcessView, ProcessWait] | None

    def words(self, job: JobView) -> str:
        """The subject is the killed process."""
        name, by = signal_name(self.killed.process.signal or 0), sender_words(job, self.killed)
        sent = f", sent by {by}," if by else ""
        return (
            f"{name_words([self.killed])} was at {place_words(self.inside.inner)}{self._loop} and held {self._lock} "
            f"when {name}{sent} ended it, so nobody releases that any more; {self._waiting} waited for it at "
            f"{place_words(self.at)}"
        )

    @property
    def advice(self) -> str:
        """Not to end a process so, and not to do in the lock what may take long."""
        inside, sent = self.inside, next((item.frame for item in self.killed.senders if item.frame is not None), None)
        at = f" at {line_in(sent.file, sent.line, inside.inner.file)}" if sent is not None else ""
        did = f"`{inside.inner.function}`" if inside.inner.function else "that"
        called = inside.inner != inside.frame
        here = line_in(inside.frame.file, inside.frame.line, inside.inner.file)
        out = (
            f"Take what takes long out of the lock: {here}, inside of {self._lock}, called {did}, which was at "
            f"{line_in(inside.inner.file, inside.inner.line, inside.inner.file)} then; see why it took so long."
            if called
            else f"Hold {self._lock} for as short as it can be: {here} ran inside of it; see why it took so long."
        )
        return (
            f"{out} A process that is ended by a signal gives no lock of multiprocessing back: do not end{at} one that "
            "may hold it; end it by a message or an Event, or make a new lock, with new workers, after it. "
            "acquire(timeout=...) does not wait for ever."
        )

    @property
    def evidence(self) -> list[Evidence]:
        """Where the killed process was, and each that waits."""
        killed = self.killed.process
        return [
            Evidence(
                "rank-state",
                f"{name_words([self.killed])} was at {place_words(self.inside.frame)}, inside of {self._lock}",
                pid=killed.snapshot.pid,
                rank=killed.rank,
                python=self.inside.frame,
            ),
            *(
                Evidence(
                    "rank-state",
                    f"{name_words([item])} waited for that lock",
                    pid=item.process.snapshot.pid,
                    rank=item.process.rank,
                    python=waiting_frame(item),
                )
                for item in self.waiting[:_NAMED]
            ),
        ]

    @property
    def _loop(self) -> str:
        """`, in the loop `while level < target` (line 9)`."""
        busy, inner = busy_at(self.killed), self.inside.inner
        loop = busy.loop if busy is not None and busy.at == inner else None
        return f", in the loop `while {loop[1]}` ({line_in(inner.file, loop[0], inner.file)})" if loop else ""

    @property
    def _lock(self) -> str:
        here = line_in(self.inside.frame.file, self.inside.line, self.inside.inner.file)
        return f"the lock `{self.inside.lock}` ({here})"

    @property
    def _waiting(self) -> str:
        more = len(self.waiting) > _NAMED
        return list_words([name_words([item]) for item in self.waiting[:_NAMED]] + ["others"] * more)


def killed_holder(job: JobView) -> KilledHolder | None:
    """None where a living process may hold the lock, or the two locks may be different ones."""
    killed = [view for view in job.views if view.process.signal in _SIGNALS and not view.raised]
    waiting = [view for view in job.views if _waits_between(view) and from_time_limit(job, view)] if killed else []
    for first in waiting:
        at = waiting_frame(first)
        if at is None or is_library_file(at.file):
            continue
        wanted = _taken_at(first, at)
        for view in killed:
            related = _family(view) in (_family(first), _own(first))
            inside = _inside(view, wanted) if related and _ended_before(view, first) else None
            if inside is None or not _is_one_lock(first, at, view, inside) or _is_held(job, view, first, wanted):
                continue
            alike = tuple(item for item in waiting if waiting_frame(item) == at)
            return KilledHolder(view, inside, alike, at, _asking(job, first))
    return None


def _waits_between(view: ProcessView) -> bool:
    """Whether its main thread waits for a lock of multiprocessing in a line of the program."""
    wait = wait_of(view)
    if wait is None or wait.kind != "lock":
        return False
    stack = main_stack(view)
    by_file = bool(stack) and _SYNCHRONIZE.search(stack[0].file or "") is not None
    return by_file or any(frame.function == _SEMAPHORE for frame in main_native(view)[:_NEAR])


def _taken_at(view: ProcessView, at: PythonFrame) -> dict[str, str]:
    """The last names of what `with lock:` or `lock.acquire()` of that line takes, with the whole text."""
    tree, found = syntax_tree(view.process.snapshot, at), dict[str, str]()
    for node in ast.walk(tree) if tree is not None else ():
        taken = [item.context_expr for item in node.items] if isinstance(node, ast.With) else []
        taken += [item] if (item := _of_call(node, "acquire")) is not None else []
        for part in taken:
            name = last_name(part)
            if part.lineno == at.line and name is not None:
                found[name] = ast.unparse(part)
    return found


def _of_call(node: ast.AST, method: str) -> ast.expr | None:
    """`lock` of `lock.acquire()`."""
    match node:
        case ast.Call(func=ast.Attribute(value=lock, attr=found)) if found == method:
            return lock
    return None


def _inside(view: ProcessView, wanted: dict[str, str]) -> Inside | None:
    """Of the main thread, where it took one of these by `with`, or by acquire(), and was not beyond the release."""
    return _inside_of(view, main_stack(view)[:_MOST_FRAMES], wanted)


def _inside_of(view: ProcessView, stack: Sequence[PythonFrame], wanted: dict[str, str]) -> Inside | None:
    own = [frame for frame in stack if not is_library_file(frame.file)]
    called = stack[stack.index(own[0]) - 1].function if own and stack[0] != own[0] else None
    if (called or "").startswith("Condition.wait"):
        return None  # which lets go of it meanwhile
    for frame in own:
        tree = syntax_tree(view.process.snapshot, frame)
        if tree is None or frame.line is None:
            continue
        for taken, line in _held_around(tree, frame.line):
            if last_name(taken) in wanted:
                return Inside(ast.unparse(taken), line, frame, own[0])
    return None


def _held_around(tree: ast.Module, line: int) -> Iterator[tuple[ast.expr, int]]:
    """What the function has taken where that line runs."""
    for node in withs_around(tree, line):
        yield from ((item.context_expr, item.context_expr.lineno) for item in node.items)
    nodes = [*own_nodes(scope_of(tree, line))]
    for node in nodes:
        taken = _of_call(node, "acquire")
        if taken is None or taken.lineno >= line:
            continue
        released = [item.lineno for other in nodes if (item := _of_call(other, "release")) is not None
                    and ast.unparse(item) == ast.unparse(taken)]  # fmt: skip
        if any(item > line for item in released) and not any(taken.lineno <= item <= line for item in released):
            yield taken, taken.lineno


def _is_one_lock(first: ProcessView, at: PythonFrame, killed: ProcessView, inside: Inside) -> bool:
    """Whether both lines name the same one: the same statement, or a name that the program gives to one lock only."""
    if (at.file, at.line) == (inside.frame.file, inside.line):
        return True
    trees = {at.file: syntax_tree(first.process.snapshot, at)}
    trees[inside.frame.file] = syntax_tree(killed.process.snapshot, inside.frame)
    name = inside.lock.rpartition(".")[2]
    made = [item for tree in trees.values() if tree is not None for item in _made(tree, name)]
    return len(made) == 1


def _made(tree: ast.Module, name: str) -> Iterator[ast.Assign]:
    for item in ast.walk(tree):
        if not (isinstance(item, ast.Assign) and isinstance(item.value, ast.Call)):
            continue
        if called_name(item.value) in _MADE and any(last_name(target) == name for target in item.targets):
            yield item


def _is_held(job: JobView, killed: ProcessView, first: ProcessView, wanted: dict[str, str]) -> bool:
    """Whether another process that ran until then was inside of such a lock, or its stack is not known."""
    for view in job.views:
        is_near = _family(killed) in (_family(view), _own(view)) and not _is_helper(view)
        if not is_near or _ended_before(view, first):
            continue
        end = end_of(view)
        if not main_stack(view) and end is None:
            return True
        if any(_inside_of(view, stack[:_MOST_FRAMES], wanted) is not None for stack in _stacks(view)):
            return True
    return False


def _stacks(view: ProcessView) -> Iterator[Sequence[PythonFrame]]:
    """Of all its threads."""
    end, main = end_of(view), view.process.snapshot.main_pthread
    yield main_stack(view)
    for pthread, frames in end.python_threads if end is not None else ():
        if pthread != main:
            yield [python_frame(item) for item in frames]


def _is_helper(view: ProcessView) -> bool:
    """A program without Python, or a server of multiprocessing's."""
    snapshot = view.process.snapshot
    is_server = any(name in word for word in snapshot.argv for name in _SERVERS)
    return is_server or (view.python_frame is None and snapshot.versions.python is None)


def _asking(job: JobView, first: ProcessView) -> tuple[ProcessView, ProcessWait] | None:
    parent = next((view for view in job.views if _own(view) == _family(first)), None)
    wait = wait_of(parent) if parent is not None else None
    return (parent, wait) if parent is not None and wait is not None else None


def _own(view: ProcessView) -> tuple[str | None, int]:
    return view.process.snapshot.boot_id, view.process.snapshot.pid


def _family(view: ProcessView) -> tuple[str | None, int]:
    return view.process.snapshot.boot_id, view.process.snapshot.ppid


def _ended_before(view: ProcessView, other: ProcessView) -> bool:
    return view.ended_ns is not None and other.ended_ns is not None and view.ended_ns <= other.ended_ns - _BEFORE_NS
