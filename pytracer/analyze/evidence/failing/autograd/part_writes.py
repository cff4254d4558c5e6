"""Lines that write into a part of a tensor which backward() still needs, as torch's message shows by CopySlices.

`out[:, 0] = y`, `x[i] += 1` and `x[:2].mul_(2)` change the whole tensor's version, and that of each other name of it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

import msgspec

from pytracer._patterns import Pattern
from pytracer._text import capital, count_words
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.slicing.bindings import last_binding
from pytracer.analyze.evidence.syntax.cut_values import is_without_graph
from pytracer.analyze.evidence.syntax.loops import loops_around
from pytracer.analyze.evidence.syntax.names import bare_names, variable
from pytracer.analyze.evidence.syntax.scopes import Scope, qualified_name, scope_of

_PARTS = Pattern(
    r"which is output \d+ of (?:torch::autograd::)?CopySlices, is at version (\d+); expected version (\d+)"
)
_VIEWS = frozenset({"view", "narrow", "select", "unbind", "chunk", "split", "transpose", "t", "permute", "squeeze"})

Statement = tuple[str, ast.Module, ast.stmt | ast.expr]


class PartWrites(msgspec.Struct, frozen=True):
    """The statements of one function that write into parts of the tensor `name`. `alias`: the line `out = x`, and `x`.

    `repeated`: whether the tensor is read between the writes, as far as the source shows.
    """

    file: str
    tree: ast.Module
    scope: Scope
    name: str
    items: tuple[ast.stmt | ast.expr, ...]
    alias: tuple[int, str] | None
    repeated: bool

    def words(self, at: FailingLine) -> str:
        """`` line 63 (`out[0] = q`) and 3 more lines in forward() write into parts of `out` ``."""
        lines = sorted({item.lineno for item in self.items})
        first = f"{at.in_file(self.file, lines[0])} (`{source(self.items[0])}`)"
        more = f" and {count_words(len(lines) - 1, 'more line')}" if len(lines) > 1 else ""
        verb = "write into parts" if len(lines) > 1 else "writes into a part"
        return f"{first}{more} in {qualified_name(self.tree, self.scope)} {verb} of `{self.name}`{self._same(at)}"

    def _same(self, at: FailingLine) -> str:
        if self.alias is None:
            return ""
        line, other = self.alias
        return f", which is `{other}` itself ({at.in_file(self.file, line)}: `{self.name} = {other}`)"

    def advice(self, at: FailingLine) -> str:
        """A copy before the first write; of a tensor that is read between them, a list in its place."""
        if self.repeated:
            return f"Collect the parts in a list, and torch.stack() or torch.cat() it, in place of `{self.name}`."
        if self.alias is not None:
            line, other = self.alias
            copy = f"Write `{self.name} = {other}.clone()` at {at.in_file(self.file, line)}"
        else:
            first = at.in_file(self.file, min(item.lineno for item in self.items))
            copy = f"Put `{self.name} = {self.name}.clone()` before {first}"
        return f"{copy}, or make a new tensor of the parts (torch.cat, torch.stack, torch.where)."


def part_writes(at: FailingLine, statements: Iterable[Statement]) -> PartWrites | None:
    """The only ones of the program; of several functions' those that are as many as torch counted."""
    found = _PARTS.search(at.message)
    if found is None:
        return None
    groups: dict[tuple[str, int, str], list[Statement]] = {}
    for file, tree, item in statements:
        name, scope = _written(item), scope_of(tree, item.lineno)
        if name is not None and not is_without_graph(scope, item.lineno):
            groups.setdefault((file, getattr(scope, "lineno", 0), name), []).append((file, tree, item))
    count = int(found[1]) - int(found[2])
    fitting = [held for held in groups.values() if len(held) == count and not any(map(_in_loop, held))]
    chosen = list(groups.values()) if len(groups) == 1 else fitting
    return _of_group(chosen[0]) if len(chosen) == 1 else None


def part_words(at: FailingLine, found: PartWrites) -> str:
    """What is wrong, and what to write."""
    other = found.alias[1] if found.alias is not None else found.name
    return (
        f"{capital(found.words(at))}: torch names a write to a part of a tensor (CopySlices), and backward() still "
        f"needs `{other}` as it was before. {found.advice(at)}"
    )


def _of_group(held: list[Statement]) -> PartWrites:
    file, tree, _ = held[0]
    items = tuple(sorted((item for _, _, item in held), key=lambda item: item.lineno))
    scope, name = scope_of(tree, items[0].lineno), _written(items[0]) or ""
    bound = last_binding(scope, name, items[0].lineno)
    other = variable(bound[1]) if bound is not None and bound[1] is not None and bound[2] is None else None
    alias = (bound[0], other) if bound is not None and other is not None else None
    reads = any(name in bare_names(value) for item in items if (value := _value(item)) is not None)
    return PartWrites(file, tree, scope, name, items, alias, reads and any(map(_in_loop, held)))


def _value(item: ast.stmt | ast.expr) -> ast.expr | None:
    return item.value if isinstance(item, (ast.Assign, ast.AugAssign)) else None


def _in_loop(held: Statement) -> bool:
    return bool(loops_around(held[1], held[2].lineno))


def _written(item: ast.stmt | ast.expr) -> str | None:
    """The tensor of `out[:, 0] = y`, `x[i] += 1`, `x[:2].mul_(2)`, `x.select(0, 1).zero_()`."""
    if isinstance(item, ast.Assign):
        node: ast.expr | None = next((part for part in item.targets if isinstance(part, ast.Subscript)), None)
    elif isinstance(item, ast.AugAssign):
        node = item.target
    else:
        node = item.func.value if isinstance(item, ast.Call) and isinstance(item.func, ast.Attribute) else None
    views = 0
    while node is not None and (inner := _viewed(node)) is not None:
        node, views = inner, views + 1
    return variable(node) if node is not None and views else None


def _viewed(node: ast.expr) -> ast.expr | None:
    if isinstance(node, ast.Subscript):
        return node.value
    called = node.func if isinstance(node, ast.Call) else None
    return called.value if isinstance(called, ast.Attribute) and called.attr in _VIEWS else None
