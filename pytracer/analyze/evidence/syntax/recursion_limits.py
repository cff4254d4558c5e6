"""The line of a program that sets Python's limit of recursion."""

from __future__ import annotations

import ast
from collections.abc import Mapping

import msgspec

from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.constants import constant_number
from pytracer.analyze.evidence.syntax.nodes import nodes_of


class RecursionLimit(msgspec.Struct, frozen=True):
    """`sys.setrecursionlimit(10**6)`: where, its text, and the number. `always`: whether its file always runs it."""

    file: str
    line: int
    text: str
    limit: int
    always: bool


def recursion_limit(files: Mapping[str, ast.Module]) -> RecursionLimit | None:
    """The only call that sets it; None of several, and where its number is not written there."""
    found = [
        (file, node)
        for file, tree in files.items()
        for node in nodes_of(tree)
        if isinstance(node, ast.Call) and called_name(node) == "setrecursionlimit"
    ]
    if len(found) != 1 or len(found[0][1].args) != 1:
        return None
    file, call = found[0]
    number = constant_number(call.args[0], files[file])
    if number is None:
        return None
    always = any(isinstance(item, ast.Expr) and item.value is call for item in files[file].body)
    return RecursionLimit(file, call.lineno, ast.unparse(call), number, always)
