"""Items of a queue that were taken and never marked as done, of a process that waits in join() for all of them.

task_done() belongs to each get(). Where all who took items have ended, or ask for the next one, nobody calls it any
more: a branch that goes on with the next item without the call shows why.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

import msgspec

from pytracer._patterns import Pattern
from pytracer._text import list_words, shortened, time_words
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.syntax.loops import loops_around
from pytracer.analyze.evidence.syntax.names import last_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import own_nodes, qualified_name, scope_of, spans_body
from pytracer.analyze.evidence.waits.wait_kinds import ProcessWait
from pytracer.analyze.evidence.waits.waited_object import waited_object
from pytracer.analyze.evidence.waits.waits import end_of, is_between_processes, main_stack, program_stack, wait_of
from pytracer.analyze.kin import children_of, ended_before
from pytracer.analyze.naming import line_in, names_words
from pytracer.analyze.view import JobView, ProcessView

_MANAGERS = Pattern(r"/multiprocess(?:ing)?/managers\.py$")
_LONGEST, _NAMED = 60, 3
_BEFORE_NS = 1_000_000_000
_HEADS = (ast.If, ast.ExceptHandler)
DONE, _GETS = "task_done", ("get", "get_nowait")


class Skipped(msgspec.Struct, frozen=True):
    """A branch that leaves for the next item at `line`, by `how`, without the call that the lines below it make.

    `head`, `head_line`: what it stands below.
    """

    file: str
    line: int
    how: str
    head: str
    head_line: int
    function: str
    call: str


class UndoneItems(msgspec.Struct, frozen=True):
    """`ended`: children that had ended in order. `idle`: those that wait for their next item."""

    ended: tuple[ProcessView, ...]
    idle: int
    since_ns: int | None
    skipped: tuple[Skipped, ...]
    here: str | None
    """The file of the line that waits."""

    @property
    def words(self) -> str:
        """After the wait."""
        names = names_words(self.ended)
        ago = f" {time_words(self.since_ns)} before" if self.since_ns is not None else ""
        ended = f"{names} had ended in order{ago}" if self.ended else ""
        idle = ("the other children" if self.ended else "its children") + " waited for their next item"
        who = f"{ended}{' and ' if ended and self.idle else ''}{idle if self.idle else ''}"
        nobody = f"{who}, so nobody calls {DONE}() any more"
        if len(self.skipped) != 1:
            return nobody
        only = self.skipped[0]
        return (
            f"{nobody}; the `{only.how}` of {self._line(only, only.line)} in {only.function} leaves an item without "
            f"`{only.call}`"
        )

    @property
    def advice(self) -> str | None:
        """Where the call is missing; None where the source does not show it."""
        if not self.skipped:
            return None
        places = list_words([f"the `{item.how}` of {self._line(item, item.line)}" for item in self.skipped[:_NAMED]])
        only = self.skipped[0] if len(self.skipped) == 1 else None
        below = f", below `{only.head}`" if only is not None and only.how == "continue" else ""
        where = "on the way of" if any(item.how != "continue" for item in self.skipped) else "before"
        join = (
            " join() of the workers themselves, in place of the queue's, does not depend on that."
            if not self.idle
            else ""
        )
        return (
            f"Call `{self.skipped[0].call}` {where} {places}, too{below}: each item that get() has taken needs it "
            f"once, so a `try` around the work with the call in `finally` is safest.{join}"
        )

    def _line(self, item: Skipped, line: int) -> str:
        return line_in(item.file, line, self.here)


def joins_items(view: ProcessView) -> bool:
    """Whether it waits in join() of a queue between processes: who asks that queue for an item is idle."""
    wait = wait_of(view)
    return wait is not None and wait.kind == "undone" and is_between_processes(view)


def undone_items(job: JobView, view: ProcessView, wait: ProcessWait) -> UndoneItems | None:
    """Of a queue between processes; None while a child was at work, had failed, or was ended by a signal."""
    if wait.kind != "undone" or wait.at is None or not is_between_processes(view):
        return None
    children = [item for item in children_of(job, view) if item.process.snapshot.worker is None]
    gone = [item for item in children if ended_before(item, view, _BEFORE_NS)]
    rest = [
        item for item in children if item not in gone and item.python_frame is not None and not serves_manager(item)
    ]
    if any(item.process.status_kind != "exited" or item.process.exit_code or item.raised for item in gone):
        return None
    if not (gone or rest) or not all(asks_for_item(item) for item in rest):
        return None
    end = end_of(view)
    last = max((item.process.ended_mono_ns or 0 for item in gone), default=0)
    since = end.mono_ns - last if end is not None and last and not rest else None
    return UndoneItems(tuple(gone), len(rest), since, tuple(_skipped(view, wait)), wait.at.file)


def serves_manager(view: ProcessView) -> bool:
    """The process of a manager."""
    return any(_MANAGERS.search(frame.file or "") for frame in main_stack(view))


def asks_for_item(view: ProcessView) -> bool:
    """Whether it waits for an item of a queue between processes."""
    wait = wait_of(view)
    return wait is not None and wait.kind == "queue" and is_between_processes(view)


def _skipped(view: ProcessView, wait: ProcessWait) -> Iterator[Skipped]:
    """In the functions that mark items of this queue as done, by its names."""
    thing = waited_object(view, wait)
    own = program_stack(view)
    names = thing.names if thing is not None else frozenset()
    for file, tree in program_files(view.process.snapshot, own).items():
        for call in nodes_of(tree):
            name = call_owner(call, (DONE,))
            if name is None or (file == (wait.at.file if wait.at else None) and name not in names):
                continue
            yield from skipped_in(file, tree, call, name)  # type: ignore[arg-type]


def skipped_in(file: str, tree: ast.Module, call: ast.Call, name: str) -> Iterator[Skipped]:
    """Of the last such call of a loop: what leaves between the get() above it and it."""
    scope = scope_of(tree, call.lineno)
    nodes = [*own_nodes(scope)]
    loops = loops_around(tree, call.lineno)
    taken = [item.lineno for item in nodes if takes_item(item, name) and item.lineno < call.lineno]  # type: ignore[attr-defined]
    if not taken or not loops or loops[-1].lineno > max(taken):
        return
    later = [item.lineno for item in nodes if call_owner(item, (DONE,)) == name]  # type: ignore[attr-defined]
    if any(call.lineno < line <= (loops[-1].end_lineno or 0) for line in later):
        return
    function = qualified_name(tree, scope, "the module")
    finals = [item for item in nodes if isinstance(item, ast.Try) and spans_body(item.finalbody, call.lineno)]
    for item in nodes:
        if any(item.lineno < part.finalbody[0].lineno for part in finals if isinstance(item, _HEADS)):
            continue  # `finally` runs on the way out, too
        if isinstance(item, ast.Try) and spans_body(item.body, call.lineno) and not item.finalbody:
            yield from _caught(item, name, file, function, call)
        if isinstance(item, ast.If) and max(taken) < item.lineno < call.lineno:
            head = shortened(f"if {ast.unparse(item.test)}", _LONGEST)
            yield from _left(item.body, name, file, head, item.lineno, function, call)
        if isinstance(item, ast.ExceptHandler) and max(taken) < item.lineno < call.lineno:
            head = f"except {ast.unparse(item.type)}" if item.type is not None else "except"
            yield from _left(item.body, name, file, head, item.lineno, function, call)


def _caught(item: ast.Try, name: str, file: str, function: str, call: ast.Call) -> Iterator[Skipped]:
    """Handlers of an error before the call, which let the loop go on without it."""
    first = item.body[0].lineno < call.lineno
    for handler in item.handlers if first else ():
        marked = any(call_owner(part, (DONE,)) == name for part in nodes_of(handler))
        if not marked and not isinstance(handler.body[-1], (ast.Raise, ast.Return, ast.Break)):
            head = f"except {ast.unparse(handler.type)}" if handler.type is not None else "except"
            text = shortened(ast.unparse(call), _LONGEST)
            yield Skipped(file, handler.lineno, head, head, handler.lineno, function, text)


def _left(
    body: Sequence[ast.stmt], name: str, file: str, head: str, line: int, function: str, call: ast.Call
) -> Iterator[Skipped]:
    """`continue` goes on with the next item; one that ends the loop may have its reason."""
    last = body[-1]
    marked = any(call_owner(item, (DONE,)) == name for statement in body for item in nodes_of(statement))
    if isinstance(last, ast.Continue) and not marked:
        yield Skipped(file, last.lineno, "continue", head, line, function, shortened(ast.unparse(call), _LONGEST))


def takes_item(node: ast.AST, name: str) -> bool:
    """`jobs.get()`, and `jobs.get` of `iter(jobs.get, None)`."""
    return isinstance(node, ast.Attribute) and node.attr in _GETS and last_name(node.value) == name


def call_owner(node: ast.AST, methods: Sequence[str]) -> str | None:
    """`jobs` of `jobs.task_done()`."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr not in methods:
        return None
    return last_name(node.func.value)
