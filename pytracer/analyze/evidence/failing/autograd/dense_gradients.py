"""SparseAdam in a program that has no sparse embedding."""

from __future__ import annotations

import ast

from pytracer._text import list_words
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of

_DENSE = "SparseAdam does not support dense gradients"
_TABLES = ("Embedding", "EmbeddingBag")
_PLACE = 6  # of `sparse` in nn.Embedding(); EmbeddingBag has it in another one
_MOST = 3


def dense_gradients(at: FailingLine) -> str | None:
    """Where none of the tables that its files make is sparse."""
    if _DENSE not in at.message:
        return None
    if any(isinstance(item, ast.keyword) and _is_sparse(item) for tree in at.files.values() for item in nodes_of(tree)):
        return None  # one of them is, as that of from_pretrained()
    tables = [
        (file, item)
        for file, tree in at.files.items()
        for item in nodes_of(tree)
        if isinstance(item, ast.Call) and called_name(item) in _TABLES
    ]
    if not 0 < len(tables) <= _MOST or any(_may_be_sparse(call) for _, call in tables):
        return None
    if not _takes_parameters(at):
        return None
    lines = list_words([str(at.in_file(file, call.lineno)) for file, call in tables])
    return (
        f"None of the program's embeddings ({lines}) has sparse=True, so that their gradients are dense: set it there, "
        "and give SparseAdam only their parameters (all others to a second optimizer), or take Adam for all."
    )


def _takes_parameters(at: FailingLine) -> bool:
    """Whether the optimizer was given what a module has, as far as the line that made it is known."""
    call = at.only(ast.Call)
    made = at.made(call.func.value) if call is not None and isinstance(call.func, ast.Attribute) else None
    if made is None or not isinstance(made.node, ast.Call):
        return True
    parts = {item.attr for item in nodes_of(made.node) if isinstance(item, ast.Attribute)}
    return bool(parts & {"parameters", "named_parameters", "weight"})


def _is_sparse(given: ast.keyword) -> bool:
    return given.arg == "sparse" and not (isinstance(given.value, ast.Constant) and given.value.value is False)


def _may_be_sparse(call: ast.Call) -> bool:
    """By its place, or by what is unpacked."""
    return len(call.args) > _PLACE or any(item.arg is None for item in call.keywords)
