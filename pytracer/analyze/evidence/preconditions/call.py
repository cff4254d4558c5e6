"""The call of torch that the crashed thread was in, with the arguments that its line in Python passes.

The innermost Python frame is where native code was called; its line's syntax says which variable is which argument,
which the native stack does not. Only variables, attributes of `self` and numbers are followed: for all other
expressions nothing was recorded.
"""

from __future__ import annotations

import ast
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from msgspec import structs

from pytracer._library_files import is_library_file
from pytracer.analyze.evidence.lifetime.variables import (
    MODULE,
    plain_expression,
    python_frames,
    registered_name,
    variable_name,
)
from pytracer.analyze.evidence.operators.operator import find_operator
from pytracer.analyze.evidence.preconditions.modules import called_module, construction, forward_of, module_class
from pytracer.analyze.evidence.preconditions.terms import Given
from pytracer.analyze.evidence.syntax.bindings import lines_that_bind
from pytracer.analyze.evidence.syntax.calls import called_name, calls_on
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import function_named, own_nodes, scope_of
from pytracer.analyze.known.operators import Precondition
from pytracer.analyze.parts import python_frame
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import Argument, Crash, Holder, PythonFrame

_TORCH, _OPS = "torch", "ops"
_PARAMETERS = "._parameters["
_MODULES, _CALLS_FORWARD = "torch/nn/modules/", ("Module._call_impl", "Module._wrapped_call_impl")
_OF_OPS = 3  # `ops.aten.name` of `torch.ops.aten.name.default`
_SAME = frozenset({"contiguous", "detach", "clone", "cpu", "requires_grad_", "pin_memory", "long"})  # sizes and values


@dataclass(frozen=True)
class BoundCall:
    """`operator`: without namespace and overload; `given`: what is known of its arguments, by their names.

    `texts`: its arguments as the program writes them. `place`: of a call in a library's file. `file`: of the line.
    `of_node`: it is known by its autograd node, and the module that made it may have returned.
    """

    operator: str
    given: Mapping[str, Given]
    entry: Precondition
    line: int
    texts: Mapping[str, str] = field(default_factory=dict)
    place: str | None = None
    file: str | None = None
    of_node: bool = False


def bound_call(view: ProcessView, known: Mapping[str, Precondition]) -> BoundCall | None:
    """Of the program's innermost line, or of torch's own lines above it: the only call of an operator in `known`."""
    return next(iter(bound_calls(view, known)), None)


def bound_calls(view: ProcessView, known: Mapping[str, Precondition]) -> list[BoundCall]:
    """The innermost, and what called it, up to the program's innermost line: a module of torch knows other arguments.

    Nothing where the innermost of those lines has several.
    """
    found: list[BoundCall] = []
    running: str | None = None
    for frame in python_frames(view):
        tree = syntax_tree(view.process.snapshot, python_frame(frame)) if frame.line is not None else None
        if tree is not None and frame.line is not None:
            calls = operators_on(tree, frame.line, known)
            if len(calls) > 1:
                return found
            own = not is_library_file(frame.file)
            calls = calls or (_called_module(tree, frame.line, running) if own and running is not None else [])
            found += [_bound(view, frame, *call, known) for call in calls]
        if not is_library_file(frame.file):
            break
        if not (frame.function or "").startswith(_CALLS_FORWARD):
            running = _module_of(frame, known)
    return found


def _module_of(frame: PythonFrame, known: Mapping[str, Precondition]) -> str | None:
    """The operator that a module of torch is known by, of the frame that runs its forward()."""
    owner, _, function = (frame.function or "").rpartition(".")
    if function != "forward" or _MODULES not in (frame.file or ""):
        return None
    return next((name for name, entry in known.items() if owner in entry.modules), None)


def _called_module(tree: ast.Module, line: int, name: str) -> list[tuple[str, ast.Call]]:
    """The only call on a line, below which that module ran: `cell(x, state)` for each `cell` of a list."""
    calls = calls_on(tree, line)
    return [(name, calls[0])] if len(calls) == 1 else []


def earlier_calls(view: ProcessView, known: Mapping[str, Precondition]) -> Iterator[BoundCall]:
    """Calls that the functions on the Python stack had made before, the latest first; variables are as they are now."""
    for frame in python_frames(view):
        tree = syntax_tree(view.process.snapshot, python_frame(frame)) if frame.line is not None else None
        if tree is not None and frame.line is not None and not is_library_file(frame.file):
            above = [
                node
                for node in own_nodes(scope_of(tree, frame.line))
                if isinstance(node, ast.Call) and node.lineno <= frame.line
            ]
            for node in sorted(above, key=lambda item: -item.lineno):
                name = _operator_name(node.func, tree, known)
                if name is not None and name in known and known[name].at_once:
                    continue
                if name is not None and name in known:
                    yield _bound(view, frame, name, node, known)
                else:
                    yield from _in_function(view, frame, tree, node, known)


def _in_function(
    view: ProcessView, frame: PythonFrame, tree: ast.Module, call: ast.Call, known: Mapping[str, Precondition]
) -> Iterator[BoundCall]:
    """Calls in a function of the same file that `call` calls, whose parameters are what `call` passes for them."""
    function = function_named(tree, called_name(call) or "") or forward_of(tree, call)
    if function is None or any(isinstance(item, ast.Starred) for item in call.args):
        return
    names = [item.arg for item in (*function.args.posonlyargs, *function.args.args)]
    names = names[names[:1] == ["self"] :]
    passed = dict(zip(names, call.args, strict=False)) | {item.arg: item.value for item in call.keywords if item.arg}
    for name, inner in operator_calls(function, tree, known):
        given = {}
        for argument, node in passed_arguments(inner, known[name]):
            outer = node if isinstance(node, ast.Constant) else _as_passed(node, function, passed)
            item = given_of(view, frame, outer) if outer is not None else None
            if item is not None:
                given[argument] = item
        if known[name].at_once:
            continue
        yield BoundCall(name, given, known[name], inner.lineno, argument_texts(inner, known[name]), file=frame.file)


def _as_passed(node: ast.expr, function: ast.AST, passed: Mapping[str, ast.expr]) -> ast.expr | None:
    """A parameter, or an item of one, as the caller writes it; an attribute may be of another object."""
    if isinstance(node, ast.Name):
        return passed.get(node.id) if not lines_that_bind(function, node.id) else None
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        whole = _as_passed(node.value, function, passed)
        return ast.Subscript(whole, node.slice, ast.Load()) if whole is not None else None
    return None


def _bound(
    view: ProcessView, frame: PythonFrame, name: str, call: ast.Call, known: Mapping[str, Precondition]
) -> BoundCall:
    passed = {**_made_with(view, frame, call), **dict(passed_arguments(call, known[name]))}
    items = [
        (f"{argument}{at}", node)
        for argument, whole in passed.items()
        for at, node in enumerate(_items(whole, known[name].items(argument)))
    ]
    found = {
        argument: item
        for argument, node in (*passed.items(), *items)
        if (item := given_of(view, frame, node)) is not None
    }
    for argument, rows_of in list(found.items()):  # a tensor that is taken for a tuple of its rows
        rows = ((f"{argument}{at}", _row(rows_of, at)) for at in known[name].items(argument))
        found.update({row: item for row, item in rows if item is not None and row not in found})
    texts = argument_texts(call, known[name])
    if is_library_file(frame.file):  # whose variables the program does not know
        found = {argument: _as_parameter(view, frame, item) for argument, item in found.items()}
        names = {argument: item.name.strip("`") for argument, item in found.items()}
        whole = {name: names.get(f"{name}0", name).removesuffix("[0]") for name in texts}
        texts = {name: names.get(name, whole[name]) for name in texts}
    return BoundCall(name.rpartition(".")[2], found, known[name], call.lineno, texts, file=frame.file)


def _as_parameter(view: ProcessView, frame: PythonFrame, item: Given) -> Given:
    """`self.lstm.weight_hh_l0` of `self._flat_weights[1]`: what the module's list has, by the module's own name."""
    crash, name = view.crash, item.name.strip("`")
    if crash is None or not item.base or "[" not in name:
        return item
    held = [one for one in crash.holders if one.base == item.base and _has(frame, one)]
    own = {one.expression for one in held if _PARAMETERS in one.expression}
    if len(own) != 1:
        return item
    owner, _, attribute = plain_expression(own.pop()).partition(".")
    module = called_module(view, frame) if owner == "self" else None
    registered = registered_name(view, item.base) if module is None else None
    return structs.replace(item, name=f"`{registered or f'{module or owner}.{attribute}'}`")


def _row(whole: Given, at: int) -> Given | None:
    tensor = whole.tensor
    if tensor is None or not at < (tensor.sizes[0] if tensor.sizes else 0) or len(tensor.sizes) != tensor.dimensions:
        return None
    elements = tensor.elements // tensor.sizes[0]
    row = replace(tensor, elements=elements, sizes=tensor.sizes[1:], dimensions=tensor.dimensions - 1)
    return Given(f"`{whole.name.strip('`')}[{at}]`", row, elements=elements, base=whole.base)


def _items(whole: ast.expr, places: range) -> list[ast.expr]:
    """The first items of what is passed as one argument: of a tuple or list that is written there, or of a variable."""
    if isinstance(whole, (ast.Tuple, ast.List)):
        return whole.elts[: len(places)] if not any(isinstance(item, ast.Starred) for item in whole.elts) else []
    if not isinstance(whole, (ast.Name, ast.Attribute)):
        return []
    return [ast.Subscript(whole, ast.Constant(at), ast.Load()) for at in places]


def _made_with(view: ProcessView, frame: PythonFrame, call: ast.Call) -> dict[str, ast.expr]:
    """Constants by which the module that is called was made: `include_last_offset=True`."""
    tree = syntax_tree(view.process.snapshot, python_frame(frame))
    made = construction(tree, call.func) if tree is not None else None
    words = made.keywords if made is not None else ()
    return {item.arg: item.value for item in words if item.arg and isinstance(item.value, ast.Constant)}


def argument_texts(call: ast.Call, entry: Precondition) -> dict[str, str]:
    """Its arguments as the program writes them, by the names of the entry."""
    return {argument: ast.unparse(node) for argument, node in passed_arguments(call, entry)}


def operators_on(tree: ast.Module, line: int, known: Mapping[str, Precondition]) -> list[tuple[str, ast.Call]]:
    """The calls of operators in `known` that a line is part of."""
    return list(_calls(nodes_of(tree), tree, known, range(line, line + 1)))


def operator_calls(
    function: ast.FunctionDef | ast.AsyncFunctionDef, tree: ast.Module, known: Mapping[str, Precondition]
) -> Iterator[tuple[str, ast.Call]]:
    """The calls of operators in `known` in a function."""
    return _calls(own_nodes(function), tree, known, range(function.lineno, (function.end_lineno or 0) + 1))


def _calls(
    among: Iterable[ast.AST], tree: ast.Module, known: Mapping[str, Precondition], lines: range
) -> Iterator[tuple[str, ast.Call]]:
    """Those that span one of the lines."""
    for node in among:
        if isinstance(node, ast.Call) and node.lineno < lines.stop and (node.end_lineno or node.lineno) >= lines.start:
            name = _operator_name(node.func, tree, known)
            if name is not None and name in known:
                yield name, node


def _operator_name(function: ast.expr, tree: ast.Module, known: Mapping[str, Precondition]) -> str | None:
    """`lu_unpack` of `torch.lu_unpack` and of `torch.ops.aten.lu_unpack.default`; None of others' functions.

    Of a variable that is a module of torch: the operator that this calls.
    """
    module = module_class(tree, function)
    if module is not None:
        return next((name for name, entry in known.items() if module in entry.modules), None)
    parts: list[str] = []
    while isinstance(function, ast.Attribute):
        parts.insert(0, function.attr)
        function = function.value
    if not isinstance(function, ast.Name):
        return None
    origin = _imported(tree).get(function.id, function.id)
    if origin.partition(".")[0] != _TORCH:
        return None
    parts = [*origin.split("."), *parts]
    if _OPS in parts:
        parts = parts[parts.index(_OPS) : parts.index(_OPS) + _OF_OPS]
    qualified = ".".join(parts[-2:])  # torch.nn.functional takes some arguments in another order
    return qualified if qualified in known else parts[-1]


def _imported(tree: ast.Module) -> dict[str, str]:
    """Names of modules and of what is in them: `F` is `torch.nn.functional`; `aten = torch.ops.aten`, too."""
    found: dict[str, str] = {}
    for node in nodes_of(tree):
        if isinstance(node, ast.Import):
            found.update({item.asname: item.name for item in node.names if item.asname})
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.update({item.asname or item.name: f"{node.module}.{item.name}" for item in node.names})
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            path = ast.unparse(node.value) if isinstance(node.value, ast.Attribute) else ""
            if path.startswith(f"{_TORCH}."):
                found[node.targets[0].id] = path
    return found


def passed_arguments(call: ast.Call, entry: Precondition) -> Iterator[tuple[str, ast.expr]]:
    """By the names that the entry has for its places."""
    names = entry.arguments.split()
    plain = itertools.takewhile(lambda item: not isinstance(item, ast.Starred), call.args)
    yield from zip(names, plain, strict=False)
    yield from ((item.arg, item.value) for item in call.keywords if item.arg in names)


def given_of(view: ProcessView, frame: PythonFrame, node: ast.expr) -> Given | None:
    """What is known of an expression of a frame: a number that it says, or what a variable of it held."""
    if isinstance(node, ast.Constant):
        return Given(str(node.value), value=int(node.value)) if isinstance(node.value, int) else None
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _SAME:
        node = node.func.value  # `grad` of `grad.contiguous()`
    if not isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)):
        return None
    name, crash = ast.unparse(node), view.crash
    if crash is None:
        return None
    numbers = {
        item.value for item in crash.numbers if _same(item.frame, frame) and plain_expression(item.expression) == name
    }
    if len(numbers) == 1:
        return Given(f"`{name}`", value=numbers.pop())
    held = _held(crash, frame, name)
    if held is None:
        return None
    base, elements = held
    alike = [item for item in crash.arguments if base and item.base == base and item.elements == elements]
    tensor = _nearest(_given_to_operator(view, alike) if frame == next(iter(python_frames(view)), None) else alike)
    known = variable_name(view, base) if is_library_file(frame.file) else None
    return Given(f"`{known or name}`", tensor, elements=elements, base=base)


def _given_to_operator(view: ProcessView, alike: list[Argument]) -> list[Argument]:
    """Of those that the variable of the innermost line may have held: what the operator was given, if one is seen.

    Another variable further out may hold another view of the same memory: `input.unsqueeze(0)` is not `input`.
    """
    operator = find_operator(view)
    among = {id(item.item) for item in (operator.tensors if operator is not None else ()) if item.passed}
    return [item for item in alike if id(item) in among and item.how == "reference"] or alike


def _nearest(alike: Iterable[Argument]) -> Argument | None:
    """The tensor that the variable held, of those with its memory: operators make views, which lie further inside."""
    places: dict[float, list[Argument]] = {}
    for item in alike:
        outer = item.outer_frame if item.outer_frame is not None else -1
        places.setdefault(math.inf if item.how == "held" else outer, []).append(item)
    nearest = places[max(places)] if places else []
    return nearest[0] if len({(item.sizes, item.dtype) for item in nearest}) == 1 else None


def _held(crash: Crash, frame: PythonFrame, name: str) -> tuple[int, int] | None:
    """The start of the storage and the elements of the tensor that the variable held: one with memory, or empty."""
    items = [
        item
        for item in crash.holders
        if _has(frame, item) and plain_expression(item.expression) == name and (item.base or not item.elements)
    ]
    own = [item for item in items if item.own]  # other threads may run the same line
    held = {(item.base, item.elements) for item in own or items}
    return held.pop() if len(held) == 1 else None


def _has(frame: PythonFrame, item: Holder) -> bool:
    """Whether it is a variable of the frame; a module's are noted with the innermost function of it."""
    if item.kind == "global" and frame.function == MODULE:
        return item.frame is not None and item.frame.file == frame.file
    return _same(item.frame, frame)


def _same(one: PythonFrame | None, other: PythonFrame) -> bool:
    return one is not None and (one.file, one.function, one.line) == (other.file, other.function, other.line)
