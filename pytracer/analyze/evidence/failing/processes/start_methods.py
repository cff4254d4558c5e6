"""Start methods of multiprocessing: objects of one for processes of another, and one that is chosen already."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.expressions import short, source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.slicing.spots import Made
from pytracer.analyze.evidence.syntax.calls import called_name, passed_values
from pytracer.analyze.evidence.syntax.imports import imported_as
from pytracer.analyze.evidence.syntax.names import elements
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import Scope, function_named, own_nodes

_CONTEXT = Pattern(r"SemLock created in a (\w+) context is being shared with a process in a (\w+) context")
_SHARED = frozenset(
    {"Queue", "SimpleQueue", "JoinableQueue", "Lock", "RLock", "Event", "Semaphore", "BoundedSemaphore", "Condition"}
    | {"Barrier", "Value", "Array"}
)
_SET = "set_start_method"
_FIXED = "context has already been set"
_FIXING = _SHARED | {"Pool", "Manager", "get_start_method", _SET}  # what asks for the default context's method
_MODULES = ("multiprocessing", "torch.multiprocessing", "multiprocess")


def other_start_method(at: FailingLine) -> str | None:
    """A queue or lock of another start method than the process that gets it."""
    found, call = _CONTEXT.search(at.message), at.only(ast.Call)
    if found is None or call is None:
        return None
    made = [*_shared_objects(at, call)]
    if len(made) != 1:
        return None
    name, item = made[0]
    kind = called_name(item.node) if isinstance(item.node, ast.Call) else ""
    return (
        f"`{name}` is made at {at.place(item.spot, item.line)} (`{short(source(item.node))}`) for the start method "
        f"{found[1]}, and line {at.line} starts its processes by {found[2]}: make it by "
        f'`torch.multiprocessing.get_context("{found[2]}").{kind}()`.'
    )


def fixed_start_method(at: FailingLine) -> str | None:
    """set_start_method() below a pool, queue or lock of the same program, which had to choose one."""
    call = at.only(ast.Call)
    if at.message != _FIXED or call is None or called_name(call) != _SET:
        return None
    earlier = [*_earlier(at.tree, at.scope, at.line)]
    if len(earlier) != 1:
        return None
    method = f"({source(call.args[0])})" if call.args else "()"
    return (
        f"`{short(source(earlier[0]))}` at {at.here(earlier[0].lineno)} has chosen the start method, and it is chosen "
        f"once: call `set_start_method{method}` first of all, below `if __name__ == '__main__':`; or leave the default "
        f"alone, and make processes, queues and pools by `get_context{method}`."
    )


def _shared_objects(at: FailingLine, call: ast.Call) -> Iterator[tuple[str, Made]]:
    """What the call passes to the process that is such an object."""
    given = passed_values(call)
    parts = [part for item in given for part in elements(item)]
    for part in parts:
        made = at.made(part, calls=False)
        if made is not None and isinstance(made.node, ast.Call) and called_name(made.node) in _SHARED:
            yield source(part), made


def _earlier(tree: ast.Module, scope: Scope, line: int) -> Iterator[ast.Call]:
    """Calls that fix the method and surely ran: above the line, at the top, and in functions that are called there."""
    above = [item for item in _unconditional_calls(scope) if item.lineno < line]
    if not isinstance(scope, ast.Module):
        above += _unconditional_calls(tree)
    for item in above:
        if _fixes(tree, item):
            yield item
        function = function_named(tree, item.func.id) if isinstance(item.func, ast.Name) else None
        if function is not None and function is not scope:
            yield from (inner for inner in _unconditional_calls(function) if _fixes(tree, inner))


def _unconditional_calls(scope: Scope) -> list[ast.Call]:
    """Not those below an `if`, also the main guard, nor in a loop or `try`."""
    nodes = [*own_nodes(scope)]
    below = {
        id(inner)
        for item in nodes
        if isinstance(item, (ast.If, ast.IfExp, ast.BoolOp, ast.For, ast.While, ast.Try))
        for inner in nodes_of(item)
    }
    return [item for item in nodes if isinstance(item, ast.Call) and id(item) not in below]


def _fixes(tree: ast.Module, call: ast.Call) -> bool:
    module, _, name = (imported_as(tree, call.func) or "").rpartition(".")
    if any(item.arg == "allow_none" for item in call.keywords) or (name == "get_start_method" and call.args):
        return False
    return module in _MODULES and name in _FIXING
