"""A meter that adds up tensors with their graphs: `meter.update(entropy)`, and in it `self.sum += value`.

A loss whose backward() is called costs nothing there: that frees what its graph keeps. What is only logged has a graph
that nothing frees, and one of each round stays in the sum.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import msgspec

from pytracer._text import capital, shortened
from pytracer.analyze.evidence.ends.keeping_lines import KeepingLine, Round, functions_with_backward, rounds_of
from pytracer.analyze.evidence.ends.summed_graphs import retains, stored_sum
from pytracer.analyze.evidence.slicing.callers import calls_named
from pytracer.analyze.evidence.slicing.calls import argument_of
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.syntax.calls import called_name, passed_values
from pytracer.analyze.evidence.syntax.cut_values import names_switch
from pytracer.analyze.evidence.syntax.loops import LOOPS
from pytracer.analyze.evidence.syntax.names import bare_names, indexed, variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import Scope, own_nodes, parameters, scope_of, spans
from pytracer.analyze.naming import line_in
from pytracer.decode.types.snapshot import Snapshot
from pytracer.report.job import PythonFrame

_QUOTED, _CALL = 60, 45
_DEEPEST, _CALLERS = 2, 3
# Of a tensor: one with the same graph behind it. Others give numbers, indices or copies without one.
_WITH_GRAPH = frozenset(
    {"mean", "sum", "norm", "abs", "pow", "square", "sqrt", "exp", "log", "log10", "cpu", "to", "float", "double"}
    | {"clamp", "squeeze", "unsqueeze", "view", "reshape", "flatten", "clone", "max", "min", "stack", "cat", "items"}
)
_FREES = ("backward", "grad", "manual_backward")


class _Sum(msgspec.Struct, frozen=True):
    """The statement that adds up, in the method `name`, with its class."""

    file: str
    node: ast.stmt
    name: str


def metered_graph(snapshot: Snapshot, frame: PythonFrame) -> KeepingLine | None:
    """None where the source does not show one meter that keeps what the line of `frame` made for a logged result."""
    files = program_files(snapshot, [frame])
    tree = files.get(frame.file or "")
    if tree is None or frame.file is None or frame.line is None:
        return None
    for made in rounds_of(files, frame.file, tree, frame.line):
        freed = _passed_back(made, files)
        logged = made.names - freed
        if not isinstance(made.region, LOOPS) or not logged or _is_switched(files, made):
            continue
        names = _with_aliases(made.region, logged)
        found = {
            (item.file, item.node.lineno): (call, value, item)
            for call, value in _passed(made.region, names)
            for item in _sums(files, call, value, _DEEPEST)
        }
        if len(found) == 1:
            return _told(made, frame, *found.popitem()[1])
    return None


def _told(made: Round, frame: PythonFrame, call: ast.Call, value: ast.expr, found: _Sum) -> KeepingLine:
    place = line_in(found.file, found.node.lineno, frame.file)
    text = shortened(" ".join(ast.unparse(found.node).split()), _QUOTED)
    given = shortened(ast.unparse(value), _CALL)
    there = line_in(made.file, call.lineno, frame.file).quoted(shortened(ast.unparse(call), _QUOTED))
    verb = "keeps" if isinstance(found.node, ast.Expr) else "adds up"  # append()
    return KeepingLine(
        f"{place} {verb} each `{given}` with its graph",
        f"{capital(place)} (`{text}`, in {found.name}) {verb} what {there} passes, with the graphs of all rounds: no "
        f"backward() goes through them, so that they keep what line {frame.line} made in each. Pass numbers "
        f"(`.item()`), or let {found.name}() take `.detach()` of what it is given.",
        endless=True,
    )


def _passed_back(made: Round, files: dict[str, ast.Module]) -> frozenset[str]:
    """What backward() is called on in the loop, and all that it is computed from there: its graph is freed.

    Also what a function of the program is given that calls backward().
    """
    found: set[str] = set()
    frees = {*_FREES, *functions_with_backward(files.values())}
    for item in nodes_of(made.region):
        if isinstance(item, ast.Call) and called_name(item) in frees and not retains(item):
            roots = [*item.args, *([item.func.value] if isinstance(item.func, ast.Attribute) else [])]
            found = found.union(*map(bare_names, roots))
    size = -1
    while size != len(found):
        size = len(found)
        for item in nodes_of(made.region):
            if isinstance(item, (ast.Assign, ast.AugAssign)) and _bound(item) & found:
                found |= bare_names(item.value)
    return frozenset(found)


def _bound(item: ast.Assign | ast.AugAssign) -> set[str]:
    targets = item.targets if isinstance(item, ast.Assign) else [item.target]
    return set[str]().union(*map(bare_names, targets))


def _is_switched(files: dict[str, ast.Module], made: Round) -> bool:
    """Whether gradients are switched off around the loop, in it, or by who calls its function."""
    within = (part for item in nodes_of(made.region) if isinstance(item, ast.With) for part in item.items)
    if any(names_switch(part.context_expr) for part in within):
        return True
    return _is_below_switch(files, made.tree, made.scope, getattr(made.region, "lineno", 0), _CALLERS)


def _is_below_switch(files: dict[str, ast.Module], tree: ast.Module, scope: Scope, line: int, depth: int) -> bool:
    around = (part for item in own_nodes(scope) if isinstance(item, ast.With) and spans(item, line)
              for part in item.items)  # fmt: skip
    called = (item for item in own_nodes(scope) if isinstance(item, ast.Expr) and item.lineno < line)
    decorators = getattr(scope, "decorator_list", [])
    if any(map(names_switch, (*(part.context_expr for part in around), *(item.value for item in called), *decorators))):
        return True
    name = getattr(scope, "name", None)
    return depth > 0 and name is not None and any(
        _is_below_switch(files, other, scope_of(other, call.lineno), call.lineno, depth - 1)
        for _, other, call in calls_named(files, name)
        if scope_of(other, call.lineno) is not scope
    )  # fmt: skip


def _with_aliases(region: ast.AST, names: frozenset[str]) -> frozenset[str]:
    """Also what has the same graph under another name: `stats = {"spread": spread}`, `for key, v in stats.items()`."""
    found = set(names)
    for item in [*nodes_of(region)] * 2:
        if isinstance(item, ast.Assign) and _carries(item.value, frozenset(found)):
            found |= {name for target in item.targets if (name := variable(target)) is not None}
        elif isinstance(item, (ast.For, ast.AsyncFor)) and _carries(item.iter, frozenset(found)):
            last = item.target.elts[-1] if isinstance(item.target, ast.Tuple) else item.target
            found |= {last.id} if isinstance(last, ast.Name) else set()
    return frozenset(found)


def _carries(value: ast.expr | None, names: frozenset[str]) -> bool:
    """Whether a value has the graph of one of these variables."""
    if isinstance(value, ast.Name):
        return value.id in names
    if isinstance(value, (ast.Subscript, ast.Starred)):
        return _carries(value.value, names)
    if isinstance(value, ast.BinOp):
        return _carries(value.left, names) or _carries(value.right, names)
    if isinstance(value, ast.UnaryOp):
        return not isinstance(value.op, ast.Not) and _carries(value.operand, names)
    if isinstance(value, (ast.Tuple, ast.List)):
        return any(_carries(item, names) for item in value.elts)
    if isinstance(value, ast.Dict):
        return any(_carries(item, names) for item in value.values)
    if isinstance(value, ast.Call) and called_name(value) in (*_WITH_GRAPH, "dict") and not _is_float(value):
        owner = value.func.value if isinstance(value.func, ast.Attribute) else None
        return any(_carries(item, names) for item in (owner, *passed_values(value)))
    return False


def _is_float(call: ast.Call) -> bool:
    """Python's own, which makes a number; that of a tensor makes a tensor."""
    return isinstance(call.func, ast.Name) and call.func.id == "float"


def _passed(region: ast.AST, names: frozenset[str]) -> Iterator[tuple[ast.Call, ast.expr]]:
    """Calls of methods that are given one of them."""
    for item in nodes_of(region):
        if isinstance(item, ast.Call) and isinstance(item.func, ast.Attribute) and called_name(item) not in _FREES:
            yield from ((item, value) for value in passed_values(item) if _carries(value, names))


def _sums(files: dict[str, ast.Module], call: ast.Call, value: ast.expr, depth: int) -> Iterator[_Sum]:
    """The statements by which the program's methods of that name add up what is passed; not where they convert it."""
    for file, tree in files.items():
        for owner in (item for item in nodes_of(tree) if isinstance(item, ast.ClassDef)):
            for method in owner.body:
                if not isinstance(method, ast.FunctionDef) or method.name != called_name(call):
                    continue
                names = _with_aliases(method, _parameters_given(call, method, value))
                if not names or _converts(method, names):
                    continue
                yield from _in_method(file, method, names, f"{owner.name}.{method.name}")
                for inner, given in _passed(method, names) if depth else ():
                    yield from _sums(files, inner, given, depth - 1)


def _in_method(file: str, method: ast.FunctionDef, names: frozenset[str], name: str) -> Iterator[_Sum]:
    for node in own_nodes(method):
        found = stored_sum(node)
        if found is None or not isinstance(node, ast.stmt) or not _carries(found[1], names):
            continue
        if (variable(indexed(found[0])) or "").startswith("self."):
            yield _Sum(file, node, name)


def _parameters_given(call: ast.Call, method: ast.FunctionDef, value: ast.expr) -> frozenset[str]:
    """The parameters that have it: also `**options` of the method."""
    found = {name for name in parameters(method) if argument_of(call, method, name) is value}
    rest = method.args.kwarg
    if not found and rest is not None and any(item.value is value for item in call.keywords):
        found.add(rest.arg)
    return frozenset(found)


def _converts(method: ast.FunctionDef, names: frozenset[str]) -> bool:
    """`if torch.is_tensor(value): value = value.item()`; also of what a loop takes from it."""
    for item in own_nodes(method):
        sets = isinstance(item, (ast.Assign, ast.AugAssign)) and _bound(item) & names
        if sets and not (isinstance(item, ast.Assign) and _carries(item.value, names)):
            return True
    return any(map(names_switch, method.decorator_list)) or any(
        isinstance(item, ast.With) and names_switch(item.items[0].context_expr) for item in own_nodes(method)
    )
