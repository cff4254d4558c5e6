"""Whether a line of the program can have had part in what a running native call was passed, as far as the source shows.

Back from the arguments, through variables, attributes, parameters and what functions of the program return. A line of
a function that is met nowhere on the way is no suspect; where nothing is known of the call, every line is.
"""

from __future__ import annotations

import ast
from collections import deque

from pytracer.analyze.evidence.lifetime.variables import program_frames
from pytracer.analyze.evidence.native.fault_function import is_of_own_image
from pytracer.analyze.evidence.native.native_stack import image_name, own_frames
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import called_name, calls_on, passed_values
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import Scope, class_around, own_nodes, scope_of
from pytracer.analyze.view import ProcessView

_FOREIGN_CALLS = ("libffi.", "_ctypes.", "_cffi_backend.")
_MOST = 200


def native_calls_on(view: ProcessView, spot: Spot) -> list[ast.Call]:
    """The calls of a line that may be of native code, where that runs: a last free() leaves no frame of its caller."""
    frames = own_frames(view)
    foreign = any(is_of_own_image(item) or image_name(item.image).startswith(_FOREIGN_CALLS) for item in frames)
    return [item for item in calls_on(spot.tree, spot.line) if isinstance(item.func, ast.Attribute)] if foreign else []


def native_functions_on(view: ProcessView, spot: Spot) -> list[tuple[ast.Call, str]]:
    """The same calls with what C calls the function; also by a variable: `loss(x)` after `loss = lib.softmax_loss`."""
    native = native_calls_on(view, spot)
    back = Slice(view.process.snapshot, program_frames(view))
    found = []
    for call in calls_on(spot.tree, spot.line) if own_frames(view) else ():
        made = back.made(call.func, spot, calls=False).node
        if isinstance(made, ast.Attribute) and made is not call.func:
            found.append((call, made.attr))
        elif call in native:
            found.append((call, called_name(call) or ""))
    return found


def may_reach_call(view: ProcessView, tree: ast.Module, line: int) -> bool:
    """Of a line of a file of the program."""
    back = Slice(view.process.snapshot, program_frames(view))
    spot = back.spot(0)
    calls = native_calls_on(view, spot) if spot is not None else []
    around = scope_of(tree, line)
    if spot is None or not calls or isinstance(around, (ast.Module, ast.Lambda)):
        return True
    scopes, called = _met(back, [(item, spot) for call in calls for item in passed_values(call)])
    return any(item is around for item in scopes) or around.name in called


def _met(back: Slice, waiting: list[tuple[ast.expr, Spot]]) -> tuple[list[Scope], set[str]]:
    """The functions on the way back from expressions, and the names of those that are called there."""
    left = deque[tuple[ast.AST, Spot]](waiting)
    scopes, called = list[Scope](), set[str]()
    seen = set[tuple[str | None, int, str]]()
    while left and len(seen) < _MOST:
        node, spot = left.popleft()
        key = (spot.file, spot.line, ast.unparse(node))
        if key in seen:
            continue
        seen.add(key)
        scopes.append(spot.scope)
        for part in nodes_of(node):
            if isinstance(part, ast.Call):
                called.add(called_name(part) or "")
            if isinstance(part, (ast.Name, ast.Attribute, ast.Call)):
                made = back.made(part, spot, calls=True)
                left.extend(made.through[1:])
                left.extend([(made.node, made.spot)] if made.node is not part else [])
            name = variable(part)
            if name is not None:
                left.extend(_given(name, spot))
    return scopes, called


def _given(name: str, spot: Spot) -> list[tuple[ast.AST, Spot]]:
    """Everything that lines of its function bind or write into a variable; of an attribute, those of its class."""
    owner = class_around(spot.tree, spot.scope) if name.startswith("self.") else None
    found: list[tuple[ast.AST, Spot]] = []
    for node in nodes_of(owner) if owner is not None else own_nodes(spot.scope):
        targets: list[ast.expr] = node.targets if isinstance(node, ast.Assign) else []
        targets = [node.target] if isinstance(node, (ast.AugAssign, ast.For)) else targets
        held = {variable(part) for item in targets for part in nodes_of(item)}
        value = node.iter if isinstance(node, ast.For) else getattr(node, "value", None)
        if name in held and isinstance(value, ast.expr):
            scope = scope_of(spot.tree, value.lineno)
            depth = spot.depth if owner is None else None
            found.append((value, Spot(spot.file, spot.tree, scope, value.lineno, depth)))
    return found
