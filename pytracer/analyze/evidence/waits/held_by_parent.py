"""A process that waits for its workers inside of what they wait for themselves: a lock, or LMDB's only writer.

LMDB (lmdb.tech/doc): one write transaction at a time, of all processes that have it open: begin(write=True)
of another one waits, in a mutex in shared memory, until it ends.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

import msgspec

from pytracer._library_files import is_library_file
from pytracer._patterns import Pattern
from pytracer._text import shortened
from pytracer.analyze.evidence.ends.signal_senders import from_time_limit
from pytracer.analyze.evidence.exceptions.loaders import waits_for_loader
from pytracer.analyze.evidence.syntax.calls import called_name, calls_on, keyword_value
from pytracer.analyze.evidence.syntax.names import last_name
from pytracer.analyze.evidence.syntax.scopes import own_nodes, scope_of, withs_around
from pytracer.analyze.evidence.waits.held_locks import Inside, inside_of, is_one_lock, taken_at, waits_between
from pytracer.analyze.evidence.waits.wait_chain import at_words, works
from pytracer.analyze.evidence.waits.wait_kinds import ProcessWait, WaitKind
from pytracer.analyze.evidence.waits.wait_words import wait_words
from pytracer.analyze.evidence.waits.waits import main_native, main_stack, wait_of, waiting_frame
from pytracer.analyze.kin import children_of
from pytracer.analyze.naming import line_in, name_words, names_words, place_words
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import JobView, ProcessView
from pytracer.report.job import Evidence, PythonFrame

_OF_WORKERS: tuple[WaitKind, ...] = ("queue", "message", "pool", "workers", "child", "undone", "notice", "executor")
_WRITES = Pattern(r"mdb\d*_txn_(begin|renew0?)")
_MUTEX = Pattern(r"_*(pthread_mutex_\w*lock\w*|lll_lock_wait\w*|futex\w*)")
_BEFORE_NS = 1_000_000_000
_ENDS = ("commit", "abort")
_NEAR, _MOST_FRAMES, _NAMED, _LONGEST = 8, 32, 2, 60


class HeldByParent(msgspec.Struct, frozen=True):
    """`workers`: those that wait for what `parent` holds, the first one at `at`."""

    parent: ProcessView
    wait: ProcessWait
    inside: Inside
    workers: tuple[ProcessView, ...]
    at: PythonFrame
    writer: bool
    """Whether it is LMDB's writer."""

    @property
    def words(self) -> str:
        """After the parent."""
        held = "LMDB's only write transaction" if self.writer else "the lock"
        names = names_words(self.workers, _NAMED)
        waited = f"waited {'to begin one' if self.writer else 'for that lock'} at {place_words(self.at)}"
        return (
            f"{wait_words(self.parent, self.wait)}{at_words(self.wait)}, while it held {held} (`{self.inside.lock}`, "
            f"{self._line(self.inside.line)}); {names} {waited}, so neither side can go on"
        )

    @property
    def advice(self) -> str:
        """The lock ends before the wait."""
        inside = self.inside
        here, taken = self._line(inside.frame.line), self._line(inside.line)
        if not self.writer:
            return (
                f"Release `{inside.lock}` ({taken}) before the wait at {here}: the workers take the same lock before "
                "they can answer. Hold it only around what it protects."
            )
        return (
            f"End the write transaction of {taken} before the wait at {here}: collect what is to be written, and write "
            "it in a short transaction after that, or one for each batch. Or give what the workers write a database "
            "file of its own, or let one process write for all."
        )

    @property
    def evidence(self) -> list[Evidence]:
        """Each that waits."""
        return [
            Evidence(
                "rank-state",
                f"{name_words([item])} waited at {place_words(at)}",
                pid=item.process.snapshot.pid,
                rank=item.process.rank,
                python=at,
            )
            for item in self.workers[:_NAMED]
            if (at := waiting_frame(item)) is not None
        ]

    def _line(self, line: int | None) -> str:
        """Of the file that the headline names first."""
        first = self.wait.at.file if self.wait.at is not None else self.inside.frame.file
        return line_in(self.inside.frame.file, line, first)


def held_by_parent(job: JobView) -> HeldByParent | None:
    """None where another process may hold it, or where not the parent waits for its workers."""
    for parent in job.views:
        wait = wait_of(parent)
        if wait is None or wait.at is None or not (wait.kind in _OF_WORKERS or waits_for_loader(parent)):
            continue
        if not from_time_limit(job, parent):
            continue
        children = children_of(job, parent)
        found = _writer(parent, wait, children) or _lock(parent, wait, children)
        if found is not None and not any(_may_answer(item, found) for item in children):
            return found
    return None


def _may_answer(view: ProcessView, found: HeldByParent) -> bool:
    """Whether it ran Python until then, and waited for nothing."""
    if any(view.index == item.index for item in found.workers) or view.python_frame is None or not works(view):
        return False
    ended, until = view.ended_ns, found.parent.ended_ns
    return ended is None or until is None or ended > until - _BEFORE_NS


def _lock(parent: ProcessView, wait: ProcessWait, children: Sequence[ProcessView]) -> HeldByParent | None:
    waiting = [item for item in children if waits_between(item)]
    for first in waiting:
        at = waiting_frame(first)
        wanted = taken_at(first, at) if at is not None and not is_library_file(at.file) else {}
        inside = inside_of(parent, main_stack(parent), wanted) if wanted else None
        if at is None or inside is None or not is_one_lock(first, at, parent, inside):
            continue
        if any(inside_of(item, main_stack(item), wanted) is not None for item in children if item not in waiting):
            continue  # that one holds it
        alike = tuple(item for item in waiting if waiting_frame(item) == at)
        return HeldByParent(parent, wait, inside, alike, at, writer=False)
    return None


def _writer(parent: ProcessView, wait: ProcessWait, children: Sequence[ProcessView]) -> HeldByParent | None:
    waiting = [item for item in children if _waits_to_write(item)]
    inside = _inside_writer(parent) if waiting else None
    at = waiting_frame(waiting[0]) if waiting else None
    if inside is None or at is None or is_library_file(at.file):
        return None
    if any(_inside_writer(item) is not None for item in children if item not in waiting):
        return None
    alike = tuple(item for item in waiting if waiting_frame(item) == at)
    return HeldByParent(parent, wait, inside, alike, at, writer=True)


def _waits_to_write(view: ProcessView) -> bool:
    """Whether it waits in a mutex of LMDB, for a transaction that the line of the program begins for writing."""
    native = main_native(view)[:_NEAR]
    inner = next((item.function for item in native if item.function is not None), None)
    if inner is None or _MUTEX.fullmatch(inner) is None:
        return False
    if not any(_WRITES.search(item.function or "") for item in native):
        return False
    at = waiting_frame(view)
    tree = syntax_tree(view.process.snapshot, at)
    calls = calls_on(tree, at.line) if tree is not None and at is not None and at.line is not None else []
    return not calls or any(_begins(item) for item in calls)


def _begins(node: ast.AST) -> bool:
    """`env.begin(write=True)`."""
    if not isinstance(node, ast.Call) or called_name(node) != "begin":
        return False
    value = keyword_value(node, "write")
    return isinstance(value, ast.Constant) and value.value is True


def _inside_writer(view: ProcessView) -> Inside | None:
    """Where its main thread was between the begin of such a transaction and its end."""
    own = [frame for frame in main_stack(view)[:_MOST_FRAMES] if not is_library_file(frame.file)]
    for frame in own:
        tree = syntax_tree(view.process.snapshot, frame)
        if tree is None or frame.line is None:
            continue
        for call in _begun(tree, frame.line):
            return Inside(shortened(ast.unparse(call), _LONGEST), call.lineno, frame, own[0])
    return None


def _begun(tree: ast.Module, line: int) -> Iterator[ast.expr]:
    """By `with`, or by an assignment above the line, whose commit() or abort() is not above it as well."""
    for node in withs_around(tree, line):
        yield from (item.context_expr for item in node.items if _begins(item.context_expr))
    nodes = [*own_nodes(scope_of(tree, line))]
    for item in nodes:
        if not isinstance(item, ast.Assign) or not _begins(item.value) or item.lineno >= line:
            continue
        names = {last_name(target) for target in item.targets}
        ended = [
            node.lineno
            for node in nodes
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _ENDS
            if last_name(node.func.value) in names
        ]
        if not any(item.lineno < at <= line for at in ended):
            yield item.value
