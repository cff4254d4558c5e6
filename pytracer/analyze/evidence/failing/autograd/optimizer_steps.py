"""The calls of a function that step an optimizer before its frame's line, and the modules whose parameters it has."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import msgspec
from msgspec import structs

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.loops import LEAVES, last_of, loops_of
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import own_nodes, parameters, spans, spans_body

_OPTIMIZER = Pattern(
    r"(?i)(?:^|[._])(?:\w*optim(?:izer)?s?(?:_?\w{1,12})?|\w*opts?(?:_\w{1,12}|\w|(?-i:[A-Z]\w{0,11}))?"
    r"|(?:adamw?|sgd|rmsprop)(?:_?\w{1,12})?)(?:\[.+\])?$"
)
_OTHER = Pattern(r"(?i)sched|warmup|(?:^|[._])env|_lrs?(?:$|[_\[])|(?-i:LR)|copter")
_SCHEDULERS = Pattern(r"(?:LR|Scheduler|Restarts|Plateau|Warmup|schedule\w*)$")
_SCALER = Pattern(r"(?i)scaler")
_LISTS = ("parameters", "named_parameters")
_FUNCTIONS = 2  # that call each other


class OptimizerStep(msgspec.Struct, frozen=True):
    """A call that steps an optimizer. `optimizer`: as the function `at` calls it; `call`: that of the frame's function.

    `modules`: those whose parameters it was given, with the function that names them so; empty where unknown.
    """

    call: ast.Call
    spot: Spot
    optimizer: str
    modules: tuple[tuple[str, Spot], ...]
    maybe: bool

    @property
    def line(self) -> int:
        """Of the function whose frame is on the stack."""
        return self.call.lineno


def steps_before(at: FailingLine, spot: Spot) -> list[OptimizerStep]:
    """Of the function of a frame, above its line, in their order; also through functions of the program."""
    found = []
    for item in own_nodes(spot.scope):
        if isinstance(item, ast.Call) and item.lineno < spot.line and not is_of_other_branch(spot, item):
            maybe = _is_below_condition(spot, item) or _may_be_skipped(spot, item)
            inner = structs.replace(spot, line=item.lineno)
            found += [
                OptimizerStep(item, spot, ast.unparse(owner), _modules(at, owner, where), maybe or unsure)
                for owner, where, unsure in _stepped(at, item, inner, 0)
            ]
    return sorted(found, key=lambda step: step.line)


def _stepped(at: FailingLine, call: ast.Call, spot: Spot, hops: int) -> Iterator[tuple[ast.expr, Spot, bool]]:
    """The optimizers that a call steps, as the outermost function names them; whether a condition decides it."""
    owner = stepped_optimizer(call)
    if owner is not None:
        made = at.slice.made(owner, spot, calls=False)
        if _OTHER.search(ast.unparse(owner)) or (
            isinstance(made.node, ast.Call) and _SCHEDULERS.search(called_name(made.node) or "")
        ):
            return
        if is_optimizer(owner) or (isinstance(made.node, ast.Call) and _given_lists(made.node)):
            yield owner, spot, False
        return
    called = at.slice.function(call, spot) if hops < _FUNCTIONS else None
    if called is None:
        return
    function, around = called
    for item in own_nodes(function):
        if not isinstance(item, ast.Call):
            continue
        inside = Spot(around.file, around.tree, function, item.lineno, None, (call, spot))
        for inner, where, unsure in _stepped(at, item, inside, hops + 1):
            named = at.slice.argument(inner.id, where) if _is_passed(inner, where) else None  # type: ignore[attr-defined]
            value, place = named if named is not None else (inner, where)
            if isinstance(value, ast.expr):
                yield value, place, unsure or _is_below_condition(inside, item) or may_be_left_before(function, item)


def _is_passed(node: ast.expr, spot: Spot) -> bool:
    return isinstance(node, ast.Name) and node.id in parameters(spot.scope)


def stepped_optimizer(call: ast.Call) -> ast.expr | None:
    """`opt` of `opt.step()` and `scaler.step(opt)`; it may be anything else with a step(), too."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr != "step":
        return None
    owner = call.func.value
    return call.args[0] if _SCALER.search(ast.unparse(owner)) and call.args else owner


def is_optimizer(node: ast.expr) -> bool:
    """By its name."""
    text = ast.unparse(node)
    return _OPTIMIZER.search(text) is not None and _OTHER.search(text) is None


def _modules(at: FailingLine, optimizer: ast.expr, spot: Spot) -> tuple[tuple[str, Spot], ...]:
    made = at.slice.made(optimizer, spot, calls=False)
    given = _given_lists(made.node) if isinstance(made.node, ast.Call) else []
    if isinstance(made.node, ast.Call) and not given and made.node.args:
        listed = at.slice.made(made.node.args[0], made.spot, calls=False)
        if isinstance(listed.node, ast.Call) and (called_name(listed.node) or "")[:1].isupper():
            return ()  # another optimizer, of which this is a wrapper
        given = _given_lists(listed.node)
        return tuple((item, listed.spot) for item in given)
    return tuple((item, made.spot) for item in given)


def _given_lists(node: ast.AST) -> list[str]:
    """`net` of `Adam(net.parameters())`."""
    found = [
        ast.unparse(item.func.value)
        for item in nodes_of(node)
        if isinstance(item, ast.Call) and called_name(item) in _LISTS and isinstance(item.func, ast.Attribute)
    ]
    return list(dict.fromkeys(found))


def _is_below_condition(spot: Spot, call: ast.Call) -> bool:
    """In a branch that does not have the frame's line."""
    kinds = (ast.If, ast.IfExp)
    around = (item for item in own_nodes(spot.scope) if isinstance(item, kinds) and spans(item, call.lineno))
    return any(not spans(item, spot.line) or spot.depth is None for item in around)


def may_be_left_before(scope: ast.AST, node: ast.expr) -> bool:
    """Whether an `if`, a loop or a handler above has a line that leaves the function or the round: `return`."""
    kinds = (ast.Return, ast.Raise, ast.Continue, ast.Break)
    return any(isinstance(item, kinds) and item.lineno < node.lineno for item in own_nodes(scope))


def _may_be_skipped(spot: Spot, call: ast.Call) -> bool:
    """In a loop that does not have the frame's line, below a `continue` or `break`."""
    loops = [item for item in loops_of(spot.scope) if spans_body(item.body, call.lineno)]
    return any(may_be_left_before(item, call) for item in loops if not spans(item, spot.line))


def is_of_other_branch(spot: Spot, call: ast.Call) -> bool:
    """In another arm than the frame's line, in a handler, or in a branch of an `if` that leaves before that line.

    Any other branch may have run: the parameter was changed, and by that optimizer.
    """
    kinds = (ast.If, ast.Try, ast.ExceptHandler, ast.IfExp)
    around = [item for item in nodes_of(spot.scope) if isinstance(item, kinds)]
    return any(_is_apart(item, call.lineno, spot.line) for item in around)


def _is_apart(item: ast.If | ast.Try | ast.ExceptHandler | ast.IfExp, step: int, line: int) -> bool:
    if not isinstance(item, ast.If):
        end = item.end_lineno or 0
        return item.lineno <= step <= end and not item.lineno <= line <= end
    mine = next((arm for arm in (item.body, item.orelse) if spans_body(arm, step)), None)
    if mine is None:
        return False  # in its condition
    return not spans_body(mine, line) if spans(item, line) else isinstance(last_of(mine), LEAVES)
