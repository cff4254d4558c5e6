"""A loss of what left an FSDP module by a side door: an attribute that forward() sets, or what a forward hook keeps.

FSDP frees the weights of a unit behind its forward(), and gathers them again by hooks on what that returns. A
backward() that comes from elsewhere meets weights without memory.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator

import msgspec

from pytracer._patterns import Pattern
from pytracer._text import list_words
from pytracer.analyze.evidence.failing.expressions import short, source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.slicing.kept_values import KeptLine, kept_in
from pytracer.analyze.evidence.slicing.values_read import Reads, is_output
from pytracer.analyze.evidence.syntax.bindings import lines_that_bind
from pytracer.analyze.evidence.syntax.calls import called_name, calls_on
from pytracer.analyze.evidence.syntax.names import elements, variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.reaching import reaching
from pytracer.analyze.evidence.syntax.scopes import own_nodes
from pytracer.analyze.tensors.scopes import unit_step
from pytracer.decode.types.journal import Unit

_MESSAGE = Pattern(r"setStorage: .* out of bounds for storage of size 0")
_BACKWARD = ("backward", "grad", "manual_backward")
_HOOKS = frozenset({"register_forward_hook", "register_module_forward_hook"})
_WRAPS = ("fully_shard", "FSDP", "FullyShardedDataParallel")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_MOST = 3


class _SideDoor(msgspec.Struct, frozen=True):
    """`loss`, which `line` sets to `made`, reads `names`, as `kept` sets the first of them; `hooked`: in a hook."""

    loss: str
    line: int
    made: str
    names: str
    kept: KeptLine
    hooked: bool


def unreturned_loss(at: FailingLine) -> str | None:
    """What to do about it."""
    found = _side_door(at)
    if found is None:
        return None
    kept = f"{at.in_file(found.kept.file, found.kept.node.lineno)}: `{short(ast.unparse(found.kept.node))}`"
    value = short(source(found.kept.value))
    output = _output(at)
    added = f"`0 * {output}.sum()`" if output is not None else "0 times the sum of what the model returns"
    made = f" (`{found.made}`)" if found.made != found.loss else ""
    return (
        f"`{found.loss}` of line {found.line}{made} is made of {found.names} ({kept}), and of nothing that the model "
        f"returned: return `{value}` through forward() and make the loss of that, or add {added} at line {found.line}"
        f"{_kept_gathered(at)}. FSDP gathers weights for backward() by hooks on what forward() returns."
    )


def unreturned_subject(at: FailingLine) -> str | None:
    """For the headline."""
    found = _side_door(at)
    if found is None:
        return None
    place = at.in_file(found.kept.file, found.kept.node.lineno)
    where = f"a forward hook sets at {place}" if found.hooked else f"is set within forward() ({place}) and not returned"
    return (
        f"backward() needs weights that FSDP has freed: `{found.loss}` of line {found.line} is made of {found.names}, "
        f"which {where}, and FSDP gathers weights again only for what a forward() returns"
    )


def _side_door(at: FailingLine) -> _SideDoor | None:
    if _MESSAGE.search(at.message) is None or not at.snapshot.recorded(Unit) or _gathered_again(at):
        return None
    calls = [item for item in calls_on(at.tree, at.line) if called_name(item) in _BACKWARD]
    loss = _loss(calls[0]) if len(calls) == 1 else None
    if loss is None:
        return None
    models = _models(at)
    ways = ((line, made, Reads(at.files, models)) for line, made in _ways(at, loss))
    found = [door for line, made, reads in ways if (door := _through(at, loss, line, made, reads)) is not None]
    return found[0] if len(found) == 1 else None


def _loss(call: ast.Call) -> ast.expr | None:
    """`loss` of `loss.backward()`, `scaler.scale(loss).backward()` and `torch.autograd.backward(loss)`."""
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    if isinstance(owner, ast.Call) and called_name(owner) == "scale" and len(owner.args) == 1:
        return owner.args[0]
    if call.args and (called_name(call) != "backward" or not isinstance(call.args[0], ast.Constant)):
        given = call.args[0]
        return given if isinstance(given, (ast.Name, ast.Attribute, ast.BinOp, ast.Call)) else None
    return owner


def _ways(at: FailingLine, loss: ast.expr) -> list[tuple[int, list[ast.expr]]]:
    """Each line that may have set it, with all that it was made of there; the failing line, of an expression."""
    name = variable(loss)
    if name is None or not isinstance(loss, ast.Name):
        return [(at.line, [loss])]
    lines = reaching(at.scope, name, at.line, True) or frozenset()
    added = [
        (item.lineno, item.value)
        for item in own_nodes(at.scope)
        if isinstance(item, ast.AugAssign) and variable(item.target) == name
    ]
    return [
        (line, [value, *(item for place, item in added if line < place < at.line)])
        for line, value in lines_that_bind(at.scope, name)
        if line in lines and isinstance(value, ast.expr)
    ]


def _through(at: FailingLine, loss: ast.expr, line: int, made: list[ast.expr], reads: Reads) -> _SideDoor | None:
    for item in made:
        reads.follow(at.tree, at.scope, item, line)
    if reads.outputs:
        return None
    doors = [*_of_forward(at, reads), *_of_hooks(at, reads)]
    names = list(dict.fromkeys(name for name, _, _ in doors))
    if not doors or len(names) > _MOST:
        return None
    _, kept, hooked = doors[0]
    return _SideDoor(
        short(source(loss)), line, short(source(made[0])), list_words([f"`{n}`" for n in names]), kept, hooked
    )


def _models(at: FailingLine) -> frozenset[str]:
    """Last names of what is sharded, and of what holds an object of a class with a forward()."""
    found = set()
    classes = {owner.name for _, _, owner, _ in _forwards(at)}
    for tree in at.files.values():
        for item in nodes_of(tree):
            if isinstance(item, ast.Call) and called_name(item) in _WRAPS and item.args:
                found.add(source(item.args[0]).rpartition(".")[2])
            elif isinstance(item, ast.Assign) and _makes(item.value, classes):
                found |= {source(target).rpartition(".")[2] for target in item.targets}
    return frozenset(found)


def _makes(value: ast.expr, classes: Collection[str]) -> bool:
    return isinstance(value, ast.Call) and called_name(value) in (*classes, *_WRAPS, "from_pretrained")


def _forwards(at: FailingLine) -> Iterator[tuple[str, ast.Module, ast.ClassDef, ast.FunctionDef]]:
    for file, tree in at.files.items():
        for owner in nodes_of(tree):
            for item in owner.body if isinstance(owner, ast.ClassDef) else ():
                if isinstance(owner, ast.ClassDef) and isinstance(item, ast.FunctionDef) and item.name == "forward":
                    yield file, tree, owner, item


def _of_forward(at: FailingLine, reads: Reads) -> Iterator[tuple[str, KeptLine, bool]]:
    """Attributes that a forward() sets, or a method that it calls, and does not return."""
    for file, tree, owner, forward in _forwards(at):
        called = {called_name(item) for item in nodes_of(forward) if isinstance(item, ast.Call)}
        methods = [item for item in owner.body if isinstance(item, ast.FunctionDef)]
        for method in [item for item in methods if item is forward or item.name in called]:
            for name in sorted(reads.attributes):
                for node, value in kept_in(method, f".{name}"):
                    if not _is_returned(forward, name, value) and _has_graph(value):
                        yield name, KeptLine(file, tree, node, value), False


def _of_hooks(at: FailingLine, reads: Reads) -> Iterator[tuple[str, KeptLine, bool]]:
    """What functions that are forward hooks set or fill."""
    names = {
        part.id if isinstance(part, ast.Name) else getattr(part, "attr", "")
        for tree in at.files.values()
        for item in nodes_of(tree)
        if isinstance(item, ast.Call) and called_name(item) in _HOOKS
        for given in item.args
        for part in nodes_of(given)
    }
    for file, tree in at.files.items():
        for function in nodes_of(tree):
            if isinstance(function, _FUNCTIONS) and function.name in names:
                for name in (*sorted(reads.names), *(f".{item}" for item in sorted(reads.attributes))):
                    for node, value in kept_in(function, name):
                        if _has_graph(value):
                            yield name.removeprefix("."), KeptLine(file, tree, node, value), True


def _is_returned(forward: ast.FunctionDef, name: str, value: ast.expr) -> bool:
    """Whether forward() returns it as well, as it is."""
    parts = elements(value)
    kept = {source(item) for item in parts} | {source(value), f"self.{name}"}
    for item in own_nodes(forward):
        if isinstance(item, ast.Return) and item.value is not None:
            whole = [item.value, *(node for node in nodes_of(item.value) if isinstance(node, (ast.Tuple, ast.Dict)))]
            given = [one for node in whole for one in _items(node)]
            if kept & {source(one) for one in given}:
                return True
    return False


def _items(node: ast.expr) -> list[ast.expr]:
    if isinstance(node, ast.Tuple):
        return node.elts
    return node.values if isinstance(node, ast.Dict) else [node]


def _has_graph(value: ast.expr) -> bool:
    return not isinstance(value, ast.Constant) and "detach" not in ast.unparse(value)


def _gathered_again(at: FailingLine) -> bool:
    """Whether a unit was gathered twice since gradients were reduced last: then hooks of backward() did run."""
    seen: set[str] = set()
    for item in reversed(at.snapshot.collectives):
        step = unit_step(item.scope)
        if step is None or item.op.startswith("reduce_scatter"):
            break
        if item.op.startswith("all_gather"):
            if step.unit in seen:
                return True
            seen.add(step.unit)
    return False


def _output(at: FailingLine) -> str | None:
    """The variable that has what the model returned, above the failing line."""
    models = _models(at)
    found = [
        target.id
        for item in own_nodes(at.scope)
        if isinstance(item, ast.Assign) and item.lineno < at.line and isinstance(item.value, ast.Call)
        if is_output(at.files, models, at.tree, item.value)
        for target in item.targets
        if isinstance(target, ast.Name) and target.id.strip("_")
    ]
    return found[-1] if found else None


def _kept_gathered(at: FailingLine) -> str:
    """The other way: weights that are not freed behind forward()."""
    calls = sorted(
        (file, item.lineno, called_name(item) == _WRAPS[0])
        for file, tree in at.files.items()
        for item in nodes_of(tree)
        if isinstance(item, ast.Call) and called_name(item) in _WRAPS
    )
    if not calls:
        return ""
    places = list_words([at.in_file(file, line) for file, line, _ in calls], _MOST)
    how = "fully_shard(..., reshard_after_forward=False)"
    how = how if calls[0][2] else "FSDP(..., sharding_strategy=ShardingStrategy.SHARD_GRAD_OP)"
    return f", or call {how} at {places}"
