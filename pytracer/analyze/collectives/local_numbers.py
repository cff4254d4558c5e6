"""A number that a condition asks for, and that each rank takes out of a tensor of its own: a loss, a metric.

Followed back from the condition to the line that takes it; nothing on the way shares it between ranks.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

import msgspec
from msgspec import structs

from pytracer.analyze.collectives.one_rank_values import SHARING, is_shared
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Made
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.names import names_of, variable
from pytracer.analyze.evidence.syntax.scopes import own_nodes
from pytracer.analyze.naming import line_in
from pytracer.decode.types.snapshot import Snapshot
from pytracer.report.job import PythonFrame


class LocalNumber(msgspec.Struct, frozen=True):
    """`name`: in the condition; `place` and `text`: the line that takes it out of a tensor."""

    name: str
    place: str
    text: str

    @property
    def advice(self) -> str:
        """What to change."""
        return (
            f"each rank computes `{self.name}` for itself ({self.place}: `{self.text}`). all_reduce() it there, so "
            "that all ranks decide by the same number, or let one rank decide and broadcast that."
        )


def local_number(
    snapshot: Snapshot, frames: Sequence[PythonFrame], depth: int, line: int, test: ast.expr
) -> LocalNumber | None:
    """The first such number of a condition.

    Args:
        snapshot: Of a rank.
        frames: Those of the program, the innermost first.
        depth: The frame of the condition among them.
        line: Of the condition.
        test: The condition.
    """
    slice_ = Slice(snapshot, frames)
    spot = slice_.spot(depth)
    if spot is None:
        return None
    at = structs.replace(spot, line=line)
    for name in names_of(test):
        node = next((item for item in ast.walk(test) if variable(item) == name), None)
        made = slice_.made(node, at, calls=True) if node is not None else None
        if made is None or not _takes_number(made.node) or is_shared(slice_, name, at):
            continue
        if not _is_shared_there(slice_, made):
            return LocalNumber(name, line_in(made.spot.file, made.line, spot.file), source(made.node))
    return None


def _takes_number(node: ast.AST) -> bool:
    """`losses.mean().item()`."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and called_name(node) == "item"


def _is_shared_there(slice_: Slice, made: Made) -> bool:
    """Whether the function that takes it, or one of the program that it calls, calls anything that may share."""
    calls = [item for item in own_nodes(made.spot.scope) if isinstance(item, ast.Call)]
    own = (found[0] for item in calls if (found := slice_.function(item, made.spot)) is not None)
    inner = [item for function in own for item in own_nodes(function) if isinstance(item, ast.Call)]
    return any(part in (called_name(item) or "") for item in (*calls, *inner) for part in SHARING)
