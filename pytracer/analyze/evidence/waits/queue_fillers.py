"""Who should have filled the queue of its own process that a thread waits for, where no other thread is left."""

from __future__ import annotations

import ast

import msgspec

from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.leaving import Obstacle, obstacles
from pytracer.analyze.evidence.syntax.loops import counting_loop
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import qualified_name, scope_of
from pytracer.analyze.evidence.waits.ended_threads import no_other_could
from pytracer.analyze.evidence.waits.wait_kinds import ProcessWait
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView

_PUT = ("put", "put_nowait")


class Filler(msgspec.Struct, frozen=True):
    """The only line of the file that puts something into the queue."""

    queue: str
    line: int
    function: str
    loop: int | None
    caught: Obstacle | None = None
    """An `except` around it that goes on."""

    @property
    def advice(self) -> str:
        """What ended, and how the one who waits could learn of it."""
        rounds = f" (the loop of line {self.loop})" if self.loop is not None else ""
        caught = (
            f"See first whether `{self.caught.text}` (line {self.caught.line}) caught an error there. "
            if self.caught is not None
            else ""
        )
        return (
            f"Line {self.line} in {self.function} fills `{self.queue}`, and no thread is left that does: it has ended, "
            f"or was never started here. {caught}Compare how many it puts{rounds} with how many are taken here; let it "
            "put a mark (None) at its end, or pass a timeout to get()."
        )


def filler_of(view: ProcessView, wait: ProcessWait) -> Filler | None:
    """None where another thread or process may fill it, or where the line is not known, or one of several."""
    if wait.kind != "queue" or wait.at is None or wait.at.line is None or not no_other_could(view):
        return None
    tree = syntax_tree(view.process.snapshot, wait.at)
    taken = _queues(tree, ("get",), wait.at.line) if tree is not None else []
    if tree is None or len(taken) != 1:
        return None
    name = _name(taken[0])
    puts = [item for item in _queues(tree, _PUT) if name is not None and _name(item) == name]
    if len(puts) != 1:
        return None
    line = puts[0].lineno
    scope = scope_of(tree, line)
    if isinstance(scope, (ast.Module, ast.Lambda)) or scope is scope_of(tree, wait.at.line):
        return None
    function = qualified_name(tree, scope)
    caught = next((item for item in obstacles(tree, line) if item.caught), None)
    return Filler(ast.unparse(puts[0]), line, function, counting_loop(tree, line), caught)


def _queues(tree: ast.Module, methods: tuple[str, ...], line: int | None = None) -> list[ast.expr]:
    """The objects whose methods are called, at a line or anywhere."""
    return [
        item.func.value
        for item in nodes_of(tree)
        if isinstance(item, ast.Call) and isinstance(item.func, ast.Attribute) and called_name(item) in methods
        if line is None or item.lineno <= line <= (item.end_lineno or item.lineno)
    ]


def _name(node: ast.expr) -> str | None:
    """`ready` of `self.ready`, and of `ready`."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else None
