"""Tensors that a loop's head only takes from a loader: the line of the data set that makes their values.

What a DataLoader without workers puts together is allocated while the head of the loop runs: the recorded line of the
program is that head, which unpacks a batch, and makes none of its values.
"""

from __future__ import annotations

import ast
from itertools import dropwhile

from pytracer._text import shortened
from pytracer.analyze.evidence.failing.data.datasets import getter
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine, failing_line
from pytracer.analyze.evidence.lifetime.variables import program_frames
from pytracer.analyze.evidence.lifetime.where_made import line_that_made, place_of
from pytracer.analyze.evidence.slicing.spots import Made
from pytracer.analyze.evidence.syntax.calls import without_wrappers
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import own_nodes, qualified_name, spans
from pytracer.analyze.tensors.source_lines import line_text, syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.report.job import ExceptionReport, PythonFrame

_WRAPPERS = ("enumerate", "tqdm", "trange", "iter", "islice", "track")
_QUOTED = 60


def made_clause(view: ProcessView, base: int, name: str) -> str:
    """`, which line 30 in load made,`, or which loop takes it from which loader; nothing where neither is known."""
    made = line_that_made(view, base, quote=False)
    if made is None:
        return ""
    loop = _loop_at(view, made.file, made.line)
    if loop is None:
        return f", which {made} made,"
    values = _values(view, made.file, loop, name)
    return f", which {made} takes from `{source(without_wrappers(loop.iter, _WRAPPERS))}`{values},"


def _loop_at(view: ProcessView, file: str | None, line: int | None) -> ast.For | ast.AsyncFor | None:
    """Whose head a line is."""
    tree = syntax_tree(view.process.snapshot, PythonFrame(file=file, line=line))
    for item in nodes_of(tree) if tree is not None and line is not None else ():
        if isinstance(item, (ast.For, ast.AsyncFor)) and item.lineno <= (line or 0) < item.body[0].lineno:
            return item
    return None


def _values(view: ProcessView, file: str | None, loop: ast.For | ast.AsyncFor, name: str) -> str:
    """`` and line 12 in Sessions.__init__ (`self.history = ...`) makes ``: the part of a sample that is named so."""
    frames = [*dropwhile(lambda one: not (one.file == file and spans(loop, one.line or 0)), program_frames(view))]
    at = failing_line(view.process.snapshot, ExceptionReport(), frames)
    found = getter(at) if at is not None else None
    if at is None or found is None:
        return ""
    returns = [item for item in own_nodes(found.method) if isinstance(item, ast.Return) and item.value is not None]
    value = returns[0].value if len(returns) == 1 else None
    place = _place_in(loop, name)
    if isinstance(value, ast.Tuple) and place is not None and place < len(value.elts):
        value = value.elts[place]
    elif value is None or place is not None or isinstance(value, (ast.Tuple, ast.Dict)):
        return ""
    made = _made(at, value, Made(value, found.spot))
    scope = made.spot.scope
    text = line_text(view.process.snapshot, PythonFrame(file=made.spot.file, line=made.line))
    quoted = f" (`{shortened(text, _QUOTED)}`)" if text else ""
    line = place_of(view, made.spot.file, made.line)
    return f" and {line} in {qualified_name(made.spot.tree, scope)}{quoted} makes"


def _made(at: FailingLine, value: ast.expr, here: Made) -> Made:
    """What `self.history[n]` is a part of, as far back as is known."""
    inner = value
    while isinstance(inner, ast.Subscript):
        inner = inner.value
    if variable(inner) is None:
        return here
    found = at.slice.made(inner, here.spot, calls=False)
    return found if found.through else here


def _place_in(loop: ast.For | ast.AsyncFor, name: str) -> int | None:
    """Which part of a batch the loop gives a variable: 0 of `for x, y in loader`; None of the whole batch."""
    target: ast.expr = loop.target
    counted = isinstance(loop.iter, ast.Call) and "enumerate" in ast.unparse(loop.iter.func)
    if counted and isinstance(target, ast.Tuple) and len(target.elts) == 2:
        target = target.elts[1]
    parts = target.elts if isinstance(target, (ast.Tuple, ast.List)) else []
    return next((number for number, item in enumerate(parts) if variable(item) == name), None)
