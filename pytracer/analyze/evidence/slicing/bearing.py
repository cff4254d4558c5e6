"""Which lines of a slice bear on what is wrong: those that only hand a value on, or make no value, do not."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.syntax.calls import called_name, passed_values
from pytracer.analyze.evidence.syntax.names import names_of, variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of

_GENERATORS = frozenset({"default_rng", "Generator", "manual_seed", "RandomState", "Random", "seed"})
_PARSERS = frozenset({"ArgumentParser", "parse_args", "parse_known_args"})
_FRESH = frozenset(
    {"empty", "empty_like", "zeros", "zeros_like", "ones", "ones_like", "rand", "randn", "rand_like", "randn_like"}
)
IN_PLACE = Pattern(r"[a-z0-9]_$")
_NUMBERS = (int, float)
_LITERALS = (ast.Constant, ast.Tuple, ast.List, ast.Set, ast.Dict, ast.UnaryOp, ast.BinOp)
_PARTS = (ast.operator, ast.unaryop, ast.expr_context)


def hands_on(statement: ast.stmt) -> bool:
    """`self.rows = rows`, `self.a, self.b = a, b`: the value has another name, and is the same."""
    if not isinstance(statement, (ast.Assign, ast.AnnAssign)) or statement.value is None:
        return False
    value = statement.value
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    if isinstance(value, (ast.Tuple, ast.List)):
        whole = all(isinstance(item, (ast.Tuple, ast.List)) and len(item.elts) == len(value.elts) for item in targets)
        return whole and all(variable(item) is not None for item in value.elts)
    return variable(value) is not None and all(variable(item) is not None for item in targets)


def makes_no_value(statement: ast.stmt) -> bool:
    """A generator of random numbers, a parser of options, or an object of which nothing but its class is known."""
    value = getattr(statement, "value", None)
    if not isinstance(value, ast.Call):
        return False
    names = {called_name(item) for item in _calls(value)}
    drawn = bool(names - _GENERATORS)  # as in `default_rng(0).random(4)`
    return bool(names & _GENERATORS and not drawn) or called_name(value) in _PARSERS or _is_plain_object(value)


def names_not_read(node: ast.AST) -> frozenset[str]:
    """Variables of a lambda's body alone, which runs later; and numbers in a text, as in a file name."""
    inside = [item for item in nodes_of(node) if isinstance(item, ast.Lambda)]
    texts = [item for item in nodes_of(node) if isinstance(item, ast.JoinedStr)]
    within = {id(part) for item in (*(one.body for one in inside), *texts) for part in nodes_of(item)}
    outside = {name for item in nodes_of(node) if id(item) not in within and (name := variable(item)) is not None}
    of_lambdas = {name for item in inside for name in names_of(item.body)} - outside
    of_texts = {name for item in texts for name in names_of(item)} - outside
    read = {*names_of(node)} - of_lambdas - of_texts
    return frozenset(of_lambdas | (of_texts if read else set()))


def names_that_place(node: ast.AST) -> frozenset[str]:
    """Variables that are only the place in something else: `day` of `x = prices[day]`."""
    inside = {id(part) for item in nodes_of(node) if isinstance(item, ast.Subscript) for part in nodes_of(item.slice)}
    names = [(item, name) for item in nodes_of(node) if (name := variable(item)) is not None]
    return frozenset(
        {name for item, name in names if id(item) in inside} - {n for i, n in names if id(i) not in inside}
    )


def is_generator(value: ast.AST) -> bool:
    """`np.random.default_rng(seed)`: what it is made of says nothing about the numbers that it gives."""
    return isinstance(value, ast.Call) and bool({called_name(item) for item in _calls(value)} & _GENERATORS)


def keeps_size(statement: ast.stmt | None) -> bool:
    """`x /= n`, `x.sub_(y)`: of a tensor that is changed in place. A list that `+=` makes longer is none."""
    if isinstance(statement, ast.AugAssign):
        return not isinstance(statement.op, ast.Add)
    value = statement.value if isinstance(statement, ast.Expr) else None
    name = called_name(value) if isinstance(value, ast.Call) else None
    return name is not None and IN_PLACE.search(name) is not None and not name.startswith("resize")


def is_fresh(statement: ast.stmt) -> bool:
    """`out = torch.empty(n)`: memory for a result, or numbers by chance."""
    value = getattr(statement, "value", None)
    return isinstance(value, ast.Call) and called_name(value) in _FRESH


def is_literal(statement: ast.stmt) -> bool:
    """`SIDE = 64`, or several of them."""
    value = getattr(statement, "value", None)
    return value is not None and all(isinstance(item, (*_LITERALS, *_PARTS)) for item in nodes_of(value))


def _calls(value: ast.expr) -> Iterator[ast.Call]:
    """`g.manual_seed(0)` and `Generator()` of `Generator().manual_seed(0)`."""
    inner: ast.expr = value
    while isinstance(inner, ast.Call):
        yield inner
        if not isinstance(inner.func, ast.Attribute):
            return
        inner = inner.func.value


def _is_plain_object(value: ast.Call) -> bool:
    """`Net()`, `DDP(Net(bias=False))`: nothing goes in that could be wrong, such as a number."""
    name = called_name(value) or ""
    given = passed_values(value)
    return name[:1].isupper() and all(
        (isinstance(item, ast.Constant) and type(item.value) not in _NUMBERS)
        or (isinstance(item, ast.Call) and _is_plain_object(item))
        for item in given
    )
