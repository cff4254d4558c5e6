"""DTensors in an operator whose result's size depends on their values: no rank knows it from shapes alone."""

from __future__ import annotations

import ast

from pytracer._patterns import Pattern
from pytracer._text import list_words
from pytracer.analyze.evidence.failing.expressions import parts, short, walk_in_order
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.recorded import is_sharded
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of

# torch's fake tensors raise DynamicOutputShapeException, whose text is the operator; 2.13, tensor/_dispatch.py.
_PLAIN = Pattern(r"^aten\.(?P<op>\w+)\.\w+\n\nSharding propagation failed for aten\.(?P<called>\w+)")
_CALLS = {
    "nonzero": ("nonzero", "argwhere", "where"),
    "masked_select": ("masked_select",),
    "_unique2": ("unique",),
    "unique_dim": ("unique",),
    "unique_consecutive": ("unique_consecutive",),
    "bincount": ("bincount",),
    "repeat_interleave": ("repeat_interleave",),
}
_WHOLE = frozenset({"full_tensor", "to_local", "item", "tolist", "numpy"})
_LIBRARY = "/torch/"
_MOST = 2
_WITH = {"where": "where() of a condition alone", "repeat_interleave": "repeat_interleave() by counts in a tensor"}


def sized_by_values(at: FailingLine) -> str | None:
    """`torch.nonzero(x)`, `x[x > 0]`: which operands are DTensors, and what to take in place of them."""
    found = _PLAIN.match(at.message)
    if found is None or found["op"] not in _CALLS or at.node is None:
        return None
    if not all(_LIBRARY in (item.file or "") for item in at.stack[: at.stack.index(at.frame)]):
        return None
    names, index = _CALLS[found["op"]], found["called"] == "index"
    inside = [item for part in parts(at.node) for item in walk_in_order(part)]
    calls = [
        (item, held) for item in inside if _is_operation(item, names, index=index) and (held := _sharded(at, item))
    ]
    if len(calls) != 1 or len(calls[0][1]) > _MOST:
        return None
    ((call, operands),) = calls
    given = [f"`{name}`{at.came(name)}" for name in operands]
    are = "are DTensors" if len(operands) > 1 else f"is a DTensor ({at.values[operands[0]].partition(' ')[2]})"
    name = called_name(call) if isinstance(call, ast.Call) else None
    what = f"has no {_WITH.get(name, f'{name}()')}" if name is not None else "has no indexing by a mask"
    whole = list_words([f"`{name}.full_tensor()`" for name in operands])
    return (
        f"{list_words(given)} {are}, and DTensor {what}: the size of its result depends on values. Take {whole} at "
        f"line {at.line}, on all ranks (a collective){_count(at, call)}{_local(at, operands)}."
    )


def _is_operation(item: ast.AST, names: tuple[str, ...], *, index: bool) -> bool:
    if index:
        return isinstance(item, ast.Subscript)
    if not isinstance(item, ast.Call) or called_name(item) not in names:
        return False
    return called_name(item) != "where" or (len(item.args) == 1 and not item.keywords)


def _sharded(at: FailingLine, call: ast.AST) -> list[str]:
    """The DTensors that it reads, but not those that are made whole in it. A mask must be one."""
    if isinstance(call, ast.Subscript) and not [name for name in _read(call.slice) if is_sharded(at.values.get(name))]:
        return []
    return [name for name in _read(call) if is_sharded(at.values.get(name))]


def _read(node: ast.AST) -> list[str]:
    found: dict[str, None] = {}
    waiting = [node]
    while waiting:
        item = waiting.pop(0)
        if isinstance(item, ast.Call) and called_name(item) in _WHOLE:
            continue
        if isinstance(item, (ast.Name, ast.Attribute, ast.Subscript)):
            found[ast.unparse(item)] = None
        waiting += ast.iter_child_nodes(item)
    return [*found]


def _local(at: FailingLine, names: list[str]) -> str:
    """What a rank has may do, if it is no part of a sum."""
    values = [at.values[name] for name in names]
    if len(names) > 1 or "Partial" in values[0] or "Shard" not in values[0]:
        return ""
    return f"; or `{names[0]}.to_local()` if each rank's own part will do"


def _count(at: FailingLine, call: ast.AST) -> str:
    """`len(torch.nonzero(x == 0))` only counts, and a sum is one of DTensor's operators."""
    counts = [
        item
        for item in nodes_of(at.statement or call)
        if isinstance(item, ast.Call)
        and called_name(item) == "len"
        and [ast.dump(part) for part in item.args] == [ast.dump(call)]
    ]
    mask = _mask(call) if counts else None
    return f", or to count only `{mask}.sum().full_tensor()`" if mask is not None else ""


def _mask(call: ast.AST) -> str | None:
    """`(x == 0)`."""
    if isinstance(call, ast.Subscript):
        return f"({short(ast.unparse(call.slice))})" if isinstance(call.slice, (ast.Compare, ast.Name)) else None
    if not isinstance(call, ast.Call) or called_name(call) != "nonzero" or call.keywords:
        return None
    of_torch = isinstance(call.func, ast.Attribute) and ast.unparse(call.func.value) == "torch"
    inner = call.args[0] if of_torch and len(call.args) == 1 else None
    return f"({short(ast.unparse(inner))})" if isinstance(inner, ast.Compare) else None
