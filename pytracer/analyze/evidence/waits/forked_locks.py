"""A lock that somebody in the parent held at fork(): its copy stays locked in the child, where nobody releases it.

Who held it is not recorded. Of the parent's threads, those count that were inside of a `with` of that lock at the
parent's end, or else run a function that takes it, by the lines of the file. Where the copied frames of the child show
a `with` of the lock around the fork, the forking thread held it itself.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from pytracer._library_files import is_library_file
from pytracer._text import list_words, shortened
from pytracer.analyze.evidence.syntax.calls import called_name, calls_on, keyword_value
from pytracer.analyze.evidence.syntax.scopes import (
    Function,
    Scope,
    class_around,
    class_named,
    function_named,
    own_nodes,
    scope_of,
    spans_body,
)
from pytracer.analyze.evidence.waits.pipes import Starter, forked_at
from pytracer.analyze.evidence.waits.waited_object import last_name, waited_object
from pytracer.analyze.evidence.waits.waits import ProcessWait, end_of, main_stack
from pytracer.analyze.naming import place_words
from pytracer.analyze.parts import python_frame
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.report.job import Evidence, PythonFrame

_CHILDREN = ("Process", "Pool", "ProcessPoolExecutor", "DataLoader", "fork", "spawn", "start_processes")
_KINDS = ("Lock", "RLock", "Condition", "Semaphore", "BoundedSemaphore")
_CALLS, _MOST_FRAMES, _QUOTED = 3, 32, 60
_GETTER = "__getitem__"


@dataclass(frozen=True)
class Holder:
    """A thread of the parent that takes the lock at `line` of `function`. `started`: the line that makes it.

    `name`: `thread refresher`. `at`: where it was when the parent ended, if inside of that `with`.
    """

    name: str
    started: int | None
    line: int
    function: str
    at: PythonFrame | None = None


@dataclass(frozen=True)
class ForkedLock:
    """`lock`: as the waiting line has it. `around`: the line of a `with` of the forking thread around the fork."""

    lock: str
    at: PythonFrame
    made: tuple[int, str] | None
    owner: str | None
    fork: tuple[PythonFrame, Starter] | None
    holder: Holder | None
    around: int | None
    acquired: tuple[tuple[int, str], ...]
    """Line and function of each acquire(), where no thread is known that holds it."""
    reached: str | None
    """From the dataset of a DataLoader: `stats.lock`."""
    starts: int | None
    """The line that makes the DataLoader, where that is another one than the one that forks."""

    @property
    def words(self) -> str:
        """What comes after the subject: what was waited for, and who had it."""
        made = f" (line {self.made[0]})" if self.made is not None else ""
        when = f"when {self._fork} forked it" if self.fork is not None else "at the fork"
        return f"waited at {place_words(self.at)} for `{self.lock}`{made}, which was locked {when}{self._held}"

    @property
    def evidence(self) -> Evidence | None:
        """Where the thread that holds it was when the parent ended."""
        holder = self.holder
        if holder is None or holder.at is None:
            return None
        return Evidence(
            "thread-state",
            f"{holder.name} in the parent was inside of that `with` at its end, too, at {place_words(holder.at)}",
            thread=holder.name,
            python=holder.at,
        )

    @property
    def taken(self) -> PythonFrame | None:
        """Where that thread takes it."""
        holder = self.holder
        return PythonFrame(holder.function, self.at.file, holder.line) if holder is not None else None

    @property
    def _fork(self) -> str:
        at = self.fork[0] if self.fork is not None else None
        return (f"line {at.line}" if at.file == self.at.file else place_words(at)) if at is not None else ""

    @property
    def _held(self) -> str:
        if self.around is not None:
            return f": the `with` of line {self.around} holds it around the fork"
        if self.holder is None:
            return ", and nobody in the child holds it"
        return (
            f": {self.holder.name} in the parent takes it at line {self.holder.line} in "
            f"{self.holder.function}, and does not run in a child"
        )

    @property
    def advice(self) -> str:
        """What to change, by who held it and what forks."""
        if self.around is not None and self.fork is not None:
            return (
                f"fork() copies the lock as it is, locked: leave the `with` of line {self.around} before "
                f"{self._fork} forks, or let the child make a lock of its own."
            )
        if self.holder is not None:
            ways = [self._own_lock, self._later, self._waits, self._spawn]
            return f"fork() copies the lock as {self.holder.name} has it: {'; or '.join(filter(None, ways))}."
        place = f" when {self._fork} forks" if self.fork is not None else " at the fork"
        taken = list_words([f"line {line} in {name}" for line, name in self.acquired])
        by = f" ({taken} takes it by acquire())" if self.acquired else ""
        first = f"fork() copies a lock as it is: see who holds it{place}{by}, and release it before"
        return "; or ".join(filter(None, (first, self._own_lock, self._spawn))) + "."

    @property
    def _own_lock(self) -> str:
        if self.fork is None or self.fork[1] != "DataLoader":
            return ""
        target = f" (`torch.utils.data.get_worker_info().dataset.{self.reached} = ...`)" if self.reached else ""
        return f"give each worker a lock of its own in `worker_init_fn`{target}"

    @property
    def _later(self) -> str:
        """Not of a DataLoader, which forks again in each epoch."""
        holder, fork = self.holder, self.fork
        if holder is None or holder.started is None or (fork is not None and fork[1] == "DataLoader"):
            return ""
        at = f" ({self._fork})" if fork is not None else ""
        return f"start that thread (line {holder.started}) after the children{at}"

    @property
    def _waits(self) -> str:
        if self.made is None:
            return ""
        name = self.made[1]
        return (
            f"let fork() wait until it is free: `os.register_at_fork(before={name}.acquire, "
            f"after_in_parent={name}.release, after_in_child={name}.release)` after line {self.made[0]}"
        )

    @property
    def _spawn(self) -> str:
        leaves = f", with a `__getstate__` of {self.owner} that leaves the lock out" if self.owner is not None else ""
        if self.fork is not None and self.fork[1] == "DataLoader":
            at = f" at line {self.starts}" if self.starts is not None else ""
            return f'pass `multiprocessing_context="spawn"`{at}{leaves}'
        return f"start the children by spawn{leaves}"


def forked_lock(view: ProcessView, wait: ProcessWait, parent: ProcessView | None) -> ForkedLock | None:
    """None where the line of the program does not show one lock. `parent`: where it was recorded."""
    if wait.kind != "forked-lock" or wait.at is None or wait.at.line is None:
        return None
    thing, tree = waited_object(view, wait), syntax_tree(view.process.snapshot, wait.at)
    if thing is None or tree is None:
        return None
    stack = main_stack(view)
    lock = _Lock(tree, wait.at, thing.name, thing.names, class_around(tree, scope_of(tree, wait.at.line)))
    fork = forked_at(stack)
    around = next((line for frame in stack[1:_MOST_FRAMES] if (line := _entered_around(view, frame, lock))), None)
    holder = None
    if around is None:
        holder = _at_end(parent, lock) if parent is not None else None
        holder = holder or _by_source(lock)
    acquired = _acquired(lock) if holder is None and around is None else ()
    made = _made(lock)
    return ForkedLock(
        thing.name,
        wait.at,
        made,
        lock.owner.name if lock.owner is not None and thing.name.startswith("self.") else None,
        fork,
        holder,
        around,
        acquired,
        _reached(view, stack, thing.name),
        _starts(tree, fork) if fork is not None and fork[0].file == wait.at.file else None,
    )


@dataclass(frozen=True)
class _Lock:
    """Of a file. `owner`: the class whose attribute it is, of a lock `self.lock`."""

    tree: ast.Module
    at: PythonFrame
    text: str
    names: frozenset[str]
    owner: ast.ClassDef | None

    def is_it(self, node: ast.expr, line: int) -> bool:
        """By its name; `self.lock` in methods of the same class alone."""
        if (last_name(node) or "") not in self.names:
            return False
        own = ast.unparse(node).startswith("self.")
        if own and self.text.startswith("self.") and self.owner is not None:
            other = class_around(self.tree, scope_of(self.tree, line))
            related = other is not None and (self.owner.name in _bases(other) or other.name in _bases(self.owner))
            return other is self.owner or related
        return True


def _bases(owner: ast.ClassDef) -> list[str]:
    return [ast.unparse(base).rpartition(".")[2] for base in owner.bases]


def _entered_around(view: ProcessView, frame: PythonFrame, lock: _Lock) -> int | None:
    """The line of a `with` of the lock in whose body a frame is."""
    if frame.file != lock.at.file or frame.line is None or syntax_tree(view.process.snapshot, frame) is None:
        return None
    return _with_around(lock, frame.line)


def _with_around(lock: _Lock, line: int) -> int | None:
    for node in own_nodes(scope_of(lock.tree, line)):
        if isinstance(node, ast.With) and spans_body(node.body, line):
            for item in node.items:
                if lock.is_it(item.context_expr, node.lineno):
                    return item.context_expr.lineno
    return None


def _at_end(parent: ProcessView, lock: _Lock) -> Holder | None:
    """The one thread of the parent, beside its main thread, that was inside of a `with` of the lock at its end."""
    end, snapshot = end_of(parent), parent.process.snapshot
    main = next((item.pthread for item in snapshot.threads if item.tid == snapshot.pid), None)
    found = []
    for pthread, frames in end.python_threads if end is not None else ():
        if pthread == main:
            continue
        stack = [python_frame(frame) for frame in frames[:_MOST_FRAMES]]
        for frame in stack:
            line = _entered_around(parent, frame, lock)
            if line is not None:
                found.append((line, frame, [item for item in stack if item.file == lock.at.file]))
                break
    if len(found) != 1:
        return None
    line, frame, own = found[0]
    outer = (own[-1].function or "?") if own else "?"
    starter = next((item for item in _threads(lock.tree) if item.runs(outer)), None)
    name = starter.name if starter is not None else f"the thread of {outer}()"
    return Holder(name, starter.line if starter is not None else None, line, frame.function or "?", frame)


@dataclass(frozen=True)
class _Thread:
    """A call that makes a thread, and the function that it runs."""

    name: str
    line: int
    function: Function

    def runs(self, function: str) -> bool:
        """By the name of a frame's function."""
        return function.rpartition(".")[2] == getattr(self.function, "name", None)


def _threads(tree: ast.Module) -> Iterator[_Thread]:
    """`Thread(target=refresh, name="stats")`, and calls of the classes that are threads."""
    for item in ast.walk(tree):
        name = called_name(item) if isinstance(item, ast.Call) else None
        if name is None or not isinstance(item, ast.Call):
            continue
        if name in ("Thread", "Timer"):
            target = keyword_value(item, "target", "function") or (item.args[1] if len(item.args) > 1 else None)
            run = function_named(tree, last_name(target) or "") if target is not None else None
            if run is not None:
                yield _Thread(_named(item) or f"the thread of {run.name}()", item.lineno, run)
            continue
        owner = class_named(tree, name)
        if owner is not None and "Thread" in _bases(owner):
            run = next((part for part in owner.body if isinstance(part, ast.FunctionDef) and part.name == "run"), None)
            if run is not None:
                calls = (
                    part for part in ast.walk(owner) if isinstance(part, ast.Call) and called_name(part) == "__init__"
                )
                name = next((text for part in calls if (text := _named(part))), f"thread {owner.name}")
                yield _Thread(name, item.lineno, run)


def _named(call: ast.Call) -> str | None:
    """`thread refresher`, of `name="refresher"`."""
    node = keyword_value(call, "name")
    return f"thread {node.value}" if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _by_source(lock: _Lock) -> Holder | None:
    """The one thread that the program starts, not after the children, whose functions take the lock.

    None where another function takes it by acquire(): the thread that forks may have called that.
    """
    found, lines = [], set[int]()
    for thread in _threads(lock.tree):
        if _comes_after_children(lock.tree, thread.line):
            continue
        taken = [*_takes(lock, thread.function, _CALLS)]
        lines |= {line for line, _ in taken}
        if taken:
            found.append(Holder(thread.name, thread.line, *taken[0]))
    others = any(line not in lines for line, _ in _acquired(lock) if line != lock.at.line)
    return found[0] if len({item.name for item in found}) == 1 and not others else None


def _acquired(lock: _Lock) -> tuple[tuple[int, str], ...]:
    """Lines that call acquire() of the lock, and their functions; not the one that waits."""
    return tuple(
        (item.lineno, _qualified(lock.tree, scope_of(lock.tree, item.lineno)))
        for item in ast.walk(lock.tree)
        if isinstance(item, ast.Call) and isinstance(item.func, ast.Attribute) and item.func.attr == "acquire"
        if item.lineno != lock.at.line and lock.is_it(item.func.value, item.lineno)
    )


def _comes_after_children(tree: ast.Module, line: int) -> bool:
    """Whether its function starts children only above that line."""
    made = [
        item.lineno
        for item in own_nodes(scope_of(tree, line))
        if isinstance(item, ast.Call) and called_name(item) in _CHILDREN
    ]
    return bool(made) and max(made) < line


def _takes(lock: _Lock, function: Function, depth: int) -> Iterator[tuple[int, str]]:
    """Line and function of each `with lock` and `lock.acquire()`, also in the functions that it calls."""
    for item in own_nodes(function):
        taken = [part.context_expr for part in item.items] if isinstance(item, ast.With) else []
        if isinstance(item, ast.Call) and isinstance(item.func, ast.Attribute) and item.func.attr == "acquire":
            taken = [item.func.value]
        for part in taken:
            if lock.is_it(part, part.lineno):
                yield part.lineno, _qualified(lock.tree, function)
    if depth:
        for item in own_nodes(function):
            called = function_named(lock.tree, called_name(item) or "") if isinstance(item, ast.Call) else None
            if called is not None and called is not function:
                yield from _takes(lock, called, depth - 1)


def _qualified(tree: ast.Module, function: Scope) -> str:
    owner, name = class_around(tree, function), getattr(function, "name", "the module")
    return f"{owner.name}.{name}" if owner is not None else name


def _made(lock: _Lock) -> tuple[int, str] | None:
    """The only line that makes it, and what it binds there."""
    found = [
        (item.lineno, shortened(ast.unparse(target), _QUOTED))
        for item in ast.walk(lock.tree)
        if isinstance(item, ast.Assign) and isinstance(item.value, ast.Call) and called_name(item.value) in _KINDS
        for target in item.targets
        if lock.is_it(target, item.lineno)
    ]
    return found[0] if len(found) == 1 else None


def _reached(view: ProcessView, stack: Sequence[PythonFrame], text: str) -> str | None:
    """`stats.lock`: over the objects whose methods lead from __getitem__ of the dataset to the lock."""
    first = next((n for n, frame in enumerate(stack) if not is_library_file(frame.file)), 0)
    for inner, outer in pairwise(stack[first:]):
        if not text.startswith("self."):
            return None
        name = (inner.function or "").rpartition(".")[2]
        if name == _GETTER:
            return text.removeprefix("self.")
        tree = syntax_tree(view.process.snapshot, outer)
        calls = calls_on(tree, outer.line) if tree is not None and outer.line is not None else []
        owners = [item.func.value for item in calls if isinstance(item.func, ast.Attribute) and item.func.attr == name]
        if len(owners) != 1:
            return None
        text = f"{ast.unparse(owners[0])}{text.removeprefix('self')}"
    return None


def _starts(tree: ast.Module, fork: tuple[PythonFrame, Starter]) -> int | None:
    """The only line that makes such a DataLoader."""
    at, starter = fork
    made = [item.lineno for item in ast.walk(tree) if isinstance(item, ast.Call) and called_name(item) == starter]
    return made[0] if len(made) == 1 and made[0] != at.line else None
