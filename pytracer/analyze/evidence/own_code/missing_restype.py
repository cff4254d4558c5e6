"""Functions of C whose `restype` no line of the program sets: ctypes takes what they return for a C int of 32 bits."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Mapping

import msgspec

from pytracer.analyze.evidence.lifetime.variables import program_frames
from pytracer.analyze.evidence.lifetime.where_made import place_of
from pytracer.analyze.evidence.own_code.own_libraries import own_libraries
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.scopes import own_nodes, scope_of
from pytracer.analyze.naming import LineWords
from pytracer.analyze.view import ProcessView

_RESULT, _ARGUMENTS = "restype", "argtypes"


class MissingRestype(msgspec.Struct, frozen=True):
    """`function`: as line `at` calls it, `self.lib.decode`."""

    function: str
    at: LineWords


def missing_restype(view: ProcessView, file: str | None, line: int | None) -> MissingRestype | None:
    """Of the only such call above a line, in its function, whose result a variable is given.

    Args:
        view: The process, whose program is read.
        file: Of the line that used the result as an address.
        line: Its number.
    """
    files = program_files(view.process.snapshot, program_frames(view))
    if file not in files or line is None:
        return None
    libraries = own_libraries(view)
    native = {item.function for item in (libraries.calls if libraries is not None else ())}
    native |= set(_set_of(files, _ARGUMENTS))
    found = [
        item.value
        for item in own_nodes(scope_of(files[file], line))
        if isinstance(item, ast.Assign) and isinstance(item.value, ast.Call) and item.lineno <= line
        if isinstance(item.value.func, ast.Attribute) and item.value.func.attr in native
    ]
    found = [item for item in found if not is_set(files.values(), _RESULT, _name(item))]
    if len(found) != 1:
        return None
    return MissingRestype(ast.unparse(found[0].func), place_of(view, file, found[0].lineno))


def has_restype(view: ProcessView, function: str) -> bool:
    """Whether a line of the program may set the `restype` of a function."""
    return is_set(program_files(view.process.snapshot, program_frames(view)).values(), _RESULT, function)


def has_argtypes(view: ProcessView, function: str) -> bool:
    """Whether a line of the program may set the `argtypes` of a function."""
    return is_set(program_files(view.process.snapshot, program_frames(view)).values(), _ARGUMENTS, function)


def is_set(trees: Collection[ast.Module], what: str, function: str) -> bool:
    """Whether `lib.function.restype` is set, or that of something whose name the source does not show."""
    set_of = [
        node.value
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr == what and isinstance(node.ctx, ast.Store)
    ]
    by_name = any(
        isinstance(node, ast.Call)
        and called_name(node) == "setattr"
        and any(_is_text(item, what) for item in node.args)
        for tree in trees
        for node in ast.walk(tree)
    )
    # Of `f.restype` and `getattr(lib, name).restype` the function is not known.
    return by_name or any(not isinstance(item, ast.Attribute) or item.attr == function for item in set_of)


def _is_text(node: ast.expr, text: str) -> bool:
    return isinstance(node, ast.Constant) and node.value == text


def _set_of(files: Mapping[str, ast.Module], what: str) -> Iterable[str]:
    """Functions whose `argtypes` a line sets: they are of C."""
    for tree in files.values():
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and node.attr == what and isinstance(node.value, ast.Attribute):
                yield node.value.attr


def _name(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else ""
