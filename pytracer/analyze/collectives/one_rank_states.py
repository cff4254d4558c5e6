"""A loop's condition that asks what the program changes on one rank alone, such as a count of epochs without progress.

`if is_main and better: self.bad = 0`, `else: self.bad += 1`: on the other ranks it grows in each round, so that these
leave `while self.bad < self.patience` first. All lines of the program that set it are looked at; what a function
changes that the loop does not call, such as a start of the log, is no reason.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

import msgspec
from msgspec import structs

from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.slicing.asked_states import AskedState, asked_states, is_shared_anywhere
from pytracer.analyze.evidence.slicing.called_names import called_names
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.slicing.rank_sides import RankSide, rank_side
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.syntax.loops import Loop
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.ranks import is_for_one_rank
from pytracer.analyze.evidence.syntax.scopes import Scope, scope_of, spans
from pytracer.analyze.naming import line_in
from pytracer.decode.types.snapshot import Snapshot
from pytracer.report.job import PythonFrame

_Kind = Literal["reset", "counted"]
_FIRST = frozenset({"__init__", "__new__", "__post_init__", "<module>"})
_Statement = ast.Assign | ast.AugAssign | ast.AnnAssign


class OneRankState(msgspec.Struct, frozen=True):
    """`name`: what is asked. `kind`: one rank alone sets it back, or counts it, by `line`.

    `rank`: that does; `branch`: the `if`; `limit`: what it is compared with; `text`: of the statement.
    """

    name: str
    kind: _Kind
    rank: str
    line: str
    text: str
    branch: str
    value: str = ""
    limit: str = ""

    @property
    def subject(self) -> str:
        """`` `state.bad` is set to 0 only on rank 0 (line 8: `if is_main and ...`), so it reaches ... ``"""
        only = f"only on {self.rank} ({self.branch})"
        reaches = f"it reaches `{self.limit}`" if self.limit else "it ends the loop"
        if self.kind == "reset":
            return f"`{self.name}` is set to {self.value} {only}, so {reaches} on the others"
        return f"`{self.name}` is counted {only}, so {reaches} there alone"

    @property
    def advice(self) -> str:
        """What to change."""
        return (
            f"Change `{self.name}` on all ranks alike: take {self.line} (`{self.text}`) out of what the rank decides "
            f"({self.branch}), by a value that is the same on all of them, and leave only what saves or prints there. "
            "Or broadcast the decision of one rank in each round, so that all leave the loop together."
        )


class _Change(msgspec.Struct, frozen=True):
    statement: _Statement
    value: ast.expr
    file: str
    scope: Scope
    side: RankSide | None
    counts: bool

    @property
    def is_first(self) -> bool:
        """Whether it makes the object, or is of the module."""
        return getattr(self.scope, "name", "<module>") in _FIRST

    @property
    def is_plain(self) -> bool:
        """Whether it is a number, None or a flag of the program."""
        return isinstance(self.value, ast.Constant) or (
            isinstance(self.value, ast.UnaryOp) and isinstance(self.value.operand, ast.Constant)
        )


def one_rank_state(
    snapshot: Snapshot,
    frames: Sequence[PythonFrame],
    depth: int,
    loop: Loop,
    line: int,
    test: ast.expr,
    left: Sequence[int],
) -> OneRankState | None:
    """The first of what a condition that ends a loop asks, by which just those ranks leave that did.

    Args:
        snapshot: Of a rank that is in the loop.
        frames: Those of the program, the innermost first.
        depth: The frame of the loop among them.
        loop: The loop.
        line: Of the condition.
        test: The condition.
        left: The ranks that had left it.
    """
    spot, files = Slice(snapshot, frames).spot(depth), program_files(snapshot, frames)
    if spot is None or spot.file not in files or is_for_one_rank(test) is not None:
        return None
    if rank_side(files, spot.file, line, depth=0) is not None:
        return None  # one rank alone asks at all
    for state in asked_states(files, test, structs.replace(spot, line=line)):
        found = _one_rank(files, state, loop, left, spot.file)
        if found is not None and not is_shared_anywhere(files, state):
            return found
    return None


def _one_rank(
    files: Mapping[str, ast.Module], state: AskedState, loop: Loop, left: Sequence[int], here: str | None
) -> OneRankState | None:
    changes = [item for item in _changes(files, state) if not (item.is_first and state.scope is None)]
    common = [item for item in changes if item.side is None]
    if any(not (item.counts or item.is_plain) for item in common):
        return None  # what all ranks set it to may be the same
    found = _deciding(changes)
    if found is None or found[1].side is None:
        return None
    kind, change = found
    side = found[1].side
    if kind == "reset" and not change.is_plain:
        return None  # it may be further than what the others have counted
    counts = [item for item in changes if item.counts and item is not change] if kind == "reset" else [change]
    called, _ = called_names(files, [loop])
    if not _is_in_round(change, loop, called, here) or not any(
        _is_in_round(item, loop, called, here) for item in counts
    ):
        return None
    if kind == "reset" and any(not item.counts and not _is_before(item, loop, files, here) for item in common):
        return None  # all ranks set it back, too
    if any(side.has(rank) is (kind == "reset") for rank in left):
        return None  # it is another rank that would have left
    return OneRankState(
        source(state.node),
        kind,
        side.words,
        line_in(change.file, change.statement.lineno, here),
        source(change.statement),
        f"{_where(change, side)}{line_in(side.file, side.branch.lineno, here)}: `if {_asked(side.branch.test)}`",
        source(change.value),
        source(state.limit) if state.limit is not None else "",
    )


def _asked(test: ast.expr) -> str:
    """Of a long one with the rank at its front only that: `is_main and ...`."""
    whole = ast.unparse(test)
    if source(test) != whole and isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        return f"{source(test.values[0])} and ..."
    return source(test)


def _deciding(changes: Sequence[_Change]) -> tuple[_Kind, _Change] | None:
    """The change that one side alone makes, and what it comes to beside those of the others."""
    alone = [item for item in changes if item.side is not None and not _is_alike(item, changes)]
    sets = [item for item in alone if not item.counts]
    for change in sets:
        if any(item.counts and _is_elsewhere(item, change) for item in changes):
            return "reset", change
    counted = [item for item in alone if item.counts]
    for change in counted:
        if not any(item.counts and _is_elsewhere(item, change) for item in changes):
            return "counted", change
    return None


def _is_elsewhere(item: _Change, change: _Change) -> bool:
    """Whether other ranks come to the one than to the other."""
    if item.side is None or change.side is None:
        return item.side is None
    return item.side.number == change.side.number and item.side.but is not change.side.but


def _where(change: _Change, side: RankSide) -> str:
    """`behind ` what leaves before, and `in the else of `."""
    if side.below:
        return ""
    inside = side.file == change.file and spans(side.branch, change.statement.lineno)
    return "in the else of " if inside else "behind "


def _changes(files: Mapping[str, ast.Module], state: AskedState) -> Iterator[_Change]:
    """The statements that set it or add to it."""
    for file, tree in files.items():
        for item in nodes_of(tree):
            if not isinstance(item, (ast.Assign, ast.AugAssign, ast.AnnAssign)) or item.value is None:
                continue
            for value in _values(item, state, tree):
                counts = isinstance(item, ast.AugAssign) or _adds(value, state, tree)
                side = rank_side(files, file, item.lineno)
                yield _Change(item, value, file, scope_of(tree, item.lineno), side, counts)


def _values(item: _Statement, state: AskedState, tree: ast.Module) -> Iterator[ast.expr]:
    """What it gets of them: also one of `self.best, self.bad = score, 0`."""
    for target in item.targets if isinstance(item, ast.Assign) else [item.target]:
        value = item.value
        if value is not None and state.is_meant(target, tree):
            yield value
        elif isinstance(target, (ast.Tuple, ast.List)) and value is not None:
            pairs = zip(target.elts, value.elts, strict=False) if isinstance(value, (ast.Tuple, ast.List)) else ()
            known = [given for one, given in pairs if state.is_meant(one, tree)]
            yield from known or ([value] if any(state.is_meant(one, tree) for one in target.elts) else [])


def _adds(value: ast.expr, state: AskedState, tree: ast.Module) -> bool:
    """`self.bad + 1`."""
    return isinstance(value, ast.BinOp) and any(
        state.is_meant(one, tree) and isinstance(other, ast.Constant)
        for one, other in ((value.left, value.right), (value.right, value.left))
    )


def _is_alike(change: _Change, changes: Sequence[_Change]) -> bool:
    """Whether the other ranks change it by the same statement, on the other side of that `if`."""
    return any(
        item is not change
        and change.side is not None
        and ast.unparse(item.statement) == ast.unparse(change.statement)
        and (item.side is None or (item.side.rank == change.side.rank and item.side.but is not change.side.but))
        for item in changes
    )


def _is_in_round(change: _Change, loop: Loop, called: set[str], here: str | None) -> bool:
    """Whether a change is made in a round of the loop: by itself, or by a function that is called there."""
    inside = change.file == here and spans(loop, change.statement.lineno)
    return inside or getattr(change.scope, "name", None) in called


def _is_before(change: _Change, loop: Loop, files: Mapping[str, ast.Module], here: str | None) -> bool:
    """Whether a change of all ranks is made before the loop alone."""
    tree = files.get(here or "")
    own = tree is not None and change.scope is scope_of(tree, loop.lineno)
    return (change.is_first and not own) or (own and change.statement.lineno < loop.lineno)
