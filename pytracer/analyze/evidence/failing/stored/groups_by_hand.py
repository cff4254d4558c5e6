"""A group of an optimizer that the program puts there itself, without the options that add_param_group() fills in."""

from __future__ import annotations

import ast

from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.syntax.nodes import nodes_of

_GROUPS = "param_groups"
_ADDS = ("append", "extend", "insert")


def group_by_hand(at: FailingLine, key: str) -> str | None:
    """`optimizer.param_groups.append({"params": ..., "lr": ...})`, of a step() that reads another option."""
    call = at.only(ast.Call)
    owner = call.func.value if call is not None and isinstance(call.func, ast.Attribute) else None
    if "/torch/optim/" not in (at.stack[0].file or "") or owner is None:
        return None
    found = [
        (file, item)
        for file, tree in at.files.items()
        for item in nodes_of(tree)
        if isinstance(item, ast.stmt) and _puts(item) and key.strip("'\"") not in _texts(item)
    ]
    if len(found) != 1:
        return None
    file, item = found[0]
    name = source(owner)
    return (
        f"A group of `{name}` has no {key}: {at.in_file(file, item.lineno)} (`{source(item)}`) puts one there by hand, "
        f"without the options that step() reads. Write `{name}.add_param_group({{...}})` there, which fills in the "
        "others, or give the groups to the optimizer when it is made."
    )


def _puts(item: ast.stmt) -> bool:
    """Whether it makes a group of a dict that is written out."""
    if isinstance(item, (ast.Assign, ast.AugAssign)):
        target = item.targets[0] if isinstance(item, ast.Assign) else item.target
        whole = target.value if isinstance(target, ast.Subscript) else target
        return _is_groups(whole) and any(isinstance(part, ast.Dict) for part in nodes_of(item.value))
    call = item.value if isinstance(item, ast.Expr) else None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or call.func.attr not in _ADDS:
        return False
    return _is_groups(call.func.value) and any(isinstance(part, ast.Dict) for part in nodes_of(call))


def _is_groups(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == _GROUPS


def _texts(item: ast.stmt) -> set[str]:
    return {part.value for part in nodes_of(item) if isinstance(part, ast.Constant) and isinstance(part.value, str)}
