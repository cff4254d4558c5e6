"""What took from the queue that a child at its end waits for, where that had ended before all was put.

The parent joins the child, and would wait for ever; that it does not read the queue itself is no mistake then.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

import msgspec

from pytracer._text import list_words
from pytracer.analyze.evidence.syntax.calls import called_name, keyword_value
from pytracer.analyze.evidence.syntax.loops import loops_around
from pytracer.analyze.evidence.syntax.names import last_name, variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.passing import names_of_object
from pytracer.analyze.evidence.syntax.scopes import Scope, class_around, own_nodes, qualified_name, scope_of, spans
from pytracer.analyze.evidence.waits.queue_marks import puts_into
from pytracer.analyze.evidence.waits.unread_at_exit import Reader, gets_of, reader_of
from pytracer.analyze.evidence.waits.unread_queues import entries, unread_queue
from pytracer.analyze.evidence.waits.wait_advice import LEFT
from pytracer.analyze.evidence.waits.wait_kinds import ProcessWait
from pytracer.analyze.evidence.waits.waits import main_stack
from pytracer.analyze.kin import children_of, left_by
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import JobView, ProcessView


class EndedReader(msgspec.Struct, frozen=True):
    """`marks`: the lines that put the mark at which the reader ends, each in a function that children run: `by`."""

    queue: str
    reader: Reader
    marks: tuple[int, ...]
    by: tuple[str, ...]

    @property
    def words(self) -> str:
        """After what the child waits for."""
        return f"; {self.reader.words}"

    @property
    def advice(self) -> str:
        """How the reader goes on for as long as others put."""
        read = self.reader
        if not self.marks:
            until = "Let it take until a mark (`None`) that is put last, when all who put have ended"
            return f"{read.words}. {until}. {LEFT}"
        many = len(self.marks) > 1
        lines = f"line{'s' * many} {list_words([str(item) for item in self.marks])} put{'s' * (not many)}"
        return (
            f"{read.words}. But {lines} `{read.mark}` in each process that runs {list_words(self.by)}: the first one "
            "to do so ends the reader, while others still put. Let it count them, and end after as many as there are "
            f"such processes; or put one `{read.mark}` when all of these have been joined. {LEFT}"
        )


def ended_reader(job: JobView, chain: Sequence[tuple[ProcessView, ProcessWait]]) -> EndedReader | None:
    """Of a parent that joins a child at its end; None where who takes may still run, or is not known by one line.

    Args:
        job: All processes.
        chain: Who waits for whom: the child and its parent are the last two.
    """
    pair = {wait.kind: (view, wait) for view, wait in chain[-2:]}
    if {*pair} != {"child", "unread-queue"}:
        return None
    (parent, its), (child, _) = pair["child"], pair["unread-queue"]
    queue = unread_queue(parent, its)
    tree = syntax_tree(parent.process.snapshot, its.at) if queue is not None else None
    if queue is None or tree is None or its.at is None or its.at.file is None or not _one_left(job, parent, child):
        return None
    names = names_of_object(tree, queue.name)
    gets = [*gets_of(tree, names)]
    if len(gets) != 1 or scope_of(tree, gets[0].lineno) not in [*entries(tree)]:
        return None
    scope = scope_of(tree, gets[0].lineno)
    if _runs(job, parent, its.at.file, scope) or _starts_later(tree, scope, its.at.line or 0):
        return None
    reader = reader_of(parent, its.at.file, tree, gets[0])
    marks = _marks(tree, names, reader.mark) if reader.mark is not None else []
    others = len(children_of(job, parent)) > 2  # beside the reader and the one that waits
    if reader.mark is not None and (not marks or not others or any(_is_among_items(tree, names, one) for one in marks)):
        return None
    by = dict.fromkeys(qualified_name(tree, scope_of(tree, item.lineno)) for item in marks)
    return EndedReader(queue.name, reader, tuple(item.lineno for item in marks), tuple(by))


def _one_left(job: JobView, parent: ProcessView, child: ProcessView) -> bool:
    """Whether a child of the parent had ended well while that one could not."""
    ended = child.process.ended_mono_ns
    others = (item for item in children_of(job, parent) if item.index != child.index)
    return ended is not None and any(left_by(item, ended) for item in others)


def _runs(job: JobView, parent: ProcessView, file: str, scope: ast.AST) -> bool:
    """Whether a child was in the function at its end, or may have been: one that did not leave is unknown."""
    first, last = getattr(scope, "lineno", 0), getattr(scope, "end_lineno", 0)
    if any(not item.left_well and not main_stack(item) for item in children_of(job, parent)):
        return True
    return any(
        frame.file == file and frame.line is not None and first <= frame.line <= last
        for item in children_of(job, parent)
        for frame in main_stack(item)
    )


def _starts_later(tree: ast.Module, reads: Scope, line: int) -> bool:
    """Whether the function in which the parent waits makes or starts the reader behind that line only."""
    scope, owner = scope_of(tree, line), class_around(tree, reads)
    name = owner.name if owner is not None else getattr(reads, "name", "")
    calls = [item for item in own_nodes(scope) if isinstance(item, ast.Call)]
    makes = [item for item in calls if name in (called_name(item), _target(item))]
    sets = (item for item in own_nodes(scope) if isinstance(item, ast.Assign) and item.value in makes)
    bound = {variable(target) for item in sets for target in item.targets} - {None}
    starts = [item for item in calls if called_name(item) == "start" and isinstance(item.func, ast.Attribute)]
    begun = [item for item in starts if variable(item.func.value) in bound]  # type: ignore[attr-defined]
    return any(found and all(item.lineno > line for item in found) for found in (makes, begun))


def _target(call: ast.Call) -> str | None:
    """`write` of `Process(target=write)`."""
    given = keyword_value(call, "target")
    return last_name(given) if given is not None else None


def _is_among_items(tree: ast.Module, names: frozenset[str], mark: ast.Call) -> bool:
    """Whether a loop around it puts other items as well: it may stand for one that is left out."""
    texts = {
        ast.unparse(item)
        for loop in loops_around(tree, mark.lineno)
        for item in puts_into(tree, names)
        if spans(loop, item.lineno)
    }
    return bool(texts - {ast.unparse(mark)})


def _marks(tree: ast.Module, names: frozenset[str], mark: str) -> list[ast.Call]:
    """The lines of what children run that put it, where no other line does."""
    puts = [item for item in puts_into(tree, names) if item.args and ast.unparse(item.args[0]) == mark]
    own = [node for entry in entries(tree) for node in nodes_of(entry)]
    return puts if all(item in own for item in puts) else []
