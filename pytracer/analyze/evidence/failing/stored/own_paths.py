"""A file that one rank alone writes, where each rank makes the path for itself: of the time, by mkdtemp()."""

from __future__ import annotations

import ast
from collections.abc import Sequence

import msgspec

from pytracer._text import uncapital
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.processes.made_by_one import can_make, guard_of, paths_of, rank_of
from pytracer.analyze.evidence.slicing.own_values import OwnValue, OwnValues, is_handed_out
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.ranks import one_rank_number, one_rank_words
from pytracer.analyze.evidence.syntax.scopes import Scope, scope_of

_RAISED = ("FileNotFoundError", "NotADirectoryError")


class _Own(msgspec.Struct, frozen=True):
    """`name`: the variable of the path, `writes`: `line 25 writes there on rank 0 only`."""

    name: str
    value: OwnValue
    writes: str


def own_path_of_rank(at: FailingLine) -> str | None:
    """What to change at the line that makes the path."""
    found = _found(at)
    if found is None:
        return None
    return (
        f"{_words(found)}; {found.writes}. Make `{found.name}` the same path on all ranks: {found.value.change}. "
        "Print it on each rank."
    )


def own_path_subject(at: FailingLine) -> str | None:
    """For the headline."""
    found = _found(at)
    return f"{uncapital(_words(found))}, and {found.writes}" if found is not None else None


def _words(found: _Own) -> str:
    looks = "looks" if found.value.sure else "may look"
    return f"Each rank {looks} at another path by `{found.name}`, as {found.value.reason}"


def _found(at: FailingLine) -> _Own | None:
    if at.kind not in _RAISED or at.node is None:
        return None
    paths, spot = [*paths_of(at.node)], at.slice.spot(0)
    rank = rank_of(at) if paths and spot is not None else None
    if spot is None or rank is None:
        return None
    search = OwnValues(at.slice, at.files, at.frame.file)
    for path, writes in paths:
        value, parts = search.of(path, spot) if not writes else (None, [])
        if value is None or not value.names or is_handed_out(at.files, value):
            continue
        scopes = [item.scope for part in parts for item in (part.spot, *(way for _, way in part.through))]
        where = _writer(at, value, scopes, rank)
        if where is not None:
            return _Own(value.names[0], value, where)
    return None


def _writer(at: FailingLine, value: OwnValue, scopes: Sequence[Scope], rank: int) -> str | None:
    """The first line that writes by one of these variables on another rank alone.

    A plain name is the same variable only in the functions that the value went through.
    """
    names = {name.rpartition(".")[2] for name in value.names if "." in name}
    plain = {name for name in value.names if "." not in name}
    for file, tree in at.files.items():
        for call in (item for item in nodes_of(tree) if isinstance(item, ast.Call) and can_make(item)):
            held = {(variable(item) or "").rpartition(".")[2] for item in nodes_of(call)}
            known = names | plain if any(scope_of(tree, call.lineno) is item for item in scopes) else names
            guard = guard_of(tree, call.lineno) if known & held else None
            if guard is not None and one_rank_number(guard.test) != rank:
                return f"{at.in_file(file, call.lineno)} writes there on {one_rank_words(guard.test)} only"
    return None
