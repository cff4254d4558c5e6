"""Two threads that took two locks in different orders: each waits for the one that the other holds.

A lock has no name at run time. Its expression in the source has one: of `with` around the line of a thread for what it
holds, of the line itself for what it waits for.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from itertools import dropwhile, pairwise, permutations

import msgspec

from pytracer._library_files import is_library_file, of_multiprocessing
from pytracer.analyze.evidence.syntax.calls import called_name, calls_on
from pytracer.analyze.evidence.syntax.names import last_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import class_around, classes_below, scope_of, withs_around
from pytracer.analyze.evidence.waits.finalizers import Finalizer, finalizer_between, is_finalizer
from pytracer.analyze.evidence.waits.interrupting import Interrupting, handler_between
from pytracer.analyze.evidence.waits.waits import end_of, main_native
from pytracer.analyze.naming import place_words
from pytracer.analyze.parts import python_frame
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import PythonFrame as SnapshotFrame
from pytracer.report.job import Evidence, PythonFrame

_OF_PROCESSES = of_multiprocessing("synchronize")
_MOST_THREADS, _MOST_FRAMES = 16, 32


class LockWait(msgspec.Struct, frozen=True):
    """A thread at a line that takes one of the locks `wants`, with those that `with` statements around it hold."""

    thread: str | None
    at: PythonFrame
    wants: frozenset[str]
    holds: dict[str, int]


class CrossedLocks(msgspec.Struct, frozen=True):
    """`first` holds what `second` waits for, and the other way round."""

    first: LockWait
    second: LockWait
    process: str | None = None
    """The name of the second one, where that is a process."""

    @property
    def words(self) -> str:
        """`it held `a` and waited for `b`, and its thread log held `b` and waited for `a` at train.py:9 in log`."""
        first, second = self._of(self.first, self.second), self._of(self.second, self.first)
        thread = f"its thread {self.second.thread}" if self.second.thread else "another thread"
        other = self.process or thread
        return f"it held {first}, and {other} held {second} at {place_words(self.second.at)}"

    @property
    def advice(self) -> str:
        """One order for both."""
        first, second = self.first, self.second
        (wanted,), (held,) = self._shared(first, second), self._shared(second, first)
        return (
            f"Take the two locks in one order everywhere: line {first.at.line} takes `{wanted}` inside of `{held}` "
            f"(line {first.holds[held]}), line {second.at.line} `{held}` inside of `{wanted}` (line "
            f"{second.holds[wanted]}). Or leave the first `with` before the second lock is taken."
        )

    @property
    def evidence(self) -> Evidence:
        """How that is known."""
        return Evidence(
            "thread-state",
            f"the `with` statements around line {self.first.at.line} and line {self.second.at.line} take the same two "
            "locks, by their names in the source, in opposite orders",
            thread=self.second.thread,
            python=self.second.at,
        )

    def _of(self, own: LockWait, other: LockWait) -> str:
        (wanted,), (held,) = self._shared(own, other), self._shared(other, own)
        return f"`{held}` and waited for `{wanted}`"

    @staticmethod
    def _shared(own: LockWait, other: LockWait) -> list[str]:
        """The one that `own` waits for and `other` holds."""
        return sorted(own.wants & other.holds.keys())[:1]


class LockHolder(msgspec.Struct, frozen=True):
    """A thread inside of a `with` statement of the lock, by its name in the source; the one that waits for it itself.

    `line`: of that `with`. `at`: where the thread was, and the library's function that this line had called.
    `finalizer`: through which it came to take it again. `made`: the line that makes the Lock.
    """

    own: bool
    thread: str | None
    lock: str
    line: int
    at: PythonFrame
    within: str | None
    finalizer: Finalizer | None = None
    made: int | None = None
    handler: Interrupting | None = None
    """Of a signal, by which it came to take it again."""

    @property
    def words(self) -> str:
        """`its thread feed was inside of `with lock` (line 9), at train.py:12 in feed, in Queue.put`."""
        if self.own:
            came = self.finalizer or self.handler
            by = came.words if came is not None else ""
            return f"the same thread was inside of `with {self.lock}` (line {self.line}) already{by}"
        who = f"its thread {self.thread}" if self.thread else "another thread"
        within = f", in {self.within}" if self.within is not None else ""
        return f"{who} was inside of `with {self.lock}` (line {self.line}), at {place_words(self.at)}{within}"

    @property
    def advice(self) -> str:
        """For one that waits for itself, and for one that does not let go."""
        if self.finalizer is not None:
            return self.finalizer.advice(self.lock, self.made)
        if self.handler is not None:
            return self.handler.advice(self.lock)
        if self.own:
            return (
                f"A Lock is not reentrant: leave the `with` of line {self.line} before `{self.lock}` is taken again, "
                "call a variant of that function which takes no lock, or make it an RLock."
            )
        return (
            f"Do not wait inside of `with {self.lock}` (line {self.line}): see what {place_words(self.at)} waits for, "
            "take that out of the lock, or give it a timeout."
        )


def lock_holder(view: ProcessView) -> LockHolder | None:
    """Of the lock that the main thread waits for; None where no one thread, or several, may have it."""
    end, snapshot = end_of(view), view.process.snapshot
    threads = {item.pthread: item for item in snapshot.threads}
    threads_of = end.python_threads[:_MOST_THREADS] if end is not None else ()
    stacks = {pthread: _above_lock(frames) for pthread, frames in threads_of}
    main = snapshot.main_pthread  # not recorded of a forked process
    if main is None and len(stacks) == 1:
        main = next(iter(stacks))
    own = stacks.get(main) if main is not None else None
    wants = wanted(view, own[0]) if own else frozenset[str]()
    found: list[LockHolder] = []
    for pthread, frames in stacks.items():
        held = holds(view, frames)
        at = next((place for place, item in enumerate(frames) if not is_library_file(item.file)), None)
        for lock in sorted(wants & held.keys()):
            if at is None:
                continue
            within = frames[at - 1].function if at else None
            if (within or "").startswith("Condition.wait"):
                continue  # which lets go of it meanwhile
            name = threads[pthread].name if pthread in threads else None
            holder = LockHolder(pthread == main, name, lock, held[lock], python_frame(frames[at]), within)
            taken = _held_itself(view, holder, frames) if pthread == main else holder
            found += [taken] if taken is not None else []
    return found[0] if len(found) == 1 else None


def _above_lock(frames: Sequence[SnapshotFrame]) -> Sequence[SnapshotFrame]:
    """Without the methods of multiprocessing's own locks, which are written in Python."""
    return [*dropwhile(lambda frame: (frame.file or "").endswith(_OF_PROCESSES), frames)]


def _held_itself(view: ProcessView, holder: LockHolder, frames: Sequence[SnapshotFrame]) -> LockHolder | None:
    """With the `__del__` that took the lock again; None where `self` is another object there: another lock."""
    place = next((n for n, item in enumerate(frames) if holder.lock in holds(view, [item])), 0)
    if not _is_one_lock(view, holder.lock, frames[0], frames[place]):
        return None
    if holder.lock.startswith("self.") and any(
        _is_of_another(view, outer, inner) for inner, outer in pairwise(frames[: place + 1])
    ):
        return None
    if _is_of_dying(view, holder.lock, frames[:place]):
        return None
    found = finalizer_between(view, frames, main_native(view), place)
    if found is None:
        return msgspec.structs.replace(holder, handler=handler_between(view, frames, place))
    return msgspec.structs.replace(holder, finalizer=found, made=_made(view, holder.lock, frames[0]))


def _is_one_lock(view: ProcessView, lock: str, first: SnapshotFrame, other: SnapshotFrame) -> bool:
    """Whether `self.lock` of two methods is of one class, or of one and its base, as far as that is known."""
    trees = [syntax_tree(view.process.snapshot, python_frame(item)) for item in (first, other)]
    owners = [
        class_around(tree, scope_of(tree, item.line)) if tree is not None and item.line is not None else None
        for tree, item in zip(trees, (first, other), strict=True)
    ]
    if not lock.startswith("self.") or owners[0] is owners[1] or None in owners:
        return True
    known = [item for item in trees if item is not None]
    return any(
        own is not None and other is not None and (own.name == other.name or other in classes_below(known, own))
        for own, other in (owners, owners[::-1])
    )


def _is_of_another(view: ProcessView, outer: SnapshotFrame, inner: SnapshotFrame) -> bool:
    """Whether a method calls one of its own class by another object, `self.below.get(key)`: that has its own lock."""
    if outer.file != inner.file or outer.line is None or inner.line is None:
        return False
    tree = syntax_tree(view.process.snapshot, python_frame(outer))
    if tree is None:
        return False
    owner = class_around(tree, scope_of(tree, outer.line))
    if owner is None or owner is not class_around(tree, scope_of(tree, inner.line)):
        return False
    name = (inner.function or "").rpartition(".")[2]
    called = [item.func for item in calls_on(tree, outer.line) if called_name(item) == name]
    objects = [ast.unparse(item.value) for item in called if isinstance(item, ast.Attribute)]
    return bool(objects) and not any(item in ("self", "cls", "super()", owner.name) for item in objects)


def _is_of_dying(view: ProcessView, lock: str, inner: Sequence[SnapshotFrame]) -> bool:
    """Whether `self.lock` is likely that of the object whose `__del__` runs: one that no method further out is of."""
    last = next((item for item in inner if is_finalizer(item)), None)
    tree = syntax_tree(view.process.snapshot, python_frame(inner[0])) if last is not None else None
    if last is None or tree is None or last.file != inner[0].file or not lock.startswith("self."):
        return False
    owners = [class_around(tree, scope_of(tree, item.line or 0)) for item in (inner[0], last)]
    return owners[0] is owners[1] is not None and _has_each(tree, lock)


def _has_each(tree: ast.Module, lock: str) -> bool:
    """Whether a method makes the lock: each object has its own. One that the body of a class makes is of all."""
    return any(lock == ast.unparse(target) for _, target in _made_locks(tree))


def _made(view: ProcessView, lock: str, frame: SnapshotFrame) -> int | None:
    """The only line of the file that makes a Lock and gives it that name."""
    tree, name = syntax_tree(view.process.snapshot, python_frame(frame)), lock.rpartition(".")[2]
    found = [line for line, target in _made_locks(tree) if last_name(target) == name] if tree is not None else []
    return found[0] if len(found) == 1 else None


def _made_locks(tree: ast.Module) -> Iterator[tuple[int, ast.expr]]:
    """Each target that a statement sets to a new Lock, with its line."""
    for item in nodes_of(tree):
        if not isinstance(item, (ast.Assign, ast.AnnAssign)):
            continue
        if isinstance(item.value, ast.Call) and called_name(item.value) == "Lock":
            for target in item.targets if isinstance(item, ast.Assign) else [item.target]:
                yield item.lineno, target


def crossed_locks(view: ProcessView) -> CrossedLocks | None:
    """None where no two threads wait so, or the source is not at hand. The main thread is the first, if it is one."""
    found = list(_waiting(view))
    for first, second in permutations(found, 2):
        wanted, held = first.wants & second.holds.keys(), second.wants & first.holds.keys()
        if wanted and held and wanted != held:
            return CrossedLocks(first, second)
    return None


def _waiting(view: ProcessView) -> Iterator[LockWait]:
    end, snapshot = end_of(view), view.process.snapshot
    threads = {item.pthread: item for item in snapshot.threads}
    stacks = end.python_threads[:_MOST_THREADS] if end is not None else ()
    main = snapshot.main_pthread
    for pthread, frames in sorted(stacks, key=lambda item: item[0] != main):
        found = _of_thread(view, frames, threads[pthread].name if pthread in threads and pthread != main else None)
        if found is not None:
            yield found


def _of_thread(view: ProcessView, frames: Sequence[SnapshotFrame], name: str | None) -> LockWait | None:
    inner = frames[0] if frames else None
    if inner is None:
        return None
    wants, held = wanted(view, inner), holds(view, frames)
    return LockWait(name, python_frame(inner), wants, held) if wants and held else None


def holds(view: ProcessView, frames: Sequence[SnapshotFrame]) -> dict[str, int]:
    """What the `with` statements around the lines of a stack have entered, by its source: name and line."""
    held: dict[str, int] = {}
    lines = {(item.file, item.line): item for item in frames}  # a handler may be in itself many times
    for frame in [*lines.values()][:_MOST_FRAMES]:
        tree = syntax_tree(view.process.snapshot, python_frame(frame)) if not is_library_file(frame.file) else None
        if tree is not None and frame.line is not None:
            held.update(_held_around(tree, frame.line))
    return held


def wanted(view: ProcessView, frame: SnapshotFrame) -> frozenset[str]:
    """Locks that the line takes, in which a thread was itself: not in something that it had called."""
    if frame.line is None or is_library_file(frame.file):
        return frozenset()
    tree = syntax_tree(view.process.snapshot, python_frame(frame))
    return frozenset(_taken_at(tree, frame.line)) if tree is not None else frozenset()


def _taken_at(tree: ast.Module, line: int) -> Iterator[str]:
    """`lock` of `with lock:` and of `lock.acquire()`."""
    for node in nodes_of(tree):
        if isinstance(node, ast.With):
            yield from (ast.unparse(item.context_expr) for item in node.items if item.context_expr.lineno == line)
        match node:
            case ast.Call(func=ast.Attribute(value=lock, attr="acquire"), lineno=at) if at == line:
                yield ast.unparse(lock)


def _held_around(tree: ast.Module, line: int) -> Iterator[tuple[str, int]]:
    """What the `with` statements of its function have entered where that line runs."""
    for node in withs_around(tree, line):
        yield from ((ast.unparse(item.context_expr), node.lineno) for item in node.items)
