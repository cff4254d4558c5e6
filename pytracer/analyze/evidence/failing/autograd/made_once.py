"""What a module computes of its parameters in __init__(), once: the first backward() frees the graph that it has."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pytracer.analyze.evidence.failing.autograd.carried_states import is_module
from pytracer.analyze.evidence.failing.autograd.graph_lines import enters_mode
from pytracer.analyze.evidence.failing.autograd.kept_results import WITHOUT_GRAPH, methods_of
from pytracer.analyze.evidence.failing.expressions import names_in, short, source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.syntax.calls import called_name, keyword_value
from pytracer.analyze.evidence.syntax.names import last_name, variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import own_nodes, spans

_COMPUTES = (ast.Call, ast.BinOp)
_HOLDS = ("Parameter", "ParameterList", "Buffer")
_NUMBERS = ("size", "numel", "nelement", "dim", "ndimension", "stride", "get_device", "data_ptr", "element_size")
_SAVE_NOTHING = (  # their backward() needs no tensor, and can run again
    "t", "transpose", "permute", "view", "reshape", "flatten", "squeeze", "unsqueeze", "expand", "sum", "mean", "clone",
    "contiguous", "to", "float", "half", "double", "cuda", "cpu", "cat", "stack", "chunk", "split", "add", "sub",
)  # fmt: skip


def made_once(at: FailingLine) -> tuple[str | None, str | None]:
    """What to do, and for the headline, where one attribute of a module is such."""
    found = [item for file, tree in at.files.items() for item in _of_file(at, file, tree)]
    if len(found) != 1 or _may_be_another(at, *found[0][1:]):
        return None, None
    file, owner, item = found[0]
    name, place = source(item.targets[0]), at.in_file(file, item.lineno)
    words = (
        f"`{name}` ({place}: `{short(source(item.value))}`) is computed of parameters in __init__() of {owner.name}, "
        "once: the first backward() frees its graph, and later steps read it again. Compute it in each forward() (or "
        "as a property), which also lets it follow the parameters; or detach() it, where these are not trained by it."
    )
    return words, f"`{name}` ({place}) is computed of parameters once, in __init__() of {owner.name}"


def _may_be_another(at: FailingLine, owner: ast.ClassDef, item: ast.Assign) -> bool:
    """Whether the class is never made, another line sets the attribute, or one round has several backward()."""
    parts = [part for tree in at.files.values() for part in nodes_of(tree)]
    target = item.targets[0]
    name = target.attr if isinstance(target, ast.Attribute) else ""
    others = [part for part in parts if isinstance(part, ast.Attribute) and part.attr == name and part is not target]
    if any(isinstance(part.ctx, ast.Store) for part in others):
        return True
    if owner.name not in {last_name(part) for part in parts if isinstance(part, (ast.Name, ast.Attribute))}:
        return True
    backwards = [part for part in parts if isinstance(part, ast.Call) and called_name(part) == "backward"]
    return len(backwards) > 1


def _of_file(at: FailingLine, file: str, tree: ast.Module) -> Iterator[tuple[str, ast.ClassDef, ast.Assign]]:
    for owner in (item for item in nodes_of(tree) if isinstance(item, ast.ClassDef) and is_module(at, item)):
        methods = methods_of(owner)
        first = next((item for item in methods if item.name == "__init__"), None)
        for item in _computed(first) if first is not None else ():
            name = source(item.targets[0])
            others = [part for method in methods if method is not first for part in own_nodes(method)]
            same = [part for part in others if isinstance(part, ast.Attribute) and ast.unparse(part) == name]
            if same and all(isinstance(part.ctx, ast.Load) for part in same):
                yield file, owner, item


def _computed(first: ast.FunctionDef) -> Iterator[ast.Assign]:
    """`self.adj = softmax(self.a @ self.b)`, where these are parameters."""
    assigns = [item for item in own_nodes(first) if isinstance(item, ast.Assign) and len(item.targets) == 1]
    made = {variable(item.targets[0]) for item in assigns if _is_trained(item.value)} - {None}
    quiet = [item for item in own_nodes(first) if enters_mode(item)]
    for item in sorted(assigns, key=lambda item: item.lineno):
        computed = isinstance(item.value, _COMPUTES) and made & {*names_in(item.value)}
        if not computed or _is_parameter(item.value) or WITHOUT_GRAPH.search(ast.unparse(item.value)):
            continue
        if not _is_tensor(item.value, made) or any(spans(part, item.lineno) for part in quiet):
            continue
        if isinstance(item.targets[0], ast.Attribute) and not _saves(item.value):
            continue
        if isinstance(item.targets[0], ast.Attribute):
            yield item
        else:
            made.add(variable(item.targets[0]))


def _is_parameter(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and called_name(node) in _HOLDS


def _is_trained(node: ast.AST) -> bool:
    frozen = keyword_value(node, "requires_grad") if isinstance(node, ast.Call) else None
    return _is_parameter(node) and not (isinstance(frozen, ast.Constant) and frozen.value is False)


def _saves(node: ast.expr) -> bool:
    """Whether an operation of it keeps a tensor for backward(), which is freed: `w + 1` and `w.t()` keep none."""
    for item in nodes_of(node):
        if isinstance(item, ast.BinOp) and not isinstance(item.op, (ast.Add, ast.Sub)):
            return True
        if isinstance(item, ast.Call) and called_name(item) not in (*_SAVE_NOTHING, *_NUMBERS):
            return True
    return False


def _is_tensor(node: ast.expr, made: set[str | None]) -> bool:
    """Whether an operation has a parameter as operand: not `Layer(self.weight)` of a class, `len(self.a)`."""
    if isinstance(node, ast.BinOp):
        return _is_tensor(node.left, made) or _is_tensor(node.right, made)
    if isinstance(node, ast.Call):
        name = called_name(node) or ""
        if not isinstance(node.func, ast.Attribute) or name[:1].isupper() or name in _NUMBERS:
            return False
        owner = node.func.value
        return any(_is_tensor(item, made) for item in (owner, *node.args))
    return variable(node) in made
