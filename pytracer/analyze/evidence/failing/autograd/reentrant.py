"""A reentrant checkpoint: it gives no graph where none of its inputs requires a gradient, though its parameters do."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator, Sequence
from typing import TypeGuard

import msgspec

from pytracer._patterns import Pattern
from pytracer._text import list_words
from pytracer.analyze.evidence.failing.autograd.graph_lines import (
    CUTS,
    FREEZES,
    head_of,
    is_below_switch,
    lines_of_functions,
    lines_on_the_way,
    plain_statements,
)
from pytracer.analyze.evidence.failing.expressions import short, source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.slicing.calls import argument_of
from pytracer.analyze.evidence.syntax.bindings import lines_that_bind
from pytracer.analyze.evidence.syntax.calls import called_name, keyword_value, passed_values
from pytracer.analyze.evidence.syntax.frozen_layers import LayerLine, lines_that_freeze_layer
from pytracer.analyze.evidence.syntax.loops import loops_around
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import (
    Function,
    class_around,
    class_named,
    function_named,
    is_parameter,
    own_nodes,
    scope_of,
    spans,
    spans_body,
)

_FIRST_INPUT = {"checkpoint": 1, "checkpoint_sequential": 2}
_OWN_OPTIONS = ("use_reentrant", "preserve_rng_state", "context_fn", "determinism_check", "debug", "early_stop")
_SOME = Pattern(r"([1-9]\d*) of (\d+) require a gradient$")
_NONE = Pattern(r"0 of [1-9]\d* require a gradient$")
_THAWS = Pattern(r"requires_grad_?\s*(?:=|\()\s*\(?(?:mode=|requires_grad=)?True|requires_grad_\(\)")
_LITERAL = Pattern(r"torch\.tensor\([\[\](), \d.+-]*\)")  # of numbers that are written there
_WHOLE = Pattern(r"u?int\d+|bool")
_FUNCTIONS_OF = ("torch", "F", "functional")
_SIZES = ("shape", "dtype", "device", "ndim")
_ROUNDS = Pattern(r"argsort\(|\bround\(|\.indices\b|\.tolist\(|from_numpy\(|argmin\(|\.sign\(")
_DEFINES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_WRAPPERS = ("DistributedDataParallel", "DDP", "DataParallel", "FullyShardedDataParallel", "FSDP")
_HOPS, _NAMED = 8, 2


class _Call(msgspec.Struct, frozen=True):
    """The only one of the program. `how`: as words, with its option."""

    file: str
    tree: ast.Module
    node: ast.Call
    how: str


class _Input(msgspec.Struct, frozen=True):
    """What makes the first input: `layers`, or nothing but what the function is given as its parameter `data`."""

    name: str
    layers: tuple[str, ...]
    data: str | None = None


def reentrant_checkpoint(at: FailingLine, loss: str) -> str | None:
    """That it cuts the graph, where its input is known to require no gradient; that it may, where a line freezes."""
    call = _only_call(at)
    if call is None:
        return None
    if _is_on(at, call) is False or _has_trained_behind(at, call):
        return None
    sure = _sure(at, call, loss)
    freezes = [item for item in plain_statements(at.tree) if FREEZES.search(head_of(item))]
    if sure is not None or not freezes:
        return sure
    by = f"{at.here(freezes[0].lineno)} (`{source(freezes[0])}`)"
    default = "" if keyword_value(call.node, "use_reentrant") is not None else ", the default,"
    return (
        f"{source(call.node.func)}() at {at.in_file(call.file, call.node.lineno)} may cut `{loss}` from its graph: "
        f"with use_reentrant=True{default} it makes none where none of its inputs requires a gradient, "
        f"and {by} freezes what makes them. "
        "Pass use_reentrant=False there, or let its input require a gradient (enable_input_require_grads())."
    )


def _only_call(at: FailingLine) -> _Call | None:
    calls = [
        (file, tree, item)
        for file, tree in at.files.items()
        for item in nodes_of(tree)
        if isinstance(item, ast.Call) and called_name(item) in _FIRST_INPUT
    ]
    if len(calls) != 1:
        return None
    file, tree, node = calls[0]
    told = keyword_value(node, "use_reentrant")
    if isinstance(told, ast.Constant) and not told.value:
        return None
    option = f"{called_name(node)}(use_reentrant=True)" if told is not None else f"{called_name(node)}()"
    return _Call(file, tree, node, option)


def _sure(at: FailingLine, call: _Call, loss: str) -> str | None:
    """Where parameters are trained all the same, nothing else cuts, and the source shows what makes the input."""
    told = keyword_value(call.node, "use_reentrant")
    if told is not None and not (isinstance(told, ast.Constant) and told.value is True):
        return None
    trained = next(((found, name) for name, value in at.values.items()
                    if name.startswith("parameters of ") and (found := _SOME.match(value))), None)  # fmt: skip
    given = _input(call)
    if trained is None or given is None or at.values.get(f"{loss}.requires_grad") != "False":
        return None
    if _cut_otherwise(at, loss) or _is_on(at, call) is None:
        return None
    default = " (use_reentrant=True by default)" if told is None else ""
    why = _frozen_words(at, given) if given.layers else _data_words(at, call, given)
    if why is None:
        return None
    count, name = f"{trained[0][1]} of {trained[0][2]}", trained[1].removeprefix("parameters of ")
    return (
        f"{call.how} at {at.in_file(call.file, call.node.lineno)}{default} cuts the graph, as {why}: its output then "
        f"requires no gradient, although {count} parameters of `{name}` do. Pass use_reentrant=False there, or call "
        f"{given.name}.requires_grad_() before it (enable_input_require_grads())."
    )


def _cut_otherwise(at: FailingLine, loss: str) -> bool:
    """Whether another line that is run on the way can cut the graph, too."""
    if any(is_below_switch(at, depth) for depth in range(len(at.frames))):
        return True
    for tree in at.files.values():
        way = lines_on_the_way(at, loss) if tree is at.tree else lines_of_functions(tree, [at.tree])
        functions = [item for item in nodes_of(tree) if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef))]
        heads = [by for item in functions if item.lineno in way for by in item.decorator_list]
        lines = [item for item in plain_statements(tree) if item.lineno in way]
        texts = [_LITERAL.sub("", text) for text in (*map(head_of, lines), *map(ast.unparse, heads))]
        if any(CUTS.search(text) and not FREEZES.search(text) for text in texts):
            return True
        if any(_ROUNDS.search(text) for text in texts) or any(map(_compares, lines)):
            return True
    return False


def _compares(statement: ast.stmt) -> bool:
    """Whether a value is made by comparing: it has no gradient."""
    given = getattr(statement, "value", None)
    return isinstance(given, ast.expr) and any(isinstance(item, ast.Compare) for item in nodes_of(given))


def _is_on(at: FailingLine, call: _Call) -> bool | None:
    """Whether the `if` around the call is known to be True; None where that is not known."""
    tests = [item.test for item in nodes_of(call.tree)
             if isinstance(item, ast.If) and spans_body(item.body, call.node.lineno)]  # fmt: skip
    tests += [item.test for item in nodes_of(call.tree)
              if isinstance(item, ast.IfExp) and any(part is call.node for part in nodes_of(item.body))]  # fmt: skip
    tests = [part for item in tests for part in (item.values if _is_and(item) else [item])]
    known = [_switch(at, item) for item in tests if source(item) != "self.training"]
    return False if False in known else None if None in known else True


def _is_and(node: ast.expr) -> TypeGuard[ast.BoolOp]:
    return isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And)


def _switch(at: FailingLine, test: ast.expr) -> bool | None:
    """Whether an attribute is True, by all lines that give it: False where none sets it so."""
    name = test.attr if isinstance(test, ast.Attribute) else None
    if name is None:
        return None
    values: list[ast.expr | None] = []
    for tree in at.files.values():
        calls = {called_name(item) for item in nodes_of(tree) if isinstance(item, ast.Call)}
        for item in nodes_of(tree):
            if isinstance(item, ast.keyword) and item.arg == name:
                values.append(item.value)
            elif isinstance(item, (ast.Assign, ast.AnnAssign)) and item.value is not None:
                targets = item.targets if isinstance(item, ast.Assign) else [item.target]
                inside = scope_of(tree, item.lineno)
                if not any(name in (getattr(part, "attr", None), getattr(part, "id", None)) for part in targets):
                    continue
                if not isinstance(inside, ast.FunctionDef) or inside.name == "__init__" or inside.name in calls:
                    values.append(item.value)
            elif isinstance(item, ast.Constant) and isinstance(item.value, str) and _is_option(item.value, name):
                values.append(None)  # of a parser, or by setattr()
    told = {item.value if isinstance(item, ast.Constant) else None for item in values}
    return True if told and told <= {True, False} and True in told else False if told == {False} else None


def _is_option(text: str, name: str) -> bool:
    return text.lstrip("-").replace("-", "_") == name


def _has_trained_behind(at: FailingLine, call: _Call) -> bool:
    """Whether what stands behind the checkpoint may have trained parameters: the output then has a graph all the same.

    In its function, in those of the modules that hold its module, and at the failing line.
    """
    scope = scope_of(call.tree, call.node.lineno)
    instead = [part for item in own_nodes(scope) if isinstance(item, ast.If) and spans_body(item.body, call.node.lineno)
               for branch in item.orelse for part in nodes_of(branch)]  # fmt: skip
    loops = [
        item for item in loops_around(call.tree, call.node.lineno) if any(item is part for part in own_nodes(scope))
    ]
    begin = min([call.node.lineno, *(item.lineno for item in loops)])
    if _trains(at, scope, begin, [*nodes_of(call.node), *instead]):
        return True
    called = {variable(item.func) for item in own_nodes(at.scope) if isinstance(item, ast.Call)}
    trained = [name for name in called if _SOME.match(at.values.get(f"parameters of {name}", ""))]
    owner = class_around(call.tree, scope) if isinstance(scope, ast.FunctionDef) else None
    return len(trained) > 1 or (owner is not None and _is_held_by_trained(at, owner.name))


def _is_held_by_trained(at: FailingLine, owner: str) -> bool:
    seen, waiting = {owner}, [owner]
    while waiting:
        name = waiting.pop()
        for tree in at.files.values():
            for item in nodes_of(tree):
                kept = item.targets[0] if isinstance(item, ast.Assign) else None
                made = item.value if isinstance(item, ast.Assign) else item
                if not isinstance(made, ast.Call) or called_name(made) != name:
                    continue
                held = variable(kept) if kept is not None else None
                inside = class_around(tree, scope_of(tree, made.lineno))
                if _is_wrapped(tree, made, held):
                    return True
                if held is None or not held.startswith("self.") or inside is None:
                    continue
                if any(_calls_trained_behind(at, part, held) for part in inside.body):
                    return True
                if inside.name not in seen:
                    seen.add(inside.name)
                    waiting.append(inside.name)
    return False


def _calls_trained_behind(at: FailingLine, part: ast.stmt, held: str) -> bool:
    if not isinstance(part, ast.FunctionDef):
        return False
    calls = [item for item in own_nodes(part) if isinstance(item, ast.Call) and variable(item.func) == held]
    within = [inner for item in calls for inner in nodes_of(item)]
    return bool(calls) and _trains(at, part, min(item.lineno for item in calls), within)


def _is_wrapped(tree: ast.Module, made: ast.Call, name: str | None) -> bool:
    """Whether a module is given to another one's class: `nn.Sequential(encoder, head)`."""
    return any(
        part is made or (name is not None and variable(part) == name)
        for item in nodes_of(tree)
        if isinstance(item, ast.Call) and (called_name(item) or "")[:1].isupper() and called_name(item) not in _WRAPPERS
        for value in passed_values(item)
        for part in nodes_of(value)
    )


def _trains(at: FailingLine, scope: ast.AST, begin: int, without: Sequence[ast.AST], hops: int = _HOPS) -> bool:
    """Whether a function calls a layer from a line on that is not known to be frozen."""
    left = {id(item) for item in without}
    for item in own_nodes(scope):
        if not isinstance(item, ast.Call) or item.lineno < begin or id(item) in left:
            continue
        name = _of_self(item.func) if not isinstance(item.func, ast.Name) else item.func.id
        if name is None or hasattr(builtins, name) or name in _FIRST_INPUT:
            continue
        own = [part for tree in at.files.values() for part in nodes_of(tree)
               if isinstance(part, _DEFINES) and part.name == name]  # fmt: skip
        if own:
            if hops and any(_trains(at, part, 0, [], hops - 1) for part in own if not isinstance(part, ast.ClassDef)):
                return True
        elif _frozen_by(at, name) is None and not _is_of_buffer(at, item.func):
            return True
    return False


def _is_of_buffer(at: FailingLine, node: ast.expr) -> bool:
    """A method of what a line registers as a buffer, which is not trained."""
    name = node.value.attr if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Attribute) else None
    calls = [item for tree in at.files.values() for item in nodes_of(tree) if isinstance(item, ast.Call)]
    given = [item.args[0] for item in calls if called_name(item) == "register_buffer" and item.args]
    return name is not None and any(isinstance(item, ast.Constant) and item.value == name for item in given)


def _of_self(node: ast.AST) -> str | None:
    """`head` of `self.head`, `self.net.head` and `self.head[0]`."""
    last = None
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        last = node.attr if isinstance(node, ast.Attribute) and last is None else last
        node = node.value
    return last if isinstance(node, ast.Name) and node.id == "self" else None


def _input(call: _Call) -> _Input | None:
    """The first input of the first round; all others are variables, too."""
    first = _FIRST_INPUT[called_name(call.node) or ""]
    own = [item.value for item in call.node.keywords if item.arg not in _OWN_OPTIONS]
    inputs = [item for item in (*call.node.args[first:], *own) if not isinstance(item, ast.Constant)]
    scope = scope_of(call.tree, call.node.lineno)
    names = [variable(item) for item in inputs]
    if not names or names[0] is None or not isinstance(scope, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return None
    loops = [
        item for item in loops_around(call.tree, call.node.lineno) if any(item is part for part in own_nodes(scope))
    ]
    begin = min([call.node.lineno, *(item.lineno for item in loops)])
    if any(name is None or (name != names[0] and not is_parameter(scope, name)) for name in names):
        return None
    found = _made_of(call.tree, scope, ast.Name(names[0]), begin, _HOPS)
    if found is None:
        return None
    layers = tuple(dict.fromkeys(item for item in found if not is_parameter(scope, item)))
    data = [item for item in found if is_parameter(scope, item)]
    if layers:
        return _Input(names[0], layers)
    return _Input(names[0], (), data[0]) if len(set(data)) == 1 else None


def _made_of(tree: ast.Module, scope: Function, node: ast.AST, line: int, hops: int) -> list[str] | None:
    """The layers that are called for a value, and the parameters of the function that it reads."""
    found: list[str] = []
    for part in _leaves(node):
        name = variable(part.func if isinstance(part, ast.Call) else part)
        if name is None or hops == 0:
            return None
        if isinstance(part, ast.Call):
            if is_parameter(scope, name) or _is_function(tree, scope, name):
                return None
            found.append(name)
            continue
        bound = [item for item in lines_that_bind(scope, name) if item[0] < line]
        if not bound and is_parameter(scope, name):
            found.append(name)
            continue
        last = max((item[0] for item in bound), default=0)
        body = scope.body if isinstance(scope.body, list) else []
        made = next((item for item in body if isinstance(item, ast.Assign) and item.lineno == last), None)
        plain = made is not None and all(variable(item) == name for item in made.targets)
        inner = _made_of(tree, scope, made.value, last, hops - 1) if made is not None and plain else None
        if inner is None:
            return None
        found += inner
    return found


def _is_function(tree: ast.Module, scope: Function, name: str) -> bool:
    """Whether what is called is no layer, but a function or class of the file, or a method of the class."""
    owner, plain = class_around(tree, scope), name.removeprefix("self.")
    methods = {item.name for item in owner.body if isinstance(item, ast.FunctionDef)} if owner is not None else set()
    return plain in methods or function_named(tree, plain) is not None or class_named(tree, plain) is not None


def _leaves(node: ast.AST) -> Iterator[ast.AST]:
    """Variables, and calls of layers; torch and the methods of tensors keep a gradient."""
    parts: list[ast.expr] = []
    if isinstance(node, ast.Call):
        parts = [*node.args, *(item.value for item in node.keywords)]
        of = node.func.value if isinstance(node.func, ast.Attribute) else None
        if variable(node.func) is not None:
            yield node
        elif of is None or not (isinstance(of, ast.Name) and of.id in _FUNCTIONS_OF):
            parts.append(of if of is not None else node.func)
    elif isinstance(node, (ast.BinOp, ast.UnaryOp, ast.Subscript)):
        parts = [getattr(node, name) for name in ("left", "right", "operand", "value") if hasattr(node, name)]
    elif isinstance(node, ast.Attribute) and node.attr in _SIZES:
        return
    elif not isinstance(node, ast.Constant):
        yield node
    for part in parts:
        yield from _leaves(part)


def _frozen_words(at: FailingLine, given: _Input) -> str | None:
    """`` the frozen `self.embeddings` makes its input ``."""
    lines = [_frozen_by(at, layer.removeprefix("self.")) for layer in given.layers]
    if len(lines) > _NAMED or any(item is None for item in lines):
        return None
    places = {(file, line.line): line.text for item in lines for file, line in item or ()}
    by = (
        "".join(f" ({at.in_file(*place)}: `{short(text)}`)" for place, text in places.items())
        if len(places) == 1
        else ""
    )
    make = "makes" if len(lines) == 1 else "make"
    return f"the frozen {list_words([f'`{name}`' for name in given.layers])} {make} its input{by}"


def _frozen_by(at: FailingLine, layer: str) -> list[tuple[str, LayerLine]] | None:
    """The lines that freeze a layer that is frozen; None of one that is not known to be."""
    lines = [
        (file, line) for file, tree in at.files.items() for line in lines_that_freeze_layer(tree, [layer], [layer])
    ]
    recorded = [value.split(", ") for name, value in at.values.items() if name.startswith("frozen layers of ")]
    whole = _NONE.match(at.values.get(f"parameters of {layer}", "")) is not None
    if whole or recorded:
        is_frozen = whole or any(path.rpartition(".")[2] == layer for paths in recorded for path in paths)
        return lines if is_frozen else None
    return lines if lines and all(_is_plain(at.files[file], found.line) for file, found in lines) else None


def _is_plain(tree: ast.Module, line: int) -> bool:
    """Whether no `if` decides on a line that freezes, and nothing of the file thaws."""
    inside = any(isinstance(item, ast.If) and spans(item, line) for item in own_nodes(scope_of(tree, line)))
    return not inside and not any(_THAWS.search(head_of(item)) for item in plain_statements(tree))


def _data_words(at: FailingLine, call: _Call, given: _Input) -> str | None:
    """What the failing function itself gives the module whose forward() it is, and that is no result of a layer."""
    function = scope_of(call.tree, call.node.lineno)
    owner = class_around(call.tree, function)
    spot = at.slice.spot(0)
    if owner is None or spot is None or given.data is None or not isinstance(function, ast.FunctionDef):
        return None
    for item in own_nodes(at.scope):
        name = variable(item.func) if isinstance(item, ast.Call) else None
        if not isinstance(item, ast.Call) or name is None or f"parameters of {name}" not in at.values:
            continue
        made = at.slice.class_of(item.func, spot)
        value = argument_of(item, function, given.data) if made is not None and made[0] is owner else None
        root = _root(value) if value is not None else None
        if root is not None and _is_data(at, root):
            return f"its input `{given.name}` is data (`{root}`)"
    return None


def _root(node: ast.AST) -> str | None:
    """`x` of `x[:4].to(device)`."""
    while isinstance(node, (ast.Subscript, ast.Call)):
        of = node.func if isinstance(node, ast.Call) else node
        if not isinstance(of, (ast.Attribute, ast.Subscript)):
            return None
        node = of.value
    return variable(node)


def _is_data(at: FailingLine, name: str) -> bool:
    shape = at.shape(name)
    return at.values.get(f"{name}.requires_grad") == "False" or (
        shape is not None and _WHOLE.match(shape.dtype) is not None
    )
