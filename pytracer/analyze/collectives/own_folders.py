"""An `if` that goes by what lies at a path, of which each rank has one of its own: a folder of mkdtemp(), of the time.

`resume = last_checkpoint(folder)`, where `folder` is another one on each rank and one rank alone saves: that rank finds
a file, and the others none. The condition may ask for the path itself, or for what a function returned by it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

import msgspec
from msgspec import structs

from pytracer.analyze.collectives.deciders import Decider
from pytracer.analyze.collectives.standing_line import line_of_end
from pytracer.analyze.collectives.ways import Side
from pytracer.analyze.evidence.lifetime.file_writers import NOT_OF_PATH, writers
from pytracer.analyze.evidence.slicing.bindings import bindings_of
from pytracer.analyze.evidence.slicing.calls import argument_of, method_of
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.slicing.own_values import OwnValue, OwnValues, is_handed_out, iter_spots
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.ranks import is_of_rank, one_rank_words, rank_branch
from pytracer.analyze.evidence.syntax.scopes import class_around, own_nodes, scope_of
from pytracer.analyze.evidence.waits.polled_paths import asked_paths
from pytracer.analyze.naming import line_in

_DEPTH = 3  # functions
_MOST = 60


class OwnFolder(msgspec.Struct, frozen=True):
    """`path`: what the question is asked of; `value`: why each rank has another one.

    `asked`: the variable of the condition, and what it was on the two ranks, where that is recorded. `writes`: the line
    by which one rank alone writes there, and that rank.
    """

    path: str
    value: OwnValue
    asked: str | None = None
    writes: str | None = None

    @property
    def subject(self) -> str:
        """For the headline, behind what the `if` left out on a rank."""
        by = f": {self.asked}, by" if self.asked is not None else ", by"
        why = f"{'of which' if self.value.sure else 'which may differ:'} {self.value.reason}"
        return f"{by} the files in `{self.name}`, {why}"

    @property
    def name(self) -> str:
        """The variable that has it, closest to where it is made."""
        return self.value.names[-1] if self.value.names else self.path

    @property
    def advice(self) -> str:
        """What to change, behind what came out differently."""
        looks = "looks" if self.value.sure else "may look"
        writes = f"; {self.writes}" if self.writes is not None else ""
        return (
            f"it goes by the files in `{self.name}`, and each rank {looks} at another one{writes}. Make `{self.name}` "
            f"the same path on all ranks: {self.value.change}. Or let one rank look, and broadcast what it found."
        )


def own_folder(there: Side, absent: Side, by: Decider) -> OwnFolder | None:
    """None where the ranks may agree on the path, or the condition goes by the rank."""
    frames = there.way[::-1]
    if not isinstance(by.node, ast.If) or by.frame not in frames or is_of_rank(by.node.test):
        return None
    snapshot = there.view.process.snapshot
    slice_, files = Slice(snapshot, frames), program_files(snapshot, frames)
    spot = slice_.spot(frames.index(by.frame))
    if spot is None:
        return None
    search = OwnValues(slice_, files, frames[0].file)
    at = structs.replace(spot, line=by.node.lineno)
    asked = [(path, search.of(path, place)[0]) for path, place in _Questions(slice_).of(by.node.test, at)]
    if not asked or any(value is None or is_handed_out(files, value) for _, value in asked):
        return None  # another path, which the ranks may share, can have decided
    path, value = asked[0]
    if value is None:
        return None
    writes = _writes(slice_, search, files, value, frames[0].file)
    return OwnFolder(ast.unparse(path), value, _values(there, absent, by, at), writes)


class _Questions:
    """The paths whose files decide about a value: also through variables, and what functions of the program return."""

    def __init__(self, slice_: Slice) -> None:
        self._slice = slice_
        self._seen: set[tuple[int, str]] = set()

    def of(self, node: ast.AST, spot: Spot, depth: int = 0) -> Iterator[tuple[ast.expr, Spot]]:
        """The path of each, where it is asked."""
        key = (id(spot.scope), ast.unparse(node))
        if key in self._seen or len(self._seen) > _MOST:
            return
        self._seen.add(key)
        yield from ((path, at) for path, at, _ in asked_paths(self._slice, node, spot, depth=1))
        for item in nodes_of(node):
            if isinstance(item, (ast.Name, ast.Attribute)):
                made = self._slice.made(item, spot, calls=False)
                yield from self.of(made.node, made.spot, depth) if made.node is not item else ()
            elif isinstance(item, ast.Call) and depth < _DEPTH:
                yield from self._of_function(item, spot, depth)

    def _of_function(self, call: ast.Call, spot: Spot, depth: int) -> Iterator[tuple[ast.expr, Spot]]:
        """By what it returns, and by the conditions of its own."""
        found = self._slice.function(call, spot)
        for item in own_nodes(found[0]) if found is not None else ():
            value = item.value if isinstance(item, ast.Return) else item.test if isinstance(item, ast.If) else None
            if value is not None and found is not None:
                inside = structs.replace(found[1], scope=found[0], line=value.lineno, depth=None, call=(call, spot))
                yield from self.of(value, inside, depth + 1)


def _writes(
    slice_: Slice, search: OwnValues, files: Mapping[str, ast.Module], value: OwnValue, here: str | None
) -> str | None:
    """`line 61 writes there on rank 0 only`: the only line that writes below a branch on the rank."""
    found = set[tuple[str, int, str]]()
    for file, tree in files.items():
        for call, paths in writers(tree):
            branch = rank_branch(tree, call.lineno)
            if branch is None or called_name(call) in NOT_OF_PATH:
                continue
            spot = Spot(file, tree, scope_of(tree, call.lineno), call.lineno)
            if any(_is_in(search, slice_, path, spot, value) for path in paths):
                found.add((file, call.lineno, one_rank_words(branch.test)))
    if len(found) != 1:
        return None
    ((file, line, rank),) = found
    return f"{line_in(file, line, here)} writes there on {rank} only"


def _is_in(search: OwnValues, slice_: Slice, path: ast.expr, spot: Spot, value: OwnValue) -> bool:
    """Whether one of the variables of a path is that value, also as an attribute that a constructor is given."""
    for item in nodes_of(path):
        if isinstance(item, (ast.Name, ast.Attribute)):
            ways = [*_given(slice_, item, spot)] or [(item, spot)]
            found = [search.of(node, at)[0] for node, at in ways]
            if all(own is not None and own.call is value.call for own in found):
                return True
    return False


def _given(slice_: Slice, item: ast.expr, spot: Spot) -> Iterator[tuple[ast.expr, Spot]]:
    """`self.folder`, which `__init__` sets to a parameter: what each call of the class in its file passes for that."""
    name, owner = variable(item), class_around(spot.tree, spot.scope)
    maker = method_of(owner, ("__init__",)) if owner is not None and name is not None else None
    if maker is None or owner is None or not (name or "").startswith("self."):
        return
    bound = [_part(value, index) for _, value, index in bindings_of(maker, name or "")]
    given = variable(bound[0]) if len(bound) == 1 and bound[0] is not None else None
    for call in nodes_of(spot.tree):
        if given is None or not isinstance(call, ast.Call) or called_name(call) != owner.name:
            continue
        scope = scope_of(spot.tree, call.lineno)
        at = next((own for own in iter_spots(slice_) if own.scope is scope), None)
        passed = argument_of(call, maker, given)
        if passed is not None:
            line = call.lineno
            yield passed, structs.replace(at, line=line) if at is not None else Spot(spot.file, spot.tree, scope, line)


def _part(value: ast.AST | None, index: int | str | None) -> ast.AST | None:
    """Of `self.a, self.b = a, b` the one that is meant."""
    return value.elts[index] if isinstance(value, ast.Tuple) and isinstance(index, int) else value


def _values(there: Side, absent: Side, by: Decider, spot: Spot) -> str | None:
    """`` `resume` was str of 27 on rank 0 and None on rank 1 ``: of a local name that nothing binds anew."""
    names = {item.id for item in nodes_of(by.node.test) if isinstance(item, ast.Name)}  # type: ignore[union-attr]
    name = names.pop() if len(names) == 1 else None
    if (
        name is None
        or isinstance(spot.scope, ast.Module)
        or any(bound[0] > spot.line for bound in bindings_of(spot.scope, name))
    ):
        return None
    pair = [_value(side, by, name) for side in (there, absent)]
    if None in pair or pair[0] == pair[1]:
        return None
    return f"`{name}` was {pair[0]} on {there.name} and {pair[1]} on {absent.name}"


def _value(side: Side, by: Decider, name: str) -> str | None:
    """At its end, in the function of the condition, which it was still in at the line of its call."""
    line = line_of_end(side.view)
    same = [item for item in side.way if (item.file, item.function) == (by.frame.file, by.frame.function)]
    if line is None or len(same) != 1 or line.frames.count(same[0]) != 1:
        return None
    return line.values_at(line.frames.index(same[0])).get(name)
