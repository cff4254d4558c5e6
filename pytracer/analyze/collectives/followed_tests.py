"""What a condition asks that left a call out: of `if loss is None`, what led a function to return None."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

import msgspec

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.slicing.bindings import bindings_of
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.constants import is_none
from pytracer.analyze.evidence.syntax.loops import deciding_ifs
from pytracer.analyze.evidence.syntax.names import names_of, variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import own_nodes, spans, spans_body
from pytracer.analyze.naming import line_in
from pytracer.decode.types.snapshot import Snapshot
from pytracer.report.job import PythonFrame

_NOT_FINITE = Pattern(r"\b(?:isnan|isinf)\b")
_FINITE = Pattern(r"\bisfinite\b")
_LIBRARIES = ("torch", "math", "np", "numpy")


class FollowedTest(msgspec.Struct, frozen=True):
    """`words`: where the value comes from that is tested; None where the condition asks it itself.

    `asks`: the last condition; `handler`: the `except` in which a function returns the value instead.
    `not_finite`: whether a number was not finite on the rank that left the call out, or on the other one; its `name`.
    """

    words: str | None
    asks: ast.expr | None = None
    handler: ast.ExceptHandler | None = None
    not_finite: bool | None = None
    name: str | None = None


def followed_test(
    snapshot: Snapshot, frames: Sequence[PythonFrame], frame: PythonFrame, decides: ast.If, *, around: bool
) -> FollowedTest | None:
    """Of an `if` by which a rank left out a call.

    Args:
        snapshot: A process that made the call.
        frames: The lines of the program that led to it, innermost first.
        frame: That of the `if`.
        decides: The `if`.
        around: Whether the call is below it; else the `if` leaves before.
    """
    slice_ = Slice(snapshot, frames)
    spot = slice_.spot(frames.index(frame)) if frame in frames else None
    if spot is None or frame.line is None:
        return None
    holds = not around or not spans_body(decides.body, frame.line)  # on the rank that left the call out
    test, holds = _without_not(decides.test, holds)
    known = _not_finite(test, holds)
    if known is not None:
        return FollowedTest(None, test, None, known, _asked_name(test))
    return _of_bound(slice_, test, holds, Spot(spot.file, spot.tree, spot.scope, decides.lineno, spot.depth))


def _of_bound(slice_: Slice, test: ast.expr, holds: bool, spot: Spot) -> FollowedTest | None:
    """Of a variable, or of a call of the program's own: what its value means."""
    empty = holds
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and is_none(test.comparators[0]):
        empty = holds == isinstance(test.ops[0], (ast.Is, ast.Eq))
        test = test.left
    else:
        empty = not holds
    value: ast.AST | None = test
    at = ""
    name = variable(test)
    if name is not None:
        bound = [item for item in bindings_of(spot.scope, name) if item[0] < spot.line]
        if not bound or bound[-1][2] is not None:
            return None
        line, value, _ = bound[-1]
        at = f" of line {line}"
    if isinstance(value, ast.Call):
        function = slice_.function(value, spot)
        if function is not None:
            return _of_function(function[0], function[1].tree, function[1].file, spot.file, empty=empty)
    if not isinstance(value, ast.expr) or name is None:
        return None
    asked, true = _without_not(value, not empty)
    known = _not_finite(asked, true)
    if known is None:
        return None
    return FollowedTest(f"`{name}` is `{source(value)}`{at}", asked, None, known, _asked_name(asked))


def _of_function(
    function: ast.FunctionDef, tree: ast.Module, file: str | None, here: str | None, *, empty: bool
) -> FollowedTest | None:
    """The one `return` that gives what is tested, where the others give something else."""
    returns = [item for item in own_nodes(function) if isinstance(item, ast.Return)]
    given = [item for item in returns if _is_empty(item.value) == empty]
    if len(given) != 1:
        return None
    shown = source(given[0].value) if given[0].value is not None else "None"
    if len(returns) == 1 and given[0].value is not None:  # `return bool(torch.isnan(loss))`
        asked, true = _without_not(given[0].value, not empty)
        known = _not_finite(asked, true)
        place = line_in(file, given[0].lineno, here)
        words = f"{function.name}() returns `{shown}` ({place})"
        return FollowedTest(words, asked, None, known, _asked_name(asked)) if known is not None else None
    handler = next(_handlers(function, given[0].lineno), None)
    if handler is not None:
        head = f"except {source(handler.type)}" if handler.type is not None else "except"
        place = line_in(file, handler.lineno, here)
        return FollowedTest(f"{function.name}() returned `{shown}` from its `{head}:` ({place})", None, handler)
    around = [item for item, is_around in deciding_ifs(tree, given[0].lineno) if is_around]
    if not around:
        return None
    closest = around[0]
    below = not spans(closest.test, given[0].lineno) and spans_body(closest.body, given[0].lineno)
    asked, true = _without_not(closest.test, below)
    where = "below" if below else "in the else of"
    words = (
        f"{function.name}() returned `{shown}` {where} `if {source(closest.test)}:` "
        f"({line_in(file, closest.lineno, here)})"
    )
    return FollowedTest(words, asked, None, _not_finite(asked, true), _asked_name(asked))


def _handlers(function: ast.FunctionDef, line: int) -> Iterator[ast.ExceptHandler]:
    for item in own_nodes(function):
        for handler in item.handlers if isinstance(item, ast.Try) else ():
            if spans_body(handler.body, line):
                yield handler


def _is_empty(value: ast.expr | None) -> bool:
    """None, False, 0 or an empty list."""
    if value is None or is_none(value):
        return True
    return (isinstance(value, ast.Constant) and not value.value) or (isinstance(value, ast.List) and not value.elts)


def _without_not(test: ast.expr, holds: bool) -> tuple[ast.expr, bool]:
    """A condition, and whether it holds."""
    while isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        test, holds = test.operand, not holds
    return test, holds


def _not_finite(test: ast.expr, holds: bool) -> bool | None:
    """Whether a number is not finite where a condition holds or not; None where it asks something else, too."""
    if isinstance(test, ast.BoolOp):  # `torch.isnan(loss) or torch.isinf(loss)`
        parts = {_not_finite(*_without_not(item, True)) for item in test.values}
        wanted = isinstance(test.op, ast.Or)
        return (wanted == holds) if parts == {wanted} else None
    text = ast.unparse(test)
    asks = [bool(_NOT_FINITE.search(text)), bool(_FINITE.search(text))]
    plain = not any(isinstance(item, (ast.BoolOp, ast.IfExp, ast.UnaryOp)) for item in nodes_of(test))
    if asks[0] == asks[1] or not plain:
        return None
    return holds if asks[0] else not holds


def _asked_name(test: ast.expr) -> str | None:
    """`loss` of `torch.isnan(loss).any()`."""
    names = [name for name in names_of(test) if name not in _LIBRARIES]
    return names[0] if len(names) == 1 else None
