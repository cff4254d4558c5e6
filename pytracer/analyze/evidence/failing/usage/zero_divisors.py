"""A divisor that is 0: a quotient that was rounded down, an option, a sum of counts."""

from __future__ import annotations

import ast

from pytracer.analyze.evidence.failing.expressions import names_in, source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.slicing.spots import Made, Spot
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.outcomes import number

_ZEROS = ("0", "0.0")
_MOST = 3


def rounded_down(at: FailingLine, name: str) -> str | None:
    """`len(loader) // 10`, `int(n * share)`: the line that made the 0, and what its parts were."""
    made = at.made(name)
    node = made.node if made is not None else None
    parts = _quotient(node, cut=at.values.get(name) == "0") if node is not None else None
    if made is None or parts is None or not isinstance(node, ast.expr):
        return None
    above, below = parts
    value = _number(at, below, made.spot)
    if value is not None and value <= 0:
        return None
    count = _number(at, above, made.spot)
    if count is not None and not 0 <= count < (value or count + 1):
        return None
    least = f"`{source(below)}`" if value is None or source(below) == f"{value}" else f"`{source(below)}`, {value}"
    least = f"{value}" if source(below) == f"{value}" else least
    text = source(node) if isinstance(node, ast.BinOp) and isinstance(node.op, ast.FloorDiv) else f"int({source(node)})"
    few = f"`{source(above)}`{f', {count},' if count is not None else ''} is less than {least}"
    return (
        f"`{name}` is 0: `{text}` ({at.place(made.spot, made.line)}) rounds down, and {few}. Write "
        f"`max(1, {text})` there, or see why `{source(above)}` is so small."
    )


def _quotient(node: ast.AST, *, cut: bool) -> tuple[ast.expr, ast.expr] | None:
    """What is divided, and by what. `cut`: it became a whole number, by an int() around it."""
    kinds = (ast.FloorDiv, ast.Div) if cut else (ast.FloorDiv,)
    return (node.left, node.right) if isinstance(node, ast.BinOp) and isinstance(node.op, kinds) else None


def _number(at: FailingLine, node: ast.expr, spot: Spot) -> int | float | None:
    found = number(node, lambda part: at.value_at(part, spot))
    return found if found is not None else at.evaluated(node, spot)


def zero_sum(at: FailingLine, divisor: ast.expr) -> str | None:
    """`tp / (tp + fp)`: each of its parts."""
    spot = at.slice.spot(0)
    if not isinstance(divisor, ast.BinOp) or spot is None or number(divisor, lambda part: at.value_at(part, spot)) != 0:
        return None
    names = names_in(divisor)
    if not 0 < len(names) <= _MOST:
        return None
    are = ", ".join(f"`{name}`{at.came(name)} is {at.value(name)}" for name in names)
    text = source(divisor)
    return (
        f"`{text}` is 0 where line {at.line} divides by it: {are}. Say what the result is then "
        f"(`... if {text} else 0.0`), or see why nothing was counted."
    )


def zero_item(at: FailingLine, divisor: ast.expr) -> str | None:
    """`args.log_interval`, `config["every"]`: an option or an entry."""
    name = ast.unparse(divisor)
    if not isinstance(divisor, (ast.Attribute, ast.Subscript)) or at.values.get(name) not in _ZEROS:
        return None
    rounded = rounded_down(at, name)
    if rounded is not None:
        return rounded
    made = at.made(divisor)
    flag = _flag(at, made) if made is not None else None
    if flag is not None:
        return (
            f"`{name}` is 0, as {flag} was given, and line {at.line} divides by it. Give another number, or let 0 "
            f"switch it off (`if {name} and ...`)."
        )
    came = at.came(name)
    where = "there" if came else "where it is made"
    return f"`{name}`{came} is 0 where line {at.line} divides by it: correct it {where}, or handle 0 here."


def _flag(at: FailingLine, made: Made) -> str | None:
    """`--log-interval 0`, of the command line."""
    call = made.node if isinstance(made.node, ast.Call) and called_name(made.node) == "add_argument" else None
    flags = [item.value for item in call.args if isinstance(item, ast.Constant)] if call is not None else []
    words = at.snapshot.argv
    for word, after in zip(words, [*words[1:], ""], strict=True):
        if word in flags and after in _ZEROS:
            return f"`{word} {after}`"
        if word.partition("=")[0] in flags and word.partition("=")[2] in _ZEROS:
            return f"`{word}`"
    return None
