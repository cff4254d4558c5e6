"""Lists that have an order of their own in each process: of a folder, of a set, of results as they come."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

import msgspec

from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import called_name, without_wrappers
from pytracer.analyze.evidence.syntax.loops import ITEM_COMPREHENSIONS, loops_around
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import own_nodes

_FOLDERS = frozenset({"glob", "iglob", "rglob", "listdir", "scandir", "iterdir"})
_SETS = frozenset({"set", "frozenset"})
_AS_THEY_COME = frozenset({"as_completed", "imap_unordered"})
_WRAPPERS = ("list", "tuple", "enumerate", "tqdm", "reversed", "map")
_ORDERS = ("sort", "broadcast_object_list")
_REASONS = {
    "folder": "has the files in the order in which its folder lists them",
    "set": "has a set's order, which is another one in each process",
    "results": "has results in the order in which they are ready",
}


class UnorderedList(msgspec.Struct, frozen=True):
    """`node`: what lists the items, in a file, of a kind."""

    node: ast.expr
    spot: Spot
    kind: str

    @property
    def line(self) -> int:
        """Its line."""
        return self.node.lineno

    @property
    def reason(self) -> str:
        """Behind the list: why it has an order of its own."""
        return _REASONS[self.kind]


def unordered_list(slice_: Slice, files: Mapping[str, ast.Module], node: ast.expr, spot: Spot) -> UnorderedList | None:
    """None of what is sorted, or handed out by one rank, or of an order that is not known."""
    text = ast.unparse(node)
    if any(_orders(item, text) for tree in files.values() for item in nodes_of(tree)):
        return None
    made = slice_.made(node, spot, calls=False)
    if made.node is node or not isinstance(made.node, ast.expr):
        return None
    held = [(item, at) for item, at in made.through if variable(item) is not None]
    if any(_orders(item, variable(part) or "") for part, at in held for item in nodes_of(at.tree)):
        return None
    for listed in (made.node, *_filled(made.node, held)):
        kind = _kind(listed)
        if kind is not None:
            return UnorderedList(listed, made.spot, kind)
    return None


def _filled(made: ast.expr, held: list[tuple[ast.AST, Spot]]) -> Iterator[ast.expr]:
    """What the loop goes through that fills an empty list."""
    if not isinstance(made, ast.List) or made.elts:
        return
    for part, at in held:
        for item in own_nodes(at.scope):
            if isinstance(item, ast.Call) and called_name(item) == "append" and isinstance(item.func, ast.Attribute):
                loops = loops_around(at.tree, item.lineno)
                if ast.unparse(item.func.value) == ast.unparse(part) and loops and isinstance(loops[-1], ast.For):
                    yield loops[-1].iter


def _orders(node: ast.AST, text: str) -> bool:
    """`files.sort()`, `broadcast_object_list(files)`, also with it in a list."""
    if not isinstance(node, ast.Call) or called_name(node) not in _ORDERS:
        return False
    owner = node.func.value if isinstance(node.func, ast.Attribute) else None
    given = [owner] if called_name(node) == "sort" else node.args[:1]
    return any(ast.unparse(part) == text for item in given if item is not None for part in nodes_of(item))


def _kind(node: ast.expr) -> str | None:
    node = without_wrappers(node, _WRAPPERS[:-1])
    if isinstance(node, ast.Call) and called_name(node) == "map" and len(node.args) > 1:
        return _kind(node.args[1])
    if isinstance(node, (*ITEM_COMPREHENSIONS,)) and not isinstance(node, ast.SetComp):
        return _kind(node.generators[0].iter) if len(node.generators) == 1 else None
    if isinstance(node, (ast.Set, ast.SetComp)):
        return "set"
    name = called_name(node) if isinstance(node, ast.Call) else None
    kinds = (("folder", _FOLDERS), ("set", _SETS), ("results", _AS_THEY_COME))
    return next((kind for kind, names in kinds if name in names), None)
