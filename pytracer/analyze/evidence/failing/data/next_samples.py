"""An index of a sample that the dataset made itself: the next one after a bad one, and the number of the worker."""

from __future__ import annotations

import ast

from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import own_nodes, scope_of, second_parameter, spans_body


def behind_the_last(at: FailingLine, node: ast.Subscript, count: int) -> str | None:
    """Of an `except` of __getitem__ that asks for `index + 1`, where the last sample is the bad one.

    Args:
        at: The failing line.
        node: The list and its index.
        count: How many items the list has.
    """
    name = variable(node.slice)
    if getattr(at.scope, "name", "") != "__getitem__" or name is None or name != second_parameter(at.scope):
        return None
    outer = at.frames[1] if len(at.frames) > 1 else None
    if outer is None or outer.file != at.frame.file or outer.line is None:
        return None
    if scope_of(at.tree, outer.line) is not at.scope:
        return None
    handlers = [
        (item, part)
        for item in own_nodes(at.scope)
        if isinstance(item, ast.Try)
        for part in item.handlers
        if spans_body(part.body, outer.line)
    ]
    if len(handlers) != 1:
        return None
    tried, handler = handlers[0]
    asks = [
        part
        for item in handler.body
        for part in nodes_of(item)
        if isinstance(part, ast.BinOp) and isinstance(part.op, ast.Add) and part.lineno == outer.line
        if {ast.unparse(part.left), ast.unparse(part.right)} == {name, "1"}
    ]
    if len(asks) != 1:
        return None
    return (
        f"the `except` at line {handler.lineno} asks for the next sample (line {outer.line}: `{source(asks[0])}`), and "
        f"sample {count - 1}, which failed in the `try` of line {tried.lineno}, is the last one. Write "
        f"`({source(asks[0])}) % len(self)` there, and print what the `except` caught: it hides why that sample failed."
    )


def number_of_worker(at: FailingLine, index: ast.expr) -> str | None:
    """Of a list that each worker of a DataLoader takes one item of, by `get_worker_info().id`."""
    worker = getattr(at.snapshot, "worker", None)
    made = at.made(index)
    if worker is None or made is None or worker.num_workers is None:
        return None
    asked = [item for item in nodes_of(made.node) if isinstance(item, ast.Attribute) and item.attr == "id"]
    infos = [at.slice.made(item.value, made.spot, calls=False).node for item in asked]
    if not any(isinstance(item, ast.Call) and called_name(item) == "get_worker_info" for item in infos):
        return None
    return (
        f"it is the number of the worker, and there are {worker.num_workers} workers. Let each take every n-th item "
        "(`items[info.id::info.num_workers]`), or set num_workers to no more than there are items."
    )
