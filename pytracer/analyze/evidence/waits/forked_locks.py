"""A lock that somebody in the parent held at fork(): its copy stays locked in the child, where nobody releases it.

Who held it is not recorded. Of the parent's threads, those count that were inside of a `with` of that lock at the
parent's end, or else run a function that takes it, by the lines of the file. Where the copied frames of the child show
a `with` of the lock around the fork, the forking thread held it itself.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from itertools import pairwise

import msgspec

from pytracer._library_files import is_library_file
from pytracer._text import list_words, shortened
from pytracer.analyze.evidence.syntax.calls import called_name, calls_on
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import class_around, scope_of
from pytracer.analyze.evidence.waits.lock_takers import (
    MOST_FRAMES,
    Holder,
    Lock,
    acquired,
    at_end,
    by_source,
    entered_around,
)
from pytracer.analyze.evidence.waits.pipes import Starter, forked_at
from pytracer.analyze.evidence.waits.wait_kinds import ProcessWait
from pytracer.analyze.evidence.waits.waited_object import waited_object
from pytracer.analyze.evidence.waits.waits import main_stack
from pytracer.analyze.naming import place_words
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.report.job import Evidence, PythonFrame

_KINDS = ("Lock", "RLock", "Condition", "Semaphore", "BoundedSemaphore")
_QUOTED = 60
_GETTER = "__getitem__"


class ForkedLock(msgspec.Struct, frozen=True):
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
    lock = Lock(tree, wait.at, thing.name, thing.names, class_around(tree, scope_of(tree, wait.at.line)))
    fork = forked_at(stack)
    around = next((line for frame in stack[1:MOST_FRAMES] if (line := entered_around(view, frame, lock))), None)
    holder = None
    if around is None:
        holder = at_end(parent, lock) if parent is not None else None
        holder = holder or by_source(lock)
    return ForkedLock(
        thing.name,
        wait.at,
        _made(lock),
        lock.owner.name if lock.owner is not None and thing.name.startswith("self.") else None,
        fork,
        holder,
        around,
        acquired(lock) if holder is None and around is None else (),
        _reached(view, stack, thing.name),
        _starts(tree, fork) if fork is not None and fork[0].file == wait.at.file else None,
    )


def _made(lock: Lock) -> tuple[int, str] | None:
    """The only line that makes it, and what it binds there."""
    found = [
        (item.lineno, shortened(ast.unparse(target), _QUOTED))
        for item in nodes_of(lock.tree)
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
    made = [item.lineno for item in nodes_of(tree) if isinstance(item, ast.Call) and called_name(item) == starter]
    return made[0] if len(made) == 1 and made[0] != at.line else None
