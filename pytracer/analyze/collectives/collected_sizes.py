"""What each rank has collected, and gathers: predictions of its own batches, as many as it had.

No rank is wrong there: all_gather() takes for granted that all have as many. What packs a model is not collected: its
parts must be the same ones on all ranks.
"""

from __future__ import annotations

import ast

import msgspec

from pytracer._text import shortened
from pytracer.analyze.behind import Place
from pytracer.analyze.collectives.sizes import GATHERS, PAD, Side, call_in_line, dimension_of
from pytracer.analyze.collectives.ways import way_to
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.slicing.data_numbers import same_shape
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import called_name, keyword_value
from pytracer.analyze.evidence.syntax.loops import loops_around
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import class_around, own_nodes
from pytracer.analyze.naming import line_in

_JOINS = frozenset({"cat", "concat", "concatenate", "vstack", "hstack", "stack", "tensor", "as_tensor"})
_ALONG = frozenset({"cat", "concat", "concatenate"})
_ADDS = frozenset({"append", "extend"})
_OF_MODELS = frozenset({"parameters", "named_parameters", "buffers", "modules", "state_dict", "param_groups", "grad"})
_LIKE = frozenset({"zeros_like", "empty_like", "ones_like", "full_like", "rand_like"})
_MADE = frozenset({"zeros", "empty", "ones", "new_zeros", "new_empty", "new_ones"})
_ARGUMENTS = 2  # what receives, and what is passed
_LONGEST = 60


class Collected(msgspec.Struct, frozen=True):
    """`origin`: the line that joins it, in words; `added`: the one that collects; `own`: that sizes the results."""

    name: str
    numbers: str
    op: str
    origin: str
    added: str
    own: str | None
    places: tuple[Place, ...]

    @property
    def subject(self) -> str:
        """For the headline."""
        return f"the size comes from {self.origin}, which joins what each rank has collected"

    @property
    def advice(self) -> str:
        """What to change."""
        own = f", and {self.own} takes the rank's own size for that of all" if self.own is not None else ""
        return (
            f"{self.name} is {self.numbers}: it comes from {self.origin}, which joins what each rank has collected "
            f"({self.added}). That may differ by rank, but {self.op}() needs one size{own}: {PAD}"
        )


def collected_size(first: Side, second: Side) -> Collected | None:
    """None where what is gathered is not joined along the dimension in which the ranks differ."""
    dimension = dimension_of(first, second)
    for view, call in (first, second):
        found = call_in_line(view, call)
        if found is None or dimension is None or call.op not in GATHERS or len(found[0].args) < _ARGUMENTS:
            continue
        (results, given), spot = found[0].args[:_ARGUMENTS], found[1]
        slice_ = Slice(view.process.snapshot, way_to(view, call)[::-1])
        made = slice_.made(given, spot, calls=True)
        node = same_shape(made.node)
        held = _joined(node, dimension, len(call.sizes))
        line = _adding(held, made.spot) if held is not None else None
        if line is None:
            continue
        own = _own_size(slice_, given, results, spot)
        sides = [f"{item.sizes[dimension]} on rank {other.process.rank}" for other, item in (first, second)]
        places = [(made.spot.file, made.line), (made.spot.file, line.lineno)]
        return Collected(
            f"Dimension {dimension} of `{shortened(ast.unparse(given), _LONGEST)}`",
            " and ".join(sides),
            call.op,
            f"{line_in(made.spot.file, made.line, spot.file)} (`{source(made.node)}`)",
            f"{line_in(made.spot.file, line.lineno, spot.file)}: `{source(line)}`",
            f"line {own.lineno} (`{source(own)}`)" if own is not None else None,
            (*places, *([(spot.file, own.lineno)] if own is not None else [])),
        )
    return None


def _joined(node: ast.AST, dimension: int, dimensions: int) -> ast.expr | None:
    """The list of `torch.cat(self.scores)`, along the dimension that differs."""
    if not isinstance(node, ast.Call) or called_name(node) not in _JOINS or not node.args:
        return None
    along = keyword_value(node, "dim", "axis") or (node.args[1] if len(node.args) > 1 else None)
    given = ast.Constant(0) if along is None or called_name(node) not in _ALONG else along
    place = given.value if isinstance(given, ast.Constant) else None
    listed = node.args[0]
    parts = (ast.Name, ast.Attribute, ast.Subscript)
    return listed if isinstance(listed, parts) and place in (dimension, dimension - dimensions) else None


def _adding(held: ast.expr, spot: Spot) -> ast.Call | None:
    """The first line that adds to it: of its function, or of its class; none where parts of a model are packed."""
    name, owner = ast.unparse(held), class_around(spot.tree, spot.scope)
    scopes: list[ast.AST] = [spot.scope]
    if name.startswith("self.") and owner is not None:
        scopes = [item for item in owner.body if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef))]
    calls = [
        item
        for scope in scopes
        for item in own_nodes(scope)
        if isinstance(item, ast.Call) and isinstance(item.func, ast.Attribute) and called_name(item) in _ADDS
        if ast.unparse(item.func.value) == name
    ]
    return calls[0] if calls and not any(_is_of_model(item, spot.tree) for item in calls) else None


def _is_of_model(call: ast.Call, tree: ast.Module) -> bool:
    """Whether parameters or gradients are added, or it is in a loop over them."""
    loops = [item.iter for item in loops_around(tree, call.lineno) if not isinstance(item, ast.While)]
    parts = (part for item in (*call.args, *loops) for part in nodes_of(item))
    return any(isinstance(part, ast.Attribute) and part.attr in _OF_MODELS for part in parts)


def _own_size(slice_: Slice, given: ast.expr, results: ast.expr, spot: Spot) -> ast.Call | None:
    """`torch.zeros_like(x)` of results that are as large as what this rank passes."""
    made = slice_.made(results, spot, calls=False)
    name = variable(given)
    for item in nodes_of(made.node) if name is not None and made.spot.scope is spot.scope else ():
        if isinstance(item, ast.Call) and item.args and _is_like(item, name or ""):
            return item
    return None


def _is_like(call: ast.Call, name: str) -> bool:
    """`zeros_like(x)`, `zeros(x.shape)`, `x.new_empty(x.size())`."""
    if called_name(call) in _LIKE:
        return variable(call.args[0]) == name
    given = call.args[0].value if isinstance(call.args[0], ast.Starred) else call.args[0]
    return called_name(call) in _MADE and ast.unparse(given) in (f"{name}.shape", f"{name}.size()")
