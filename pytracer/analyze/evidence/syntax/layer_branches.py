"""The condition below which a module's forward() runs one of its layers."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.loops import deciding_ifs
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import own_nodes, spans

_SETS_UP_LAYERS = frozenset(
    {"eval", "train", "requires_grad_", "parameters", "named_parameters", "state_dict", "load_state_dict", "to"}
)
_OF_LISTS = ("enumerate", "zip", "reversed", "values", "items")


class LayerBranch(msgspec.Struct, frozen=True):
    """`line`: where `layer` runs, in `file`; `decides`: what leaves it out; `around`: whether the line is below it."""

    layer: str
    file: str
    line: int
    decides: ast.If
    around: bool


def layer_branch(files: Mapping[str, ast.Module], names: Sequence[str]) -> LayerBranch | None:
    """Of the innermost module that has all parameters of these names, or one around it.

    None where the program runs no layer of that name below a condition, or several do.
    """
    for layer in modules_of(names):
        found = [
            (file, tree, line)
            for file, tree in files.items()
            for owner in nodes_of(tree)
            if isinstance(owner, ast.ClassDef)
            for line in _runs(owner, layer)
        ]
        if len(found) == 1:
            file, tree, line = found[0]
            decides = next(iter(deciding_ifs(tree, line)), None)
            if decides is not None:
                return LayerBranch(layer, file, line, *decides)
    return None


def modules_of(names: Sequence[str]) -> list[str]:
    """That have all parameters, the innermost first: `head`, `decoder` of `decoder.head.{0.weight, 1.bias}`."""
    shared = list[str]()
    for parts in zip(*(name.split(".")[:-1] for name in names), strict=False):
        if len(set(parts)) != 1:
            break
        shared.append(parts[0])
    return [part for part in shared[::-1] if not part.isdecimal()]


def _runs(owner: ast.ClassDef, layer: str) -> Iterator[int]:
    """Lines at which methods call it, or an item of it that a loop goes through."""
    for method, read in reads_of(owner, layer):
        yield from _items_run(method, read)


def reads_of(owner: ast.ClassDef, layer: str) -> Iterator[tuple[ast.FunctionDef, ast.Attribute]]:
    """Where methods name it to run it, other than the one that makes it; not `self.body.eval()` and the like."""
    for method in owner.body:
        if isinstance(method, ast.FunctionDef) and method.name != "__init__":
            nodes = own_nodes(method)
            set_up = {
                id(item.value) for item in nodes if isinstance(item, ast.Attribute) and item.attr in _SETS_UP_LAYERS
            }
            for item in nodes:
                if isinstance(item, ast.Attribute) and variable(item) == f"self.{layer}" and id(item) not in set_up:
                    yield method, item


def _items_run(method: ast.FunctionDef, read: ast.Attribute) -> Iterator[int]:
    """The line that reads a layer; of a list in the head of a loop those that call what the loop goes through."""
    loops = (item for item in own_nodes(method) if isinstance(item, ast.For) and _reads(item.iter, read))
    loop = next(loops, None)
    if loop is None:
        yield read.lineno
        return
    names = {item.id for item in nodes_of(loop.target) if isinstance(item, ast.Name)}
    for item in nodes_of(loop):
        if isinstance(item, ast.Call) and variable(item.func) in names and not spans(loop.iter, item.lineno):
            yield item.lineno


def _reads(head: ast.expr, read: ast.Attribute) -> bool:
    """`self.experts`, `enumerate(self.experts)`."""
    if head is read:
        return True
    calls = isinstance(head, ast.Call) and called_name(head) in _OF_LISTS
    return calls and any(item is read for item in nodes_of(head))
