"""The only line of a program that makes a sparse tensor of unchecked indices: a suspect of overwritten memory."""

from __future__ import annotations

import ast

from pytracer.analyze.evidence.indices.sparse_source import CHECKS, CONSTRUCTORS
from pytracer.analyze.evidence.lifetime.variables import program_frames
from pytracer.analyze.evidence.lifetime.where_made import place_of
from pytracer.analyze.evidence.own_code.own_libraries import allocating_frames
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.view import ProcessView


def unchecked_sparse(view: ProcessView) -> str | None:
    """A sentence; None where the program has no such line or several, or asks for checks anywhere."""
    files = program_files(view.process.snapshot, program_frames(view) or allocating_frames(view))
    nodes = [(file, item) for file, tree in files.items() for item in ast.walk(tree)]
    if any(_name(item) in CHECKS for _, item in nodes):
        return None
    calls = [(file, item) for file, item in nodes if isinstance(item, ast.Call) and called_name(item) in CONSTRUCTORS]
    if len(calls) != 1:
        return None
    file, call = calls[0]
    return (
        f"The first suspect is torch.{called_name(call)}() at {place_of(view, file, call.lineno)}: nothing checks its "
        "indices, and operators write where they say. check_invariants=True there raises an error for a wrong one."
    )


def _name(node: ast.AST) -> str | None:
    return getattr(node, "attr", None) or getattr(node, "id", None) or getattr(node, "arg", None)
