"""A name that an .npz archive does not have: those that the line of the program that saves it gives."""

from __future__ import annotations

import ast

from pytracer._patterns import Pattern
from pytracer._text import capital, list_words
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.slicing.written_files import reads_file, saves_of
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import withs_around

_MISSING = Pattern(r"^['\"](.+) is not a file in the archive['\"]$")
_SAVES = ("savez", "savez_compressed")
_MOST = 4


def archive_name(at: FailingLine) -> str | None:
    """Which of both to change."""
    found, subject = _saved(at), archive_name_subject(at)
    if found is None or subject is None:
        return None
    call, spot = found
    there = at.place(spot, call.lineno)
    if not call.args[1:]:
        return f"{capital(subject)}. Correct the name at line {at.line}, or save it at {there} and make the file anew."
    named = [f"{item.id}={item.id}" for item in call.args[1:] if isinstance(item, ast.Name)]
    if len(named) != len(call.args) - 1:
        named = ["name=value, ..."]
    return (
        f"{capital(subject)}. Give them names at {there}, `{source(call.func)}({source(call.args[0])}, "
        f"{', '.join(named)})`, and make the file anew; or read those."
    )


def archive_name_subject(at: FailingLine) -> str | None:
    """For the headline."""
    found = _saved(at)
    if found is None:
        return None
    call, spot = found
    there = at.place(spot, call.lineno)
    names = [*(f"'arr_{n}'" for n in range(len(call.args) - 1)), *(f"'{item.arg}'" for item in call.keywords)]
    unnamed = " without names, so that they are called" if call.args[1:] else " its arrays as"
    return f"{there} saves{' its arrays' if call.args[1:] else ''}{unnamed} {list_words(names, _MOST)}"


def _saved(at: FailingLine) -> tuple[ast.Call, Spot] | None:
    """The only call that saves such a file, where it shows all names, and that one is none of them."""
    missing, spot = _MISSING.search(at.message), at.slice.spot(0)
    if missing is None or spot is None or at.node is None:
        return None
    read = next((found for item in nodes_of(at.node) if (found := _archive(at, item, spot)) is not None), None)
    saves = saves_of(at.files, at.slice, *read) if read is not None else []
    if len(saves) != 1 or called_name(saves[0][0]) not in _SAVES:
        return None
    call, place = saves[0]
    shown = not any(isinstance(item, ast.Starred) for item in call.args) and all(item.arg for item in call.keywords)
    names = {*(f"arr_{n}" for n in range(len(call.args) - 1)), *(item.arg for item in call.keywords)}
    return (call, place) if shown and missing[1] not in names else None


def _archive(at: FailingLine, node: ast.AST, spot: Spot) -> tuple[ast.Call, Spot] | None:
    """The np.load() whose result is asked, also that of a `with`."""
    if not isinstance(node, ast.Subscript):
        return None
    name = variable(node.value)
    for block in withs_around(spot.tree, spot.line):
        for item in block.items:
            held = item.optional_vars is not None and variable(item.optional_vars) == name
            if held and name is not None and isinstance(item.context_expr, ast.Call) and reads_file(item.context_expr):
                return item.context_expr, spot
    made = at.slice.made(node.value, spot, calls=True)
    return (made.node, made.spot) if isinstance(made.node, ast.Call) and reads_file(made.node) else None
