"""Why a dict has no keys: the line that hands out an empty one, what fills up with empty items, a kept first item.

`return {}` below `if not ids:` makes one of an empty list of samples, `shard + [[]] * missing` fills a short shard up
with such lists, and `if self.dummy is None: self.dummy = sample` keeps the first item for later, empty or not.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TypeGuard

import msgspec

from pytracer._text import capital
from pytracer.analyze.evidence.failing.expressions import short, source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.slicing.bindings import last_binding
from pytracer.analyze.evidence.syntax.bindings import bound_value
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.constants import is_none
from pytracer.analyze.evidence.syntax.loops import deciding_ifs
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import default_of, own_nodes, parameters, scope_of
from pytracer.analyze.naming import LineWords

_SETS = (ast.Assign, ast.AnnAssign, ast.NamedExpr)
_FILLED = frozenset({"setdefault", "defaultdict", "field"})  # what they are given is filled later
_COPIES = frozenset({"list", "tuple", "dict", "copy", "deepcopy"})


class EmptyDict(msgspec.Struct, frozen=True):
    """`made`: the line that hands out an empty dict; `only`: whether nothing else of the program can be one.

    `fills`: whether the program fills up with empty items, there or elsewhere.
    `fill`: the line that fills up with empty items, and its text. `kept`: what keeps the first item, and its line.
    """

    made: str
    only: bool
    fills: bool
    fill: tuple[str, str] | None = None
    kept: tuple[str, str] | None = None

    @property
    def words(self) -> str:
        """What is known, in sentences behind `has no keys at all: `."""
        said = f"{'only ' if self.only else ''}{self.made} {'makes such a dict' if self.only else 'may have made it'}."
        fills = f"{self.fill[0]} fills up with empty items" if self.fill is not None else ""
        keeps = f"{self.kept[1]} keeps the first one as `{self.kept[0]}`, empty or not" if self.kept is not None else ""
        ways = " and ".join(item for item in (fills, keeps) if item)
        return f"{said} {capital(ways)}." if ways else said

    @property
    def brief(self) -> str:
        """For the headline."""
        made = f"which {'only' if self.only else 'may be what'} {self.made} makes"
        return f"{made}; {self.fill[0]} ({self.fill[1]}) fills up with empty items" if self.fill is not None else made

    @property
    def change(self) -> str:
        """What to do."""
        if not self.fills and self.kept is None:
            return "Handle that case before this line, or let it not come here."
        kept = f"set `{self.kept[0]}` from a filled one" if self.kept is not None else ""
        ways = " or ".join(item for item in ("give every rank an item" if self.fills else "", kept) if item)
        return f"{capital(ways)}, and raise an error of your own where there is none."


def empty_dict(at: FailingLine, name: str) -> EmptyDict | None:
    """Of a variable of the failing line that was an empty dict; None where several lines hand one out, or none does."""
    found = [*_handed_out(at)]
    if len(found) != 1:
        return None
    made, only = found[0], not any(_may_be_empty(item) for tree in at.files.values() for item in nodes_of(tree))
    fills = [*_fills(at)]
    fill = fills[0] if len(fills) == 1 and made.line != fills[0].line else None
    return EmptyDict(
        made.words, only, len(fills) == 1, (fill.words, fill.text) if fill is not None else None, _kept(at, name)
    )


class _Line(msgspec.Struct, frozen=True):
    line: tuple[str, int]
    words: str
    text: str = ""


def _handed_out(at: FailingLine) -> Iterator[_Line]:
    """The lines that return, pass or store an empty dict which nothing fills."""
    for file, tree in at.files.items():
        parents = {id(child): item for item in nodes_of(tree) for child in ast.iter_child_nodes(item)}
        for item in nodes_of(tree):
            parent = parents.get(id(item))
            if not _is_empty_dict(item) or parent is None or isinstance(parent, (*_SETS, ast.Compare, ast.Dict)):
                continue
            if isinstance(parent, ast.keyword) and parent.arg != "fillvalue":
                continue
            if isinstance(parent, ast.Call) and (called_name(parent) in _FILLED or parent.func is item):
                continue
            yield _Line((file, item.lineno), _words(at, file, tree, item, parent))


def _words(at: FailingLine, file: str, tree: ast.Module, item: ast.expr, parent: ast.AST) -> str:
    """``line 24 (`return {}`, below `if not ids:`)``."""
    place: LineWords = at.in_file(file, item.lineno)
    text = short(ast.unparse(parent)) if not isinstance(parent, ast.arguments) else short(ast.unparse(item))
    below = next((test for test, around in deciding_ifs(tree, item.lineno) if around), None)
    return f"{place} (`{text}`{f', below `if {short(source(below.test))}:`' if below is not None else ''})"


def _is_empty_dict(item: ast.AST) -> TypeGuard[ast.Dict | ast.Call]:
    if isinstance(item, ast.Dict):
        return not item.keys
    return isinstance(item, ast.Call) and ast.unparse(item.func) == "dict" and not item.args and not item.keywords


def _may_be_empty(item: ast.AST) -> bool:
    """A dict that the program fills, perhaps with nothing."""
    return isinstance(item, ast.DictComp) or (
        isinstance(item, _SETS) and item.value is not None and _is_empty_dict(item.value)
    )


def _fills(at: FailingLine) -> Iterator[_Line]:
    """`shard + [[]] * missing`, `batches += [{}]`, `zip_longest(..., fillvalue={})`."""
    for file, tree in at.files.items():
        for item in nodes_of(tree):
            if _is_fill(tree, item):
                assert isinstance(item, ast.expr)
                yield _Line((file, item.lineno), str(at.in_file(file, item.lineno)), f"`{short(ast.unparse(item))}`")


def _is_fill(tree: ast.Module, item: ast.AST) -> bool:
    if isinstance(item, ast.BinOp) and isinstance(item.op, ast.Mult):
        lists = [part for part in (item.left, item.right) if isinstance(part, (ast.List, ast.Tuple))]
        counts = any(isinstance(part, ast.BinOp) and isinstance(part.op, ast.Sub) for part in nodes_of(item))
        named = isinstance(item.right, (ast.Name, ast.Attribute))
        return len(lists) == 1 and (counts or named) and _has_empty(tree, lists[0])
    if isinstance(item, ast.Call) and called_name(item) == "zip_longest":
        return any(word.arg == "fillvalue" and _is_empty(tree, word.value) for word in item.keywords)
    return False


def _has_empty(tree: ast.Module, items: ast.List | ast.Tuple) -> bool:
    return len(items.elts) == 1 and _is_empty(tree, items.elts[0])


def _is_empty(tree: ast.Module, item: ast.AST) -> bool:
    """An empty display, a copy of one, or a parameter whose default is one."""
    if isinstance(item, ast.Call) and called_name(item) in _COPIES and len(item.args) <= 1:
        return not item.args or _is_empty(tree, item.args[0])
    if isinstance(item, (ast.List, ast.Tuple)):
        return not item.elts
    if isinstance(item, ast.Name):
        scope = scope_of(tree, item.lineno)
        bound = bound_value(scope, item.id, item.lineno)
        made = bound[1] if bound is not None else default_of(scope, item.id) if item.id in parameters(scope) else None
        return made is not None and not isinstance(made, ast.Name) and _is_empty(tree, made)
    return _is_empty_dict(item)


def _kept(at: FailingLine, name: str) -> tuple[str, str] | None:
    """`self.dummy` of the function that gave the variable: set to its first argument, and returned for others."""
    bound, spot = last_binding(at.scope, name, at.line), at.slice.spot(0)
    call = bound[1] if bound is not None else None
    found = at.slice.function(call, spot) if isinstance(call, ast.Call) and spot is not None else None
    if found is None or found[1].file is None:
        return None
    function, file = found[0], found[1].file
    given = {*parameters(function)}
    returned = {
        part for item in own_nodes(function) if isinstance(item, ast.Return) and item.value is not None
        for value in _values(item.value)
        if (part := variable(value)) is not None
    }  # fmt: skip
    for item in own_nodes(function):
        asked = _asked_if_none(item) if isinstance(item, ast.If) else None
        if asked is None or asked not in returned or not isinstance(item, ast.If):
            continue
        for kept in item.body:
            value = kept.value if isinstance(kept, ast.Assign) else None
            sets = isinstance(kept, ast.Assign) and variable(kept.targets[0]) == asked
            if sets and isinstance(value, ast.Name) and value.id in given:
                return asked, str(at.in_file(file, kept.lineno))
    return None


def _values(node: ast.expr) -> Iterator[ast.expr]:
    """What an expression gives, or each of what it gives."""
    if isinstance(node, ast.Tuple):
        for item in node.elts:
            yield from _values(item)
    elif isinstance(node, ast.IfExp):
        yield from (*_values(node.body), *_values(node.orelse))
    else:
        yield node


def _asked_if_none(item: ast.If) -> str | None:
    """`self.dummy` of `if self.dummy is None:` and `if not self.dummy:`."""
    test = item.test
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return variable(test.operand)
    if isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Is) and is_none(test.comparators[0]):
        return variable(test.left)
    return None
