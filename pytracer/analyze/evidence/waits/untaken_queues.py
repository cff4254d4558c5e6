"""A bounded queue that a child stands at, because its parent takes from it only before it waits for the child's end."""

from __future__ import annotations

import ast

import msgspec

from pytracer._text import list_words, shortened
from pytracer.analyze.evidence.syntax.calls import called_name, calls_on
from pytracer.analyze.evidence.syntax.loops import loops_around
from pytracer.analyze.evidence.syntax.scopes import scope_of
from pytracer.analyze.evidence.waits.wait_kinds import ProcessWait
from pytracer.analyze.evidence.waits.waited_object import waited_object
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView

_LONGEST = 40
_LISTED = 2
_JOINS = ("join", "wait")


class UntakenQueue(msgspec.Struct, frozen=True):
    """`name`: as the child's line has it. `taken`: the parent's lines that take from it. `join`: where it waits."""

    name: str
    taken: tuple[int, ...]
    line: int
    join: str

    @property
    def words(self) -> str:
        """After the wait of the child."""
        lines = list_words([str(line) for line in self.taken], _LISTED)
        many = len(self.taken) > 1
        return f"; line{'s' * many} {lines} take{'s' * (not many)} from it, but only before `{self.join}`"

    @property
    def advice(self) -> str:
        """What to change at the line of the parent."""
        return (
            f"Before `{self.join}` (line {self.line}), take from the queue until all children have ended (while "
            "multiprocessing.active_children(): get(timeout=1), and go on at queue.Empty), or have the children stop "
            f"before (an Event, put(timeout=...)): `{self.name}` is full, and nothing takes from it after that line."
        )


def untaken_queue(
    view: ProcessView, wait: ProcessWait, waiting: tuple[tuple[ProcessView, ProcessWait], ...]
) -> UntakenQueue | None:
    """None where a line of the file that takes from it can run while the parent waits, or none takes from it at all."""
    parent, its = waiting[-1] if waiting else (None, None)
    if wait.kind != "full-queue" or its is None or its.kind != "child" or its.at is None or wait.at is None:
        return None
    line = its.at.line
    tree = syntax_tree(parent.process.snapshot, its.at) if parent is not None else None
    thing = waited_object(view, wait)
    if tree is None or line is None or thing is None or not thing.providers or its.at.file != wait.at.file:
        return None
    scope, loops = scope_of(tree, line), loops_around(tree, line)
    for item in thing.providers:
        if scope_of(tree, item.line) is not scope or item.line >= line:
            return None
        if any(loop in loops for loop in loops_around(tree, item.line)):
            return None
    joins = [item for item in calls_on(tree, line) if called_name(item) in _JOINS]
    if len(joins) != 1:
        return None
    taken = tuple(sorted({item.line for item in thing.providers}))
    return UntakenQueue(thing.name, taken, line, shortened(ast.unparse(joins[0]), _LONGEST))
