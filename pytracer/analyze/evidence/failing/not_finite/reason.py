"""Whether an exception is about a number that is not finite: by its message, or by a check and what is recorded."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.expressions import names_in
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.not_finite.weights import weights_of
from pytracer.analyze.evidence.syntax.bindings import lines_that_bind
from pytracer.analyze.evidence.syntax.scopes import own_nodes

_NUMBER = r"\b(?:nan|inf)\b"
TELLS_NOT_FINITE = Pattern(
    rf"found invalid values[\s\S]*{_NUMBER}|contains either `inf`, `nan`|range of \[[^]]*(?:nan|inf)"
    r"|returned nan values|is non-finite, so it cannot be clipped|Input \w* ?contains (?:NaN|infinity)"
    r"|cannot convert float (?:NaN|infinity)"
)
_SAYS = Pattern(rf"invalid values|{_NUMBER}|contains either|not finite|non-?finite|NaN|infinit", re.IGNORECASE)
_MAY_MEAN = Pattern(
    r"all elements of std >= 0|should be between 0 and 1|positive[- ]definite|did(?:n't| not) converge|ill-conditioned"
    r"|failed to converge|[Ss]ingular matrix|is singular|sum of probabilities|<= p && p <=|\bp_in >= 0 && p_in <= 1"
    r"|rate to be non-negative|elements of (?:rate|p) |probability entry < 0"
)
_ASKS = Pattern(r"isfinite|isnan|isinf|nan_to_num")
NOT_FINITE = Pattern(r"\bwith (?:nan|inf)$|(?:^|\s)-?(?:nan|inf)$")
OF_TENSOR = Pattern(r"\bwith (?:nan|inf)$|\bfloat\d+ -?(?:nan|inf)$|^nan$")


def is_about_not_finite(at: FailingLine) -> bool:
    """Whether the exception is about such a number: by its message, or by a check or message and what is recorded."""
    weights = weights_of(at)
    bad = weights is not None and weights.bad
    if isinstance(at.statement, (ast.Raise, ast.Assert)) and at.own:
        tests = " ".join(ast.unparse(item) for item in _tests(at))
        names = [name for item in _tests(at) for name in names_in(item)]
        asks = _ASKS.search(tests) is not None
        bad_named = any(NOT_FINITE.search(at.values.get(name, "")) for name in names)
        return (asks and ".grad" in tests) or (bad_named and (asks or _SAYS.search(at.message) is not None))
    if TELLS_NOT_FINITE.search(at.message):
        return True
    if _SAYS.search(at.message):
        return any(NOT_FINITE.search(at.values.get(name, "")) for name in asked_names(at)) or bad
    if _MAY_MEAN.search(at.message) is None:
        return False
    told = [at.values[name] for name in asked_names(at) if "float" in at.values.get(name, "")]
    if any(NOT_FINITE.search(value) for value in told):
        return True
    outer = any(OF_TENSOR.search(value) for name, value, _ in all_values(at) if " of " not in name)
    return not told and (bad or (outer and weights is None))


def _tests(at: FailingLine) -> Iterator[ast.AST]:
    """Of the program's own check."""
    if isinstance(at.statement, ast.Assert):
        yield at.statement.test
    for item in own_nodes(at.scope):
        if isinstance(item, ast.If) and any(part is at.statement for part in (*item.body, *item.orelse)):
            yield item.test


def tested(at: FailingLine) -> list[ast.AST]:
    """What the program's own check tests, and what made these variables."""
    if not (isinstance(at.statement, (ast.Raise, ast.Assert)) and at.own):
        return []
    tests = [*_tests(at)]
    names = [name for item in tests for name in names_in(item)]
    made = [value for name in names for _, value in lines_that_bind(at.scope, name) if isinstance(value, ast.Attribute)]
    return [*tests, *made]


def asked_names(at: FailingLine) -> list[str]:
    """Variables of the failing expression; of a check those that it asks for."""
    own = isinstance(at.statement, (ast.Raise, ast.Assert)) and at.own
    if own:
        return [*dict.fromkeys(name for item in _tests(at) for name in names_in(item))]
    return at.names


def all_values(at: FailingLine) -> Iterator[tuple[str, str, int]]:
    """Name, recorded value and depth of the variables of all frames of the program, innermost first."""
    for depth in range(len(at.frames)):
        yield from ((name, value, depth) for name, value in at.values_at(depth).items())
