"""Data that a layer computed once, before the steps that use it: the first backward() frees the graph that it has.

It goes through datasets, loaders and objects, so that the failing line does not name it; a caller's lines do.
"""

from __future__ import annotations

import ast

import msgspec

from pytracer.analyze.evidence.failing.autograd.graph_lines import CUTS, FREEZES, bound_names, is_below_cut
from pytracer.analyze.evidence.failing.expressions import names_in, source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.syntax.imports import imported_as
from pytracer.analyze.evidence.syntax.loops import loops_around
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.reaching import places_that_bind
from pytracer.analyze.evidence.syntax.scopes import Scope, own_nodes, scope_of, statement_at
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.report.job import PythonFrame

# Layers of torch.nn with parameters, by the beginnings of their names.
_LAYERS = ("Linear", "Conv", "Embedding", "LSTM", "GRU", "RNN", "Bilinear", "Transformer", "MultiheadAttention")


class PreparedGraph(msgspec.Struct, frozen=True):
    """`name`, made at `place` by `made`, a call of `layer`; `used`: the line that led it to the failing one."""

    name: str
    place: str
    made: str
    layer: str
    used: str

    @property
    def subject(self) -> str:
        """For the headline."""
        return f"`{self.name}` ({self.place}: `{self.made}`) was computed once, with a graph that the first step freed"

    @property
    def advice(self) -> str:
        """What to do about it."""
        return (
            f"`{self.name}` ({self.place}: `{self.made}`) was computed once, and each step uses it ({self.used}): the "
            "first backward() freed its graph. Compute it below `with torch.no_grad():`, or pass "
            f"`{self.name}.detach()`; if `{self.layer}` is to be trained, call it in each step."
        )


def prepared_graph(at: FailingLine) -> PreparedGraph | None:
    """Of the callers' variables; None where none or several are such, or the failing line is in no loop."""
    if not loops_around(at.tree, at.line):
        return None
    found = [item for frame in at.frames[1:] for item in _of_caller(at, frame)]
    return found[0] if len(found) == 1 else None


def _of_caller(at: FailingLine, frame: PythonFrame) -> list[PreparedGraph]:
    tree = syntax_tree(at.snapshot, frame)
    if tree is None or frame.line is None:
        return []
    scope, statement = scope_of(tree, frame.line), statement_at(tree, frame.line)
    decorators = [] if isinstance(scope, (ast.Module, ast.Lambda)) else scope.decorator_list
    frozen = any(FREEZES.search(ast.unparse(item)) for item in own_nodes(scope) if isinstance(item, ast.stmt))
    if frozen or any(CUTS.search(ast.unparse(item)) for item in decorators):
        return []
    above = sorted(
        (item for item in own_nodes(scope) if isinstance(item, ast.Assign) and item.lineno < frame.line),
        key=lambda item: item.lineno,
    )
    found = []
    for item in above:
        layer = _layer_called(tree, scope, item)
        name = variable(item.targets[0])
        if layer is None or name is None or len(places_that_bind(scope, name)) != 1 or loops_around(tree, item.lineno):
            continue
        if statement is not None and _leads_on(above, item, name, statement) and not is_below_cut(scope, item.lineno):
            place, used = at.in_file(frame.file, item.lineno), at.in_file(frame.file, frame.line)
            found.append(PreparedGraph(name, place, source(item.value), layer, used))
    return found


def _layer_called(tree: ast.Module, scope: Scope, item: ast.Assign) -> str | None:
    """`project` of `x = project(data)`, where the same function makes that as a layer of torch's with parameters."""
    call = item.value
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or not call.args:
        return None
    makers = [
        other.value
        for other in own_nodes(scope)
        if isinstance(other, ast.Assign) and variable(other.targets[0]) == call.func.id and other.lineno < item.lineno
    ]
    if len(makers) != 1 or not isinstance(makers[0], ast.Call):
        return None
    kind = imported_as(tree, makers[0].func) or ""
    return call.func.id if kind.startswith("torch.nn.") and kind.rpartition(".")[2].startswith(_LAYERS) else None


def _leads_on(above: list[ast.Assign], made: ast.Assign, name: str, statement: ast.stmt) -> bool:
    """Whether what the statement reads was made of it; what is cut from the graph has none."""
    names = {name}
    for item in above:
        if item.lineno <= made.lineno or not names & {*names_in(item.value)}:
            continue
        if CUTS.search(ast.unparse(item.value)):
            return False
        names |= {part for target in item.targets for part in bound_names(target)}
    text = ast.unparse(statement)
    return bool(names & {*names_in(statement)}) and not CUTS.search(text)
