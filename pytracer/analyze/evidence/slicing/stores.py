"""The one line that put a value into the container or attribute that a failing line took it from.

And a change of that value before, which only some of the values go through: `if kind != "h": rows -= first`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence

import msgspec
from msgspec import structs

from pytracer._text import shortened
from pytracer.analyze.behind import Place
from pytracer.analyze.evidence.slicing.code_lines import code_line
from pytracer.analyze.evidence.slicing.elements import Element, Part, element_of, inner_variable
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.slicing.kept_values import kept_in
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import class_around, own_nodes, qualified_name, scope_of, spans_body
from pytracer.analyze.naming import line_in
from pytracer.decode.types.snapshot import Snapshot
from pytracer.report.job import PythonFrame

_QUOTED = 60
_MOST = 4


class Change(msgspec.Struct, frozen=True):
    """`line` changes the value where `test` is true, which is at `test_line`."""

    line: int
    test: str
    test_line: int
    text: str


class Store(msgspec.Struct, frozen=True):
    """`line` fills or sets `container`, as the reading line writes it. `here`: the file of the failing line."""

    container: str
    line: int
    spot: Spot
    here: str | None
    fills: bool
    text: str
    change: Change | None

    @property
    def words(self) -> str:
        """`` `data.edges` is filled at line 29 in Graph.__init__ (`self.edges[kind] = edges`); ... ``"""
        name = qualified_name(self.spot.tree, self.spot.scope, "")
        place = f"{line_in(self.spot.file, self.line, self.here)}{f' in {name}' if name else ''}"
        words = f"`{self.container}` is {'filled' if self.fills else 'set'} at {place} (`{self.text}`)"
        return " ".join(filter(None, (f"{words}.", self.change_words)))

    @property
    def change_words(self) -> str:
        """`` Line 28 (`edges[1] -= FIRST[dst]`) changes what line 29 puts there, but only where `kind != "h"`. ``"""
        if self.change is None:
            return ""
        place = line_in(self.spot.file, self.change.line, self.here)
        subject = f"L{place[1:]}" if self.spot.file == self.here else place
        return (
            f"{subject} (`{self.change.text}`) changes what line {self.line} puts there, but only where "
            f"`{self.change.test}`."
        )

    @property
    def places(self) -> tuple[Place, ...]:
        """Its lines, for the code that is shown."""
        change = self.change
        lines = [self.line] if change is None else [self.line, change.test_line, change.line]
        return tuple((self.spot.file, line) for line in lines)


def store_of(snapshot: Snapshot, frames: Sequence[PythonFrame], name: str) -> Store | None:
    """Of a variable of the innermost line; None where it comes out of no container, or several lines put values there.

    Args:
        snapshot: The process.
        frames: The program's, innermost first.
        name: `x`, `self.x` or another expression of the line.
    """
    back, files = Slice(snapshot, frames), program_files(snapshot, frames)
    spot = back.spot(0)
    node, here = ast.parse(name, mode="eval").body, spot.file if spot is not None else None
    for _ in range(_MOST):
        found = element_of(back, node, spot) if spot is not None else None
        stores = [*_stores(back, files, found)] if found is not None else []
        if found is None or spot is None or len(stores) != 1:
            return None
        file, tree, statement, value, parts, fills = stores[0]
        there = Spot(file, tree, scope_of(tree, statement.lineno), statement.lineno)
        there = structs.replace(there, depth=spot.depth if there.scope is spot.scope and file == spot.file else None)
        change = _change(snapshot, there, value, parts)
        if not fills and change is None and ast.unparse(found.container) == name:
            return None  # an attribute of the failing line itself, which is followed elsewhere
        if fills or change is not None or variable(value) is None:
            text = shortened(code_line(snapshot, there, statement).text or "", _QUOTED)
            return Store(ast.unparse(found.container), statement.lineno, there, here, fills, text, change)
        node, spot = value, there  # `self.ids = ids`: another name for it
    return None


_Found = tuple[str, ast.Module, ast.stmt, ast.expr, tuple[Part, ...], bool]


def _stores(back: Slice, files: Mapping[str, ast.Module], of: Element) -> Iterator[_Found]:
    """Statements that fill it, or set it, but for those of another part."""
    if isinstance(of.container, ast.Name):
        places: list[tuple[str, ast.Module, ast.AST]] = [(of.spot.file or "", of.spot.tree, of.spot.scope)]
        called = of.container.id
    else:
        owner = _owner(back, of.container, of.spot)
        places = [(file, tree, tree) for file, tree in files.items()]
        places = [item for item in places if owner is None or item[1] is owner[1].tree]
        called = f".{of.container.attr}"
        if owner is not None:
            places = [(file, tree, owner[0]) for file, tree, _ in places]
    for file, tree, node in places:
        for statement, value in kept_in(node, called):
            target = statement.targets[0] if isinstance(statement, ast.Assign) else None
            if isinstance(target, ast.Subscript):
                key = target.slice.value if isinstance(target.slice, ast.Constant) else None
                if not of.parts or _differs(of.parts[0], key):
                    continue
                yield file, tree, statement, value, of.parts[1:], True
            elif isinstance(statement, ast.Expr):
                yield file, tree, statement, value, of.parts[1:], True
            else:
                yield file, tree, statement, value, of.parts, False


def _owner(back: Slice, node: ast.Attribute, spot: Spot) -> tuple[ast.ClassDef, Spot] | None:
    """The class whose attribute it is, where that is known and it sets it itself."""
    if variable(node) is not None:
        owner = class_around(spot.tree, spot.scope)
        found: tuple[ast.AST, Spot] | None = (owner, spot) if owner is not None else None
    else:
        found = back.class_of(node.value, spot)
    if found is None or not isinstance(found[0], ast.ClassDef):
        return None
    return (found[0], found[1]) if any(kept_in(found[0], f".{node.attr}")) else None


def _differs(part: Part, key: object) -> bool:
    return isinstance(part, (int, str)) and key is not None and part != key


def _change(snapshot: Snapshot, spot: Spot, value: ast.expr, parts: tuple[Part, ...]) -> Change | None:
    """The only one before a store in its function, below an `if` without an `else` that is not around the store."""
    inner = inner_variable(value, spot, parts)
    if inner is None:
        return None
    found = []
    for test in own_nodes(spot.scope):
        if not isinstance(test, ast.If) or test.orelse or test.lineno > spot.line or spans_body([test], spot.line):
            continue
        for item in test.body:
            if _changes(item, *inner):
                text = shortened(code_line(snapshot, spot, item).text or "", _QUOTED)
                found.append(Change(item.lineno, shortened(ast.unparse(test.test), _QUOTED), test.lineno, text))
    return found[0] if len(found) == 1 else None


def _changes(statement: ast.stmt, name: str, parts: tuple[Part, ...]) -> bool:
    """`rows -= 1`, `rows[1] -= 1`, `rows = rows - 1`; of another row than the one that is read, no."""
    if isinstance(statement, ast.AugAssign):
        target: ast.expr = statement.target
    elif isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        target = statement.targets[0]
        reads = any(variable(item) == name for item in nodes_of(statement.value))
        if variable(target) == name and not reads:
            return False  # another value
    else:
        return False
    if isinstance(target, ast.Subscript):
        key = target.slice.value if isinstance(target.slice, ast.Constant) else None
        return variable(target.value) == name and not (parts and _differs(parts[0], key))
    return variable(target) == name
