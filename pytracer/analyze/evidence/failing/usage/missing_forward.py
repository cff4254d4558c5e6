"""A module without forward(): defined inside of another method, outside of the class, or by another name."""

from __future__ import annotations

import ast
import difflib

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import class_named, parameters

_MISSING = Pattern(r'Module \[(\w+)\] is missing the required "forward" function')
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def missing_forward(at: FailingLine) -> str | None:
    """Where it is instead."""
    found = _MISSING.search(at.message)
    if found is None:
        return None
    owners = [(file, owner) for file, tree in at.files.items() if (owner := class_named(tree, found[1])) is not None]
    if len(owners) != 1:
        return None
    file, owner = owners[0]
    methods = [item for item in owner.body if isinstance(item, _FUNCTIONS)]
    for method in methods:
        for item in nodes_of(method):
            if isinstance(item, _FUNCTIONS) and item is not method and item.name == "forward":
                return (
                    f"forward() of {owner.name} ({at.in_file(file, item.lineno)}) stands inside of {method.name}(), as "
                    "it is indented too far: move it to the left, to the other methods of the class."
                )
    for item in at.files[file].body:
        if isinstance(item, _FUNCTIONS) and item.name == "forward" and parameters(item)[:1] == ["self"]:
            return (
                f"forward() ({at.in_file(file, item.lineno)}) stands outside of {owner.name}: indent it, so that it is "
                "a method of the class."
            )
    like = difflib.get_close_matches("forward", [item.name for item in methods], n=1, cutoff=0.7)
    if like:
        line = next(item.lineno for item in methods if item.name == like[0])
        return f"{owner.name} has {like[0]}() ({at.in_file(file, line)}) in place of forward(): correct its name."
    where = at.in_file(file, owner.lineno)
    return f"{owner.name} ({where}) has no forward(): define it, or call the method that is meant at line {at.line}."
