"""A file that an `if` asks for, and that the program makes behind it: a rank that asks later finds it there.

`if os.path.exists(index): return json.load(...)`, then the scan by rank 0 and a barrier: a rank that is a little late
finds the file of rank 0, leaves, and never comes to the barrier in which rank 0 waits for it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

import msgspec
from msgspec import structs

from pytracer.analyze.collectives.deciders import Decider
from pytracer.analyze.collectives.ways import Side
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.processes.made_by_one import can_make, guard_of, made_by
from pytracer.analyze.evidence.failing.stored.paths import path_parts
from pytracer.analyze.evidence.slicing.by_rank import before
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.ranks import is_of_rank, one_rank_number
from pytracer.analyze.evidence.syntax.scopes import own_nodes, scope_of, spans
from pytracer.analyze.evidence.waits.polled_paths import asked_paths, own_path
from pytracer.analyze.naming import line_in

_BARRIERS = ("barrier", "monitored_barrier")
_MOVES = ("replace", "rename", "renames")  # to what comes last
_DEPTH = 3  # functions
_MOST = 40  # expressions


class MadeMeanwhile(msgspec.Struct, frozen=True):
    """`place` and `text`: the line that makes the file; `maker`: the rank that came there; `op`: what was left out."""

    place: str
    text: str
    maker: str
    op: str

    @property
    def subject(self) -> str:
        """For the headline, behind what the `if` left out on a rank."""
        return f", which may have found what {self.place} makes on {self.maker}"

    @property
    def advice(self) -> str:
        """What to change, behind what came out differently."""
        found = f"it may have found there what {self.place} (`{self.text}`) had made on {self.maker} meanwhile. "
        if self.op in _BARRIERS:
            return (
                f"{found}Let one rank alone look for that file and make it, call {self.op}() on all ranks behind that, "
                "whether it was there or not, and read it after that."
            )
        return f"{found}Let one rank alone look for that file and broadcast the answer, so that all take the same way."


def made_meanwhile(there: Side, by: Decider) -> MadeMeanwhile | None:
    """What makes the file that an `if` asks for, on the rank that went on to the call.

    None where each rank may ask for a file of its own.
    """
    if not isinstance(by.node, ast.If) or by.frame not in there.way:
        return None
    frames = there.way[::-1]
    depth = frames.index(by.frame)
    snapshot = there.view.process.snapshot
    slice_ = Slice(snapshot, frames)
    spot = slice_.spot(depth)
    if spot is None or own_path(snapshot, frames[depth:], by.node.test) is not None:
        return None
    at = structs.replace(spot, line=by.node.lineno)
    asked = [(path, where) for path, where in _asked(slice_, by.node.test, at) if not _has_rank(slice_, path, where)]
    wanted = {parts for path, where in asked if (parts := path_parts(slice_, path, where))}
    files = program_files(snapshot, frames) if wanted else {}
    for call, place in _behind(slice_, files, at, by.node, spot.line, around=by.around) if wanted else ():
        if not any(path_parts(slice_, path, place) in wanted for path in _made(call)):
            continue
        if any(one_rank_number(guard.test) != there.number for guard in _guards(place)):
            return None
        where = line_in(place.file, call.lineno, frames[0].file)
        return MadeMeanwhile(where, source(call), there.name, there.call.op)
    return None


def _asked(slice_: Slice, test: ast.expr, spot: Spot) -> Iterator[tuple[ast.expr, Spot]]:
    """The paths of a condition, also of a variable that has the answer."""
    yield from ((path, at) for path, at, lists in asked_paths(slice_, test, spot) if not lists)
    for item in nodes_of(test):
        made = slice_.made(item, spot, calls=True) if isinstance(item, (ast.Name, ast.Attribute)) else None
        if made is not None and isinstance(made.node, ast.Call):
            yield from ((path, at) for path, at, lists in asked_paths(slice_, made.node, made.spot) if not lists)


def _has_rank(slice_: Slice, path: ast.AST, spot: Spot) -> bool:
    """Whether the rank is in what a path is made of."""
    waiting, seen = [(path, spot)], 0
    while waiting and seen < _MOST:
        node, at = waiting.pop(0)
        made, seen = slice_.made(node, at, calls=False), seen + 1
        if any(is_of_rank(item) for item in (*(item for item, _ in made.through), made.node)):
            return True
        waiting += before(slice_, made.node, made.spot) if isinstance(made.node, ast.expr) else ()
    return False


def _behind(
    slice_: Slice, files: Mapping[str, ast.Module], spot: Spot, node: ast.If, last: int, *, around: bool
) -> Iterator[tuple[ast.Call, Spot]]:
    """Calls between the `if` and the line that led to the collective, and in the functions that these call."""
    within = [item for item in own_nodes(spot.scope) if isinstance(item, ast.Call) and spot.line < item.lineno < last]
    arm = [item for item in within if around or not spans(node, item.lineno)]
    todo = [(item, structs.replace(spot, line=item.lineno), 0) for item in arm]
    seen = {id(spot.scope)}
    while todo:
        call, at, depth = todo.pop(0)
        yield call, at
        found = slice_.function(call, at)
        if found is None or depth == _DEPTH or id(found[0]) in seen:
            continue
        seen.add(id(found[0]))
        function, home = found
        tree = files.get(home.file or "", home.tree)
        for item in own_nodes(function):
            if isinstance(item, ast.Call):
                inner = Spot(home.file, tree, scope_of(tree, item.lineno), item.lineno, call=(call, at))
                todo.append((item, inner, depth + 1))


def _guards(place: Spot) -> Iterator[ast.If]:
    """Each `if` by which one rank alone comes to a call, in its function, and in those that led there."""
    at: Spot | None = place
    while at is not None:
        guard = guard_of(at.tree, at.line)
        yield from [guard] if guard is not None else []
        at = at.call[1] if at.call is not None else None


def _made(call: ast.Call) -> Iterator[ast.expr]:
    """The paths that a call may make."""
    if called_name(call) in _MOVES:
        yield from call.args[-1:]
    elif can_make(call):
        yield from made_by(call)
