"""An `if` by which one rank went another way: what to do about what it asks."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.slicing.own_values import OF_TIME
from pytracer.analyze.evidence.syntax.bindings import bound_value
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.imports import imported_as
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import Scope, scope_of

DECIDE = "let one rank decide and broadcast it, or all_reduce() the flag, so that all take the same way."
DRAWN = Pattern(r"\brand\w*\s*\(|random|bernoulli|\bchoice\(|uniform\(")
SAME = Pattern(r"is_initialized|is_available|world_?size|__name__", re.IGNORECASE)  # comes out alike on all ranks
_SEEDS = (
    "it draws from a generator of each rank's own: give it the same seed on all ranks, one of its own if the data "
    "needs different ones, or broadcast what is drawn."
)
_TIMES = (
    "each rank reads its own clock (`{0}`), and may pass that limit in another round: let one rank decide and "
    "broadcast it, or go by the number of steps, which is the same on all ranks."
)
_NUMBERS = ("int", "float", "round", "abs", "min", "max")
EMPTY = (
    "a rank with nothing in it leaves out what the others wait for. Let it take part, too, with an empty or neutral "
    "tensor (zeros, a count of 0), or give every rank something."
)


def advice_of_test(decides: ast.If, tree: ast.Module) -> str:
    """About an `if` that one rank may have passed by; `tree`: of its file."""
    found = change_of_test(decides, tree)
    return found if found != DECIDE else f"see whether that came out differently there (files, options, data): {DECIDE}"


def change_of_test(decides: ast.If, tree: ast.Module) -> str:
    """What to change about an `if` that came out differently on one rank."""
    if _is_no_list(decides.test, scope_of(tree, decides.lineno), decides.lineno):
        return EMPTY
    if DRAWN.search(ast.unparse(decides.test)) is not None:
        return _SEEDS
    clock = _clock_of(decides, tree)
    if clock is not None:
        return _TIMES.format(clock)
    return EMPTY if any(_asks_if_empty(item) for item in nodes_of(decides.test)) else DECIDE


def _clock_of(decides: ast.If, tree: ast.Module) -> str | None:
    """`time.monotonic()`, which the condition asks itself or by a variable that is made above."""
    scope = scope_of(tree, decides.lineno)
    names = {item.id for item in nodes_of(decides.test) if isinstance(item, ast.Name)}
    bound = [item[1] for name in names if (item := bound_value(scope, name, decides.lineno)) is not None]
    for node in (decides.test, *(item for item in bound if item is not None)):
        for call in _added_up(node):
            if imported_as(tree, call.func) in OF_TIME:
                return ast.unparse(call)
    return None


def _added_up(node: ast.AST) -> Iterator[ast.Call]:
    """The calls whose values are compared or added up, not those given to other calls: these may share a clock."""
    if isinstance(node, ast.Call):
        yield node
        inner = [node.func.value] if isinstance(node.func, ast.Attribute) else []
        inner += node.args if called_name(node) in _NUMBERS else []
    elif isinstance(node, (ast.BinOp, ast.BoolOp, ast.Compare, ast.UnaryOp, ast.Attribute)):
        inner = [item for item in ast.iter_child_nodes(node) if isinstance(item, ast.expr)]
    else:
        return
    for item in inner:
        yield from _added_up(item)


def _is_no_list(test: ast.expr, scope: Scope, line: int) -> bool:
    """`not mine`, of a part of a list, or a list that is made above."""
    name = variable(test.operand) if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not) else None
    bound = bound_value(scope, name, line) if name is not None else None
    made = bound[1] if bound is not None else None
    if isinstance(made, ast.Subscript):
        return isinstance(made.slice, ast.Slice)
    return isinstance(made, (ast.List, ast.ListComp)) or (
        isinstance(made, ast.Call) and called_name(made) in ("list", "sorted", "glob", "listdir")
    )


def _asks_if_empty(test: ast.AST) -> bool:
    """`len(x) == 0`, `x.numel() > 0`, `not x.size(0)`."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return _is_size(test.operand)
    if not isinstance(test, ast.Compare) or len(test.comparators) != 1:
        return False
    number = test.comparators[0]
    return _is_size(test.left) and isinstance(number, ast.Constant) and number.value in (0, 1)


def _is_size(value: ast.expr) -> bool:
    if isinstance(value, ast.Subscript):
        return ast.unparse(value.value).endswith(".shape")
    return isinstance(value, ast.Call) and called_name(value) in ("len", "numel", "size")
