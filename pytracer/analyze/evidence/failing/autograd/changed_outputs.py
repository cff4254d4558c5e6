"""Which statements change in place the very tensor that backward() misses: followed back to the operator that made it.

Of an operator that keeps its result for its backward, torch's message names it: `output 0 of TanhBackward0`. What a
statement changes that is followed back to a call of it is needed by its backward, whatever else the program changes. Of
a tensor that another operator kept, the message names the last change, and not what made it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import msgspec
from msgspec import structs

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.slicing.reached_spots import reached_spot
from pytracer.analyze.evidence.slicing.spots import Made, Spot
from pytracer.analyze.evidence.syntax.bindings import lines_that_bind
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.cut_values import is_without_graph
from pytracer.analyze.evidence.syntax.loops import loops_of
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.scopes import scope_of, spans_body

_OPERATOR = Pattern(r"which is output \d+ of (\w+?)(?:Backward\d*)?,")
_KEEP_THEIR_RESULT = frozenset(
    {"tanh", "sigmoid", "relu", "softmax", "logsoftmax", "exp", "expm1", "sqrt", "rsqrt", "reciprocal", "elu"} | {"tan"}
)
_VIEWS = frozenset(
    {"view", "squeeze", "unsqueeze", "transpose", "permute", "t", "narrow", "select", "detach", "expand"}
)
_HOPS = 6


class ChangedOutput(msgspec.Struct, frozen=True):
    """`lines`: the statements; `name`: the variable that has the tensor there; `made`: the expression that made it.

    `before`: the line before which nothing has changed it; `alias`: its name there, of a loop over several tensors.
    """

    lines: tuple[tuple[str, int], ...]
    name: str
    made: Made
    before: int
    alias: str | None

    def words(self, at: FailingLine) -> str:
        """`` what line 78 (`torch.tanh(self.head(x))`) made ``."""
        return f"what {at.place(self.made.spot, self.made.line)} (`{source(self.made.node)}`) made"


class _Target(msgspec.Struct, frozen=True):
    """The tensor of a statement, as its function names it at a spot. `alias`: see ChangedOutput."""

    node: ast.expr
    spot: Spot
    alias: str | None = None


def changed_output(
    at: FailingLine, statements: list[tuple[str, ast.Module, ast.stmt | ast.expr]]
) -> ChangedOutput | None:
    """Of statements that may change a tensor in place, those that change the one of the message.

    None where none is followed to its operator, or several lead to different makers.
    """
    named = _OPERATOR.search(at.message)
    operator = named[1].casefold() if named is not None else ""
    found: dict[tuple[str | None, int, str], list[tuple[tuple[str, int], _Target, Made]]] = {}
    for file, tree, item in statements if operator in _KEEP_THEIR_RESULT else ():
        for target in _targets(at, file, tree, item, statements):
            made = _maker(at, target.node, target.spot)
            if made is not None and _is_of(at, made, operator) and _has_graph(target.spot) and _has_graph(made.spot):
                key = (made.spot.file, made.line, ast.unparse(made.node))
                found.setdefault(key, []).append(((file, item.lineno), target, made))
    if len(found) != 1:
        return None
    (held,) = found.values()
    lines = tuple(dict.fromkeys(line for line, _, _ in held))
    first = held[0][1]
    return ChangedOutput(lines, ast.unparse(first.node), held[0][2], first.spot.line, first.alias)


def _targets(
    at: FailingLine,
    file: str,
    tree: ast.Module,
    item: ast.stmt | ast.expr,
    statements: list[tuple[str, ast.Module, ast.stmt | ast.expr]],
) -> Iterator[_Target]:
    """`x` of `x += y`, `x[0] = y`, `x.mul_(y)`; of a loop over `(x, z)` both."""
    node = _base(changed_part(item))
    name = variable(node) if node is not None else None
    scope = scope_of(tree, item.lineno)
    spot = reached_spot(at.slice, at.trees, file, scope, item.lineno)
    if node is None or name is None or spot is None:
        return
    loops = [loop for loop in loops_of(scope) if isinstance(loop, ast.For) and spans_body(loop.body, item.lineno)]
    loop = next((loop for loop in loops[::-1] if variable(loop.target) == name), None)
    if loop is not None:
        for part in loop.iter.elts if isinstance(loop.iter, (ast.Tuple, ast.List)) else ():
            yield _Target(part, structs.replace(spot, line=loop.lineno), name)
        return
    bound = max((line for line, _ in lines_that_bind(scope, name) if line < item.lineno), default=0)
    first = [  # `x += 1` and the line below change one tensor
        other.lineno
        for _, other_tree, other in statements
        if other.lineno > bound and scope_of(other_tree, other.lineno) is scope and _name(other) == name
    ]
    yield _Target(node, structs.replace(spot, line=min([*first, item.lineno])))


def _name(item: ast.stmt | ast.expr) -> str | None:
    node = _base(changed_part(item))
    return variable(node) if node is not None else None


def changed_part(item: ast.stmt | ast.expr) -> ast.expr | None:
    """`x` of `x += 1` and `x.add_(1)`, `x[0]` of `x[0] = 1`."""
    if isinstance(item, ast.AugAssign):
        return item.target
    if isinstance(item, ast.Assign):
        return next((target for target in item.targets if isinstance(target, ast.Subscript)), None)
    return item.func.value if isinstance(item, ast.Call) and isinstance(item.func, ast.Attribute) else None


def _base(node: ast.expr | None) -> ast.expr | None:
    """What a view is of: `x` of `x[:, 0]`, `x.t()`, and of `x.mul_(2).add_(1)`."""
    while node is not None:
        if isinstance(node, ast.Subscript):
            node = node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            name = node.func.attr
            if name not in _VIEWS and not name.endswith("_"):
                return node
            node = node.func.value
        else:
            return node
    return None


def _maker(at: FailingLine, node: ast.expr, spot: Spot) -> Made | None:
    """The call that computed a tensor, below what only views it."""
    made = at.slice.made(node, spot, calls=True)
    for _ in range(_HOPS):
        base = _base(made.node) if isinstance(made.node, ast.expr) else None
        if base is None or base is made.node:
            break
        made = at.slice.made(base, made.spot, calls=True)
    return made if isinstance(made.node, ast.Call) else None


def _has_graph(spot: Spot) -> bool:
    return not is_without_graph(spot.scope, spot.line)


def _is_of(at: FailingLine, made: Made, operator: str) -> bool:
    """`torch.tanh(x)`, `x.tanh()`, `self.act(x)` of an nn.Tanh(), an nn.Sequential that ends with one."""
    if not isinstance(made.node, ast.Call):
        return False
    layer = at.slice.made(made.node.func, made.spot, calls=True)
    if isinstance(layer.node, ast.Call) and called_name(layer.node) == "Sequential" and layer.node.args:
        layer = at.slice.made(layer.node.args[-1], layer.spot, calls=True)
    names = {called_name(made.node), called_name(layer.node) if isinstance(layer.node, ast.Call) else None}
    return operator in {item.replace("_", "").casefold() for item in names if item is not None}
