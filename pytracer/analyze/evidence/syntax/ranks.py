"""Expressions with the number of the rank itself, as programs call it."""

from __future__ import annotations

import ast

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.loops import deciding_ifs
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import spans_body

_RANK = Pattern(
    r"(?:(?:global|local|node|group|data_parallel|dp|my|proc|process|worker|trainer)_)?rank|get_(?:\w+_)?rank"
    r"|(?:proc|rank)_(?:id|idx)|is_(?:main|master)\w*|(?:main|master)_process|process_index"
)
_ENVIRONMENT = Pattern(r"\b(?:environ|getenv)\b.*\b(?:LOCAL_)?RANK\b")
_OF_SOME = Pattern(r"(?:node|group|dp|tp|pp|cp|parallel|worker|trainer)_rank")
_FLAG = Pattern(r"main|master")


def is_rank(node: ast.AST) -> bool:
    """`rank`, `self.local_rank`, `dist.get_rank()`, `is_main_process()`; not `lora_rank`."""
    name = variable(node) if isinstance(node, (ast.Name, ast.Attribute)) else None
    if isinstance(node, ast.Attribute) and name is None:
        name = node.attr
    if isinstance(node, ast.Call):
        name = called_name(node)
    return name is not None and _RANK.fullmatch(name.rpartition(".")[2].lstrip("_")) is not None


def is_of_rank(node: ast.AST) -> bool:
    """Whether the rank is in an expression."""
    return any(is_rank(item) for item in nodes_of(node))


def reads_rank(node: ast.AST) -> bool:
    """As is_of_rank, also by the environment: `os.environ["RANK"]`."""
    return is_of_rank(node) or _ENVIRONMENT.search(ast.unparse(node)) is not None


def asks_if_given(node: ast.AST) -> bool:
    """`local_rank != -1`, `rank is not None`: whether there are ranks, which all of a job answer alike."""
    if not isinstance(node, ast.Compare) or len(node.ops) != 1:
        return False
    value = ast.unparse(node.comparators[0])
    return value in ("-1", "None") or (value == "0" and isinstance(node.ops[0], (ast.GtE, ast.Lt)))


def rank_branch(tree: ast.Module, line: int) -> ast.If | None:
    """The closest `if` on the rank around a line."""
    return next((item for item, around in deciding_ifs(tree, line) if around and is_of_rank(item.test)), None)


def is_for_one_rank(test: ast.expr) -> bool | None:
    """Whether a condition holds on one rank alone; False where it holds on all but that, None where neither is sure."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = is_for_one_rank(test.operand)
        return None if inner is None else not inner
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        return True if any(is_for_one_rank(item) for item in test.values) else None
    if _names_rank(test):
        return _FLAG.search(ast.unparse(test)) is not None
    if not isinstance(test, ast.Compare) or len(test.ops) != 1 or not _names_rank(test.left):
        return None
    number = test.comparators[0]
    if not isinstance(number, ast.Constant) or type(number.value) is not int:
        few = isinstance(number, (ast.Tuple, ast.List)) and {ast.unparse(item) for item in number.elts} <= {"-1", "0"}
        return True if few and isinstance(test.ops[0], ast.In) else None
    if isinstance(test.ops[0], (ast.Eq, ast.NotEq)):
        return isinstance(test.ops[0], ast.Eq) if number.value >= 0 else None
    return False if isinstance(test.ops[0], ast.Gt) and number.value == 0 else None


_OPPOSITES: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
    ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt,
}  # fmt: skip


def opposite(test: ast.expr) -> ast.expr:
    """The condition that holds where this one does not: `rank == 0` of `rank != 0`."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return test.operand
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        return ast.Compare(test.left, [_OPPOSITES[type(test.ops[0])]()], test.comparators)
    return ast.UnaryOp(ast.Not(), test)


def comes_alone(item: ast.If, line: int, *, around: bool) -> bool:
    """Whether one rank alone comes to a line by an `if`, which stands around it or leaves before it."""
    one = is_for_one_rank(item.test)
    return one is not None and one is (around and spans_body(item.body, line))


def one_rank_words(test: ast.expr) -> str:
    """`rank 0`: which one that is, of a condition that `is_for_one_rank`, or its opposite."""
    for item in nodes_of(test):
        number = item.comparators[0] if isinstance(item, ast.Compare) and _names_rank(item.left) else None
        if isinstance(number, ast.Constant) and type(number.value) is int:
            return f"{'local ' if 'local' in ast.unparse(item).lower() else ''}rank {number.value}"
    return "the main process"


def one_rank_number(test: ast.expr) -> int | None:
    """0 of `rank == 0` and of `is_main_process()`; None of a rank that is local, or not given as a number.

    Of a condition that `is_for_one_rank`, or its opposite.
    """
    if "local" in ast.unparse(test).lower():
        return None
    for item in nodes_of(test):
        number = item.comparators[0] if isinstance(item, ast.Compare) and _names_rank(item.left) else None
        if number is not None:
            return number.value if isinstance(number, ast.Constant) and type(number.value) is int else None
    return 0


def _names_rank(node: ast.AST) -> bool:
    """`rank`, `is_main_process()`, `int(os.environ["RANK"])`."""
    if _OF_SOME.search(ast.unparse(node)):
        return False
    if isinstance(node, ast.Call) and called_name(node) == "int" and len(node.args) == 1:
        return _ENVIRONMENT.search(ast.unparse(node.args[0])) is not None or _names_rank(node.args[0])
    return is_rank(node)
