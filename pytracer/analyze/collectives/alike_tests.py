"""Conditions that come out the same on all ranks of a job, as far as the source shows that.

They ask for numbers of rounds, options, constants, the environment, the type of an object, or how many ranks there are:
`epoch % self.every == 0`, `self.world > 1`, `FLAGS.sync`. What a rank has for itself, and its number, is not alike.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pytracer._patterns import Pattern
from pytracer.analyze.collectives.deciding_tests import SAME
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.ranks import asks_if_given, reads_rank
from pytracer.analyze.evidence.syntax.scopes import Scope, class_around, default_of, own_nodes, parameters, scope_of

_COUNTERS = ("range", "enumerate", "trange", "count")
# What options are usually kept in.
_OPTIONS = frozenset(
    {"args", "cfg", "config", "opt", "opts", "options", "hparams", "params", "conf", "settings", "flags", "hp"}
)
_ROUNDS = Pattern(
    r"(?:(?:i|n|current|curr?|global|total|max|num|this|last|start|end|first|train|training|warmup|opt)_)*"
    r"(?:epochs?|steps?|iter|iters|iterations?|it|i?batch_?(?:idx|index|id|i|nr?|num))"
    r"(?:_(?:idx|index|id|i|nr?|num|no|count))?"
)
_OF_JOB = Pattern(
    r"(?:is_|use_|in_)?(?:dist|distributed|ddp|fsdp|parallel|multi_?gpu)|world|(?:num_|n_?)(?:gpus?|nodes|ranks|replicas)"
    r"|(?:num_|n_?)proc(?:s|esses)|training"
)
_CONSTANT = Pattern(r"_?[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+|_?[A-Z][A-Z0-9]{1,}|__\w+__")
_ENVIRONMENT = ("environ", "getenv")
_OF_TYPE = frozenset({"isinstance", "issubclass", "hasattr", "callable"})
_OF_ALIKE = frozenset({"int", "float", "bool", "str", "len", "min", "max", "abs", "round", "get", "getattr", "lower"})
_OF_MACHINE = Pattern(
    r"is_\w*available|\w*_available|device_count|is_grad_enabled|get_backend|is_torchelastic_launched"
)
_INIT = "__init__"
_DEEPEST = 4


def is_alike(tree: ast.Module, guard: ast.If) -> bool:
    """Whether an `if` of the module asks only for what is the same on all ranks."""
    return _is_alike(guard.test, tree, scope_of(tree, guard.lineno), 0)


def constructor_values(tree: ast.Module, scope: Scope, name: str) -> list[tuple[ast.expr, Scope]] | None:
    """What the constructor gives `self.name`, with itself; None where it does not, or where others set it, too."""
    owner = class_around(tree, scope) if name.startswith("self.") else None
    if owner is None:
        return None
    attribute = name.removeprefix("self.")
    stores = sum(
        isinstance(item, ast.Attribute) and item.attr == attribute and isinstance(item.ctx, ast.Store)
        for item in nodes_of(tree)
    )
    found = [*_set_by_constructors(owner, name)]
    return found if found and len(found) == stores else None


def _is_alike(node: ast.AST, tree: ast.Module, scope: Scope, depth: int) -> bool:
    if isinstance(node, ast.Constant):
        return True
    if depth > _DEEPEST or reads_rank(node):
        return asks_if_given(node)
    if isinstance(node, ast.Call):
        return _is_alike_call(node, tree, scope, depth)
    if isinstance(node, (ast.Name, ast.Attribute)):
        return _is_of_job(node, scope) or _is_fixed(node, tree, scope, depth)
    is_identity = isinstance(node, ast.Compare) and all(isinstance(item, (ast.Is, ast.IsNot)) for item in node.ops)
    if (
        isinstance(node, ast.Compare)
        and is_identity
        and constructor_values(tree, scope, variable(node.left) or "") is not None
    ):
        return True  # `self.scheduler is not None`
    if isinstance(node, (ast.BinOp, ast.Compare)):
        parts = [node.left, node.right] if isinstance(node, ast.BinOp) else [node.left, *node.comparators]
        by = parts[1] if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Mod, ast.FloorDiv)) else None
        # `step % self.every`: whatever that is, it is a number of the program
        return all(_is_alike(item, tree, scope, depth) or (item is by and variable(item) is not None) for item in parts)
    if isinstance(node, (ast.BoolOp, ast.UnaryOp, ast.IfExp, ast.Tuple, ast.List, ast.Set, ast.Subscript)):
        own = (item for item in ast.iter_child_nodes(node) if isinstance(item, ast.expr))
        return all(_is_alike(item, tree, scope, depth) for item in own)
    return False


def _is_alike_call(call: ast.Call, tree: ast.Module, scope: Scope, depth: int) -> bool:
    """`dist.is_initialized()`, `isinstance(self.model, DDP)`, `os.environ.get("SYNC")`, `len(args.names)`."""
    name = called_name(call) or ""
    if SAME.search(name) or name in _OF_TYPE or _OF_MACHINE.fullmatch(name):
        return True
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    given = [*call.args, *(item.value for item in call.keywords)]
    if name == "getenv" or (owner is not None and ast.unparse(owner).rpartition(".")[2] in _ENVIRONMENT):
        return all(isinstance(item, ast.Constant) for item in given)
    parts = [*given, *([owner] if owner is not None else [])]
    return name in _OF_ALIKE and all(_is_alike(item, tree, scope, depth) for item in parts)


def _is_of_job(node: ast.Name | ast.Attribute, scope: Scope) -> bool:
    """By its name, or that of what has it; and the variable of a loop over numbers."""
    parts = ast.unparse(node).removeprefix("self.").split(".")
    if parts[0] in _counters(scope) or parts[-1] in _ENVIRONMENT or SAME.search(parts[-1]):
        return True
    if any(item.lower().lstrip("_") in _OPTIONS for item in parts) or any(_CONSTANT.fullmatch(item) for item in parts):
        return True
    last = parts[-1].lstrip("_").lower()
    return _ROUNDS.fullmatch(last) is not None or _OF_JOB.fullmatch(last) is not None


def _counters(scope: Scope) -> set[str]:
    """Of `for number in range(...)`, and the first one of `for number, item in enumerate(...)`."""
    found = set()
    for loop in own_nodes(scope):
        call = loop.iter if isinstance(loop, ast.For) and isinstance(loop.iter, ast.Call) else None
        if call is None or not isinstance(loop, ast.For) or called_name(call) not in _COUNTERS:
            continue
        target = loop.target
        if isinstance(target, ast.Tuple) and called_name(call) == "enumerate":
            target = target.elts[0]
        found |= {item.id for item in nodes_of(target) if isinstance(item, ast.Name)}
    return found


def _is_fixed(node: ast.Name | ast.Attribute, tree: ast.Module, scope: Scope, depth: int) -> bool:
    """A variable that is bound once, to something alike; an attribute that only the constructor sets so."""
    name = variable(node)
    if name is None:
        return False
    if isinstance(node, ast.Attribute):
        values = constructor_values(tree, scope, name)
        return values is not None and all(_is_alike_there(value, tree, there, depth) for value, there in values)
    if name in parameters(scope):
        return False
    stores = [item for item in own_nodes(scope) if isinstance(item, ast.Name) and item.id == name]
    bound = [item.value for item in own_nodes(scope) if isinstance(item, ast.Assign) and _binds(item, name)]
    once = sum(isinstance(item.ctx, ast.Store) for item in stores) == 1
    return once and len(bound) == 1 and not _can_change(bound[0]) and _is_alike(bound[0], tree, scope, depth + 1)


def _is_alike_there(value: ast.expr, tree: ast.Module, there: Scope, depth: int) -> bool:
    """Also a parameter of the constructor that has a constant as its default is an option."""
    name = variable(value)
    default = default_of(there, name) if name is not None else None
    if isinstance(default, ast.Constant) and not reads_rank(value):
        return True
    return not _can_change(value) and _is_alike(value, tree, there, depth + 1)


def _can_change(value: ast.expr) -> bool:
    """Of `self.seen = []` what is in it is another matter."""
    return isinstance(value, (ast.List, ast.Set, ast.Dict))


def _set_by_constructors(owner: ast.ClassDef, name: str) -> Iterator[tuple[ast.expr, Scope]]:
    for method in owner.body:
        if not isinstance(method, ast.FunctionDef) or method.name != _INIT:
            continue
        for item in own_nodes(method):
            if isinstance(item, ast.AnnAssign) and item.value is not None and variable(item.target) == name:
                yield item.value, method
            if isinstance(item, ast.Assign) and _binds(item, name):
                yield _own_value(item, name), method


def _binds(item: ast.Assign, name: str) -> bool:
    parts = item.targets[0].elts if isinstance(item.targets[0], ast.Tuple) else item.targets
    return any(variable(part) == name for part in parts)


def _own_value(item: ast.Assign, name: str) -> ast.expr:
    """1 of `self.a, self.b = 1, 2` for `self.a`."""
    target, value = item.targets[0], item.value
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        return next(made for part, made in zip(target.elts, value.elts, strict=True) if variable(part) == name)
    return value
