"""Calls that make a new array beside what it is made of: `np.concatenate(parts)`, `rows.astype(t)`."""

from __future__ import annotations

import ast
from collections.abc import Iterable

import msgspec

from pytracer._text import list_words
from pytracer.analyze.evidence.syntax.calls import called_name, keyword_value

_LINES, _NAMES = 4, 3
_MODULES = frozenset({"np", "numpy", "torch", "jnp", "cp", "cupy"})
_JOINS = frozenset(
    {"concatenate", "concat", "cat", "stack", "vstack", "hstack", "dstack", "column_stack", "row_stack", "tile"}
)


class ArrayMakers(msgspec.Struct, frozen=True):
    """`calls`: as they are written; `lines`: theirs, in order."""

    calls: tuple[str, ...]
    lines: tuple[int, ...]

    @property
    def words(self) -> str:
        """`new arrays at lines 69, 70 and 72 (np.concatenate, astype)`."""
        names = ", ".join(f"`{item}`" for item in self.calls[:_NAMES])
        if len(self.lines) == 1:
            return f"a new array at line {self.lines[0]} ({names})"
        return f"new arrays at lines {list_words([str(item) for item in self.lines], _LINES)} ({names})"


def array_makers(nodes: Iterable[ast.AST]) -> ArrayMakers | None:
    """Of some nodes of a program; None where none of them makes one for sure."""
    found = sorted((item.lineno, name) for item in nodes if (name := _made(item)) is not None)  # type: ignore[attr-defined]
    calls = dict.fromkeys(name for _, name in found)
    return ArrayMakers((*calls,), (*dict.fromkeys(line for line, _ in found),)) if found else None


def _made(node: ast.AST) -> str | None:
    """What it is called by; None where it may hand on the memory that it was given."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return None
    name, owner = called_name(node), node.func.value
    if name == "astype":
        return name if keyword_value(node, "copy") is None else None
    if name == "clone":  # a configuration has such a method, too
        of_tensor = isinstance(owner, ast.Call) and called_name(owner) == "detach"
        return name if of_tensor or keyword_value(node, "memory_format") is not None else None
    if keyword_value(node, "out") is not None:
        return None
    return ast.unparse(node.func) if name in _JOINS and isinstance(owner, ast.Name) and owner.id in _MODULES else None
