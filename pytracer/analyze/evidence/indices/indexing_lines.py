"""Lines of a compiled function, and of what it calls, that index a variable of it: its kernels know no lines.

By the source: from the function's own variable through the calls of functions, methods and modules of the program that
are given it, to `table[index]` and to calls of torch that take an index.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator

import msgspec
from msgspec import structs

from pytracer._text import list_words, shortened
from pytracer.analyze.evidence.cuda.value_steps import unmoved
from pytracer.analyze.evidence.lifetime.variables import headline_file, program_frames
from pytracer.analyze.evidence.operators.compiled import compiled_call
from pytracer.analyze.evidence.preconditions.modules import construction
from pytracer.analyze.evidence.slicing.bindings import last_binding
from pytracer.analyze.evidence.slicing.calls import argument_of
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import called_name, keyword_value, passed_values
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import (
    function_headed,
    own_nodes,
    parameters,
    qualified_name,
    statement_at,
)
from pytracer.analyze.naming import line_in
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView

_TAKE_INDEX = frozenset({
    "embedding", "embedding_bag", "gather", "index_add", "index_copy", "index_put", "index_select", "scatter",
    "scatter_add", "take", "take_along_dim",
})  # fmt: skip
_SAME = frozenset({"contiguous", "clone", "detach", "to", "float", "half", "double"})
_LIMITS = ("clamp", "clip", "clamp_", "clip_")
_DEPTH, _MOST_LINES, _QUOTED = 4, 3, 60
_MODULES, _PLAIN = ("torch", "nn", "F"), ("len", "isinstance", "print", "range", "zip", "enumerate", "int")
_Function = ast.FunctionDef | ast.AsyncFunctionDef
_Finds = Callable[[ast.AST, set[str], ast.Module], ast.expr | None]


class IndexingLine(msgspec.Struct, frozen=True):
    """`text` at `place` indexes the variable by `index`; `made`: the line that made that, with its text.

    `only_below`: that line limits it at one end alone. `rows`: what it takes rows of, by the index alone.
    """

    place: str
    function: str
    text: str
    index: str | None
    made: str | None
    only_below: bool
    rows: str | None = None

    @property
    def words(self) -> str:
        """`` `frames[idx]` at line 18 in TemporalContext.forward ``."""
        return f"`{self.text}` at {self.place} in {self.function}"


def indexing_lines(view: ProcessView, names: Iterable[str]) -> list[IndexingLine]:
    """Of the compiled function that runs; empty where there are none, or too many to name.

    Args:
        view: The process that runs it.
        names: Of its variables: those that may be the one that is indexed.
    """
    return _lines(view, names, _index_of)


def lines_by_index(view: ProcessView, name: str) -> list[IndexingLine]:
    """The lines of the compiled function that index anything by a variable of it, or by what is computed from that."""
    return _lines(view, [name], _indexed_by)


def _lines(view: ProcessView, names: Iterable[str], finds: _Finds) -> list[IndexingLine]:
    found = compiled_call(view)
    frame = found.function if found is not None else None
    tree = syntax_tree(view.process.snapshot, frame)
    function = function_headed(tree, frame.line) if tree is not None and frame is not None and frame.line else None
    if frame is None or tree is None or function is None:
        return []
    spot = Spot(frame.file, tree, function, function.lineno)
    walk = _Walk(Slice(view.process.snapshot, program_frames(view) or [frame]), headline_file(view), finds)
    lines = [*dict.fromkeys(line for name in names for line in walk.of(spot, function, {name}, _DEPTH))]
    return lines if len(lines) <= _MOST_LINES and not walk.is_open else []


def lines_words(lines: list[IndexingLine]) -> str:
    """`` `frames[idx]` at line 18 in TemporalContext.forward ``, or one of several."""
    places: dict[str, list[str]] = {}
    for item in lines:
        places.setdefault(f"{item.place} in {item.function}", []).append(f"`{item.text}`")
    listed = list_words([f"{list_words(texts)} at {place}" for place, texts in places.items()])
    return listed if len(lines) == 1 else f"one of {listed}"


class _Walk:
    """From function to function. `is_open`: one that is not known is given the variable, and may index it as well."""

    def __init__(self, back: Slice, file: str | None, finds: _Finds) -> None:
        self.is_open = False
        self._finds = finds
        self._back = back
        self._file = file

    def of(self, spot: Spot, function: _Function, names: set[str], left: int) -> Iterator[IndexingLine]:
        """Lines of a function in which `names` are the variable, or what is computed from it element by element."""
        names = self._with_derived(spot, function, names)
        for node in own_nodes(function):
            index = self._finds(node, names, spot.tree)
            if index is not None and isinstance(node, ast.expr):
                yield _line(spot, function, node, index, self._file)
            elif isinstance(node, ast.Call):
                yield from self._of_call(spot, function, node, names, left)

    def _of_call(
        self, spot: Spot, function: _Function, call: ast.Call, names: set[str], left: int
    ) -> Iterator[IndexingLine]:
        called = self._back.function(call, structs.replace(spot, line=call.lineno))
        if called is None or called[0] is function or not left:
            handed_on = any(variable(_whole(item)) in names for item in passed_values(call))
            self.is_open |= handed_on and not _is_of_torch(spot.tree, call)
            return
        inner, there = called
        passed = {
            item
            for item in parameters(inner)
            if (given := argument_of(call, inner, item)) is not None and variable(_whole(given)) in names
        }
        if passed:
            at = structs.replace(there, scope=inner, line=inner.lineno, depth=None, call=(call, spot))
            yield from self.of(at, inner, passed, left - 1)

    def _with_derived(self, spot: Spot, function: _Function, names: set[str]) -> set[str]:
        """With variables of the same tensor, or of one that inductor may compute while it reads that."""
        found = set(names)
        assigned = [node for node in own_nodes(function) if isinstance(node, ast.Assign)]
        for node in sorted(assigned, key=lambda item: item.lineno):
            value = _whole(node.value)
            if isinstance(value, ast.Subscript) or self._finds(value, found, spot.tree) is not None:
                continue
            calls = [item for item in nodes_of(value) if isinstance(item, ast.Call)]
            at = structs.replace(spot, line=node.lineno)
            if any(self._back.function(item, at) is not None for item in calls):
                continue
            if any(variable(item) in found for item in nodes_of(value)):
                found |= {name for target in node.targets if (name := variable(target)) is not None}
        return found


def _is_of_torch(tree: ast.Module, call: ast.Call) -> bool:
    """`torch.relu(x)`, `F.relu(x)`, a method of a tensor, or a layer of torch.nn that the file makes."""
    if not isinstance(call.func, ast.Attribute):
        return isinstance(call.func, ast.Name) and call.func.id in _PLAIN
    made = construction(tree, call.func)
    if made is not None:
        return ast.unparse(made.func).partition(".")[0] in _MODULES
    return variable(call.func.value) != "self"


def _whole(node: ast.expr) -> ast.expr:
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _SAME:
        node = node.func.value
    return node


def _index_of(node: ast.AST, names: set[str], _tree: ast.Module) -> ast.expr | None:
    """What one of the variables is indexed by, if that may be a tensor."""
    if isinstance(node, ast.Subscript) and variable(_whole(node.value)) in names:
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        tensors = [item for item in parts if not isinstance(item, (ast.Slice, ast.Constant, ast.UnaryOp))]
        return tensors[0] if tensors else None
    if isinstance(node, ast.Call) and f"{variable(node.func)}.weight" in names and node.args:
        return node.args[0]  # of nn.Embedding
    if not isinstance(node, ast.Call) or (called_name(node) or "").rstrip("_") not in _TAKE_INDEX:
        return None
    owner = node.func.value if isinstance(node.func, ast.Attribute) else None
    given = [*([owner] if owner is not None else []), *passed_values(node)]
    if not any(variable(_whole(item)) in names for item in given):
        return None
    named = keyword_value(node, "index", "input" if called_name(node) == "embedding" else "indices")
    plain = [item for item in passed_values(node) if not isinstance(item, ast.Constant)]
    others = [item for item in plain if variable(_whole(item)) not in names]
    return named or (others[0] if others else ast.Constant(None))


def _indexed_by(node: ast.AST, names: set[str], tree: ast.Module) -> ast.expr | None:
    """One of the variables, or a view of it, where that is what something is indexed by."""
    given: list[ast.expr] = []
    if isinstance(node, ast.Subscript):
        given = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    elif isinstance(node, ast.Call) and (called_name(node) or "").rstrip("_") in _TAKE_INDEX:
        given = passed_values(node)
    elif isinstance(node, ast.Call) and node.args:
        layer = construction(tree, node.func)
        given = node.args[:1] if layer is not None and called_name(layer) in ("Embedding", "EmbeddingBag") else []
    return next((item for item in given if variable(unmoved(item)) in names), None)


def _rows(node: ast.expr, index: ast.expr) -> str | None:
    """`table` of `table[index]`."""
    return ast.unparse(node.value) if isinstance(node, ast.Subscript) and node.slice is index else None


def _line(spot: Spot, function: _Function, node: ast.expr, index: ast.expr, file: str | None) -> IndexingLine:
    name = variable(unmoved(index))
    last = last_binding(function, name, node.lineno) if name is not None else None
    statement = statement_at(spot.tree, last[0]) if last is not None else None
    made = None
    if last is not None and statement is not None:
        made = f"{line_in(spot.file, last[0], file)} (`{shortened(ast.unparse(statement), _QUOTED)}`)"
    return IndexingLine(
        line_in(spot.file, node.lineno, file),
        qualified_name(spot.tree, function),
        shortened(ast.unparse(node), _QUOTED),
        name,
        made,
        last is not None and _limits_below(last[1]),
        _rows(node, index),
    )


def _limits_below(value: ast.AST | None) -> bool:
    """`idx.clamp(min=0)`, `idx.clamp_min(0)`: without a largest value."""
    if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Attribute):
        return False
    if called_name(value) == "clamp_min":
        return True
    of_torch = variable(value.func.value) == "torch"
    return called_name(value) in _LIMITS and not keyword_value(value, "max") and len(value.args) - of_torch <= 1
