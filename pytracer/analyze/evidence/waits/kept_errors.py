"""Where an `except` keeps the error that it catches, and which function looks for it there."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import msgspec

from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import qualified_name, scope_of

_KEEPS = ("append", "add", "put", "put_nowait", "set_exception")


class KeptError(msgspec.Struct, frozen=True):
    """`name`: `self.errors`. `reader`: the only function that reads it, and its first line there; None: not one."""

    name: str
    reader: tuple[str, int] | None
    unread: bool

    @property
    def words(self) -> str:
        """After "it keeps the error in": `self.errors`, and who looks there."""
        if self.reader is not None:
            return f"`{self.name}`, which only {self.reader[0]} (line {self.reader[1]}) looks at"
        return f"`{self.name}`, which nothing in this file looks at" if self.unread else f"`{self.name}`"


def kept_error(tree: ast.Module, line: int) -> KeptError | None:
    """Of the `except ... as e` of a line; None where it keeps the error in no variable or attribute."""
    handlers = [item for item in nodes_of(tree) if isinstance(item, ast.ExceptHandler) and item.lineno == line]
    if len(handlers) != 1 or handlers[0].name is None:
        return None
    names = list(_kept(handlers[0], handlers[0].name))
    if len(names) != 1:
        return None
    inside = {id(item) for item in nodes_of(handlers[0])}
    short = names[0].rpartition(".")[2]
    nodes = (item for item in nodes_of(tree) if isinstance(item, (ast.Attribute, ast.Name)) and id(item) not in inside)
    reads = [item for item in nodes if _reads(item, short)]
    scopes = {scope_of(tree, item.lineno) for item in reads}
    scope = scopes.pop() if len(scopes) == 1 else None
    reader = None
    if scope is not None and not isinstance(scope, ast.Module):
        reader = qualified_name(tree, scope), min(item.lineno for item in reads)
    return KeptError(names[0], reader, not reads)


def _kept(handler: ast.ExceptHandler, error: str) -> Iterator[str]:
    for item in nodes_of(handler):
        if isinstance(item, ast.Assign) and isinstance(item.value, ast.Name) and item.value.id == error:
            yield from (name for target in item.targets if (name := variable(target)) is not None)
        is_kept = isinstance(item, ast.Call) and called_name(item) in _KEEPS and isinstance(item.func, ast.Attribute)
        if isinstance(item, ast.Call) and isinstance(item.func, ast.Attribute) and is_kept:
            name = variable(item.func.value)
            if name is not None and any(isinstance(arg, ast.Name) and arg.id == error for arg in item.args):
                yield name


def _reads(item: ast.Attribute | ast.Name, name: str) -> bool:
    own = item.attr if isinstance(item, ast.Attribute) else item.id
    return own == name and isinstance(item.ctx, ast.Load)
