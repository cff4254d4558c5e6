"""An optimizer that asks for parameters that are not frozen, of a model whose parameters all are.

By the line that freezes them, and by what else is at hand that has layers of its own: often the optimizer was given the
backbone, and the new head is in another module.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import msgspec

from pytracer._patterns import Pattern
from pytracer._text import list_words
from pytracer.analyze.evidence.failing.data.consumed import reads_between
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.slicing.callers import calls_named
from pytracer.analyze.evidence.slicing.calls import argument_of, method_of, same_object
from pytracer.analyze.evidence.slicing.spots import Made, Spot
from pytracer.analyze.evidence.syntax.calls import argument_at, called_name
from pytracer.analyze.evidence.syntax.names import elements, variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import (
    class_around,
    default_of,
    own_nodes,
    parameters,
    scope_of,
    spans_body,
)
from pytracer.analyze.naming import LineWords

_EMPTY = "got an empty parameter list"
_LISTS = ("parameters", "named_parameters")
_CHOSEN = (ast.ListComp, ast.GeneratorExp)
_LAYERS = Pattern(
    r"\b(?:Linear|Bilinear|Conv\w*\d?d|Embedding\w*|LSTM|GRU|RNN|(?:Batch|Layer|Group|Instance|RMS)Norm\w*|Parameter"
    r"|MultiheadAttention|Transformer\w*|PReLU)\("
)
_MOST = 2
_HOPS = 6
_LONGEST = 80


class FrozenModel(msgspec.Struct, frozen=True):
    """`freezes`: the line that does, with its text. `others`: modules with layers of their own, each with its line."""

    name: str
    asks: str
    chosen: LineWords
    freezes: LineWords | None
    others: tuple[tuple[str, str], ...]


class _Freeze(msgspec.Struct, frozen=True):
    """`owner`: the expression of the module, at `spot`; `node`: the line that the reader should look at.

    `sure`: it comes to that line, and sets False.
    """

    owner: ast.expr
    spot: Spot
    node: ast.AST
    sure: bool


def frozen_model(at: FailingLine) -> FrozenModel | None:
    """None where the list asks for anything else, or nothing is known of the model."""
    found = _choice(at) if _EMPTY in at.message else None
    if found is None:
        return None
    chosen, asks, model, spot = found
    base = _base(at, at.slice.made(model, spot, calls=True))
    freezes = [*_freezes(at)]
    same = [item for item in freezes if _is_of(at, item, base)]
    others = _others(at, model, base, freezes)
    by = same[0] if len(same) == 1 and same[0].sure else None
    if by is None and (not others or (spot.scope is not at.scope and not isinstance(chosen, ast.ListComp))):
        return None  # a filter() that came from elsewhere may have been read before
    line = at.place(by.spot, getattr(by.node, "lineno", by.spot.line)).quoted(source(by.node)) if by else None
    return FrozenModel(source(model), asks, at.place(spot, getattr(chosen, "lineno", spot.line)), line, others)


def frozen_words(found: FrozenModel) -> str:
    """What freezes it, and what to give the optimizer in its place."""
    by = f": {found.freezes} freezes all of them" if found.freezes is not None else ": all are frozen, or it has none"
    begin = f"No parameter of `{found.name}` passes `{found.asks}` at {found.chosen}{by}"
    if not found.others:
        return (
            f"{begin}. Leave those that shall be trained with requires_grad=True, or add the new layers after the "
            "others are frozen."
        )
    named = list_words([f"`{name}`{made}" for name, made in found.others])
    has, them = ("has", "it is") if len(found.others) == 1 else ("have", "they are")
    give = " and ".join(f"`{name}.parameters()`" for name, _ in found.others)
    return (
        f"{begin}, and {named} {has} layers of {'its' if has == 'has' else 'their'} own. If {them} to be trained, give "
        f"the optimizer {give}; if `{found.name}` is, leave its last layers with requires_grad=True."
    )


def frozen_subject(at: FailingLine) -> str | None:
    """For the headline."""
    found = frozen_model(at)
    if found is None:
        return None
    has = f"all parameters of `{found.name}` are frozen by {found.freezes}"
    if found.freezes is None or len(found.freezes) > _LONGEST:
        has = f"no parameter of `{found.name}` passes `{found.asks}`"
    own = found.others[0][0] if len(found.others) == 1 else None
    return f"{has}, and `{own}` has layers of its own" if own is not None else has


def _choice(at: FailingLine) -> tuple[ast.AST, str, ast.expr, Spot] | None:
    """`[p for p in net.parameters() if p.requires_grad]`: itself, its test, the model and the place."""
    call, spot = at.only(ast.Call), at.slice.spot(0)
    given = argument_at(call, 0, "params") if call is not None else None
    if given is None or spot is None:
        return None
    made = at.slice.made(given, spot, calls=False)
    node, place = made.node, made.spot
    if made.through and not isinstance(node, ast.ListComp) and _is_read(given, spot, node):
        return None
    if isinstance(node, ast.Call) and called_name(node) == "list" and node.args:
        node = node.args[0]
    if isinstance(node, _CHOSEN) and len(node.generators) == 1 and len(node.generators[0].ifs) == 1:
        test, drawn = node.generators[0].ifs[0], node.generators[0].iter
    elif isinstance(node, ast.Call) and called_name(node) == "filter" and isinstance(node.args[0], ast.Lambda):
        test, drawn = node.args[0].body, node.args[1]
    else:
        return None
    asks = isinstance(test, ast.Attribute) and test.attr == "requires_grad" and isinstance(test.value, ast.Name)
    owner = drawn.func.value if isinstance(drawn, ast.Call) and isinstance(drawn.func, ast.Attribute) else None
    if not asks or owner is None or not isinstance(drawn, ast.Call) or called_name(drawn) not in _LISTS:
        return None
    return node, source(test), owner, place


def _is_read(given: ast.expr, spot: Spot, made: ast.AST) -> bool:
    """Whether a line between may have used it up."""
    name = variable(given)
    return name is None or bool(reads_between(spot.scope, name, getattr(made, "lineno", spot.line), spot.line))


def _base(at: FailingLine, made: Made) -> Made:
    """The call that made a module: of `Net().to(device)` it is `Net()`."""
    for _ in range(_HOPS):
        inner = same_object(made.node)
        if inner is None and isinstance(made.node, ast.Call) and called_name(made.node) == "requires_grad_":
            inner = made.node.func.value if isinstance(made.node.func, ast.Attribute) else None
        if inner is None:
            break
        made = at.slice.made(inner, made.spot, calls=True)
    return made


def _freezes(at: FailingLine) -> Iterator[_Freeze]:
    """All lines that freeze a whole module, each with the expression of that, as the caller has it."""
    for file, tree in at.files.items():
        for item in nodes_of(tree):
            found = _frozen(item)
            if found is None:
                continue
            target, value = found
            scope = scope_of(tree, getattr(item, "lineno", 0))
            owner = _owner(scope, target, getattr(item, "lineno", 0))
            if owner is not None:
                yield from _as_called(at, _spot(at, file, tree, item), owner, value, item)


def _frozen(item: ast.AST) -> tuple[ast.expr, ast.expr] | None:
    """What is frozen, and the value that does it, which may be an argument."""
    if isinstance(item, ast.Call) and called_name(item) == "requires_grad_" and isinstance(item.func, ast.Attribute):
        value = argument_at(item, 0, "requires_grad")
        return (item.func.value, value) if value is not None else None
    if isinstance(item, ast.Assign) and len(item.targets) == 1 and isinstance(item.targets[0], ast.Attribute):
        target = item.targets[0]
        return (target.value, item.value) if target.attr == "requires_grad" else None
    return None


def _owner(scope: ast.AST, target: ast.expr, line: int) -> ast.expr | None:
    """The module through whose parameters a loop goes, all of them; the target itself outside of a loop."""
    for loop in own_nodes(scope):
        if not isinstance(loop, ast.For) or not spans_body(loop.body, line):
            continue
        if variable(target) not in map(variable, elements(loop.target)):
            continue
        over = loop.iter
        partly = any(isinstance(item, (ast.If, ast.Continue, ast.Break)) for item in own_nodes(loop))
        if partly or not isinstance(over, ast.Call) or not isinstance(over.func, ast.Attribute):
            return None
        return over.func.value if called_name(over) in _LISTS else None
    return target


def _as_called(at: FailingLine, spot: Spot, owner: ast.expr, value: ast.expr, item: ast.AST) -> Iterator[_Freeze]:
    """The line itself, or those that call its function, where the module or the value is an argument."""
    scope = spot.scope
    names = parameters(scope) if isinstance(scope, ast.FunctionDef) else []
    given = {name for node in (owner, value) if (name := variable(node)) in names and name is not None}
    if not isinstance(scope, ast.FunctionDef) or not given:
        yield from _freeze(at, owner, spot, item, value)
        return
    for file, tree, call in calls_named(at.files, scope.name):
        place = _spot(at, file, tree, call)
        passed: ast.expr | None = value
        if variable(value) in given:
            passed = argument_of(call, scope, variable(value) or "") or default_of(scope, variable(value) or "")
        module: ast.expr | None = owner
        if variable(owner) == "self" and isinstance(call.func, ast.Attribute):
            module = call.func.value
        elif variable(owner) in given:
            module = argument_of(call, scope, variable(owner) or "")
        if module is not None:
            yield from _freeze(at, module, place, call, passed)


def _freeze(at: FailingLine, owner: ast.expr, spot: Spot, node: ast.AST, value: ast.expr | None) -> Iterator[_Freeze]:
    """None where it sets True, or was not reached when the program failed."""
    if isinstance(value, ast.Constant) and value.value is not False:
        return
    line = getattr(node, "lineno", spot.line)
    if any(spot.is_of(frame) and frame.line is not None and frame.line < line for frame in at.frames):
        return
    asked = any(isinstance(item, ast.If) and spans_body([*item.body, *item.orelse], line)
                for item in own_nodes(spot.scope))  # fmt: skip
    yield _Freeze(owner, spot, node, sure=isinstance(value, ast.Constant) and not asked)


def _spot(at: FailingLine, file: str, tree: ast.Module, node: ast.AST) -> Spot:
    line = getattr(node, "lineno", 0)
    found = Spot(file, tree, scope_of(tree, line), line)
    depth = next((n for n, frame in enumerate(at.frames) if found.is_of(frame)), None)
    return msgspec.structs.replace(found, depth=depth)


def _is_of(at: FailingLine, freeze: _Freeze, base: Made) -> bool:
    return _base(at, at.slice.made(freeze.owner, freeze.spot, calls=True)).node is base.node


def _others(at: FailingLine, model: ast.expr, base: Made, freezes: list[_Freeze]) -> tuple[tuple[str, str], ...]:
    """Modules that the line could have named, which have layers and are not frozen; nothing where they are many."""
    found: dict[int, tuple[str, str]] = {}
    containing: set[int] = set()
    for name in _names(at, model):
        made = at.made(name)
        other = _base(at, made) if made is not None else None
        call = other.node if other is not None else None
        if other is None or not isinstance(call, ast.Call) or call is base.node or not _has_layers(at, other):
            continue
        if any(_is_of(at, item, other) for item in freezes):
            continue
        found[id(call)] = (name, f" ({at.shown(other)})")
        passed = (_base(at, at.slice.made(item, other.spot, calls=True)).node for item in call.args)
        if any(item is base.node for item in passed):
            containing.add(id(call))
    kept = [item for key, item in found.items() if key in containing] or [*found.values()]
    return tuple(kept) if len(kept) <= _MOST else ()


def _names(at: FailingLine, model: ast.expr) -> list[str]:
    """Variables of the function, and attributes of the object, where the model is one."""
    names: dict[str, None] = {}
    for item in own_nodes(at.scope):
        if isinstance(item, ast.Assign) and item.lineno < at.line:
            names |= dict.fromkeys(name for part in item.targets for one in elements(part) if (name := variable(one)))
    names |= dict.fromkeys(name for name in parameters(at.scope) if name != "self")
    owner = class_around(at.tree, at.scope) if (variable(model) or "").startswith("self.") else None
    for item in nodes_of(owner) if owner is not None else ():
        if isinstance(item, ast.Assign):
            names |= dict.fromkeys(name for part in item.targets if (name := variable(part) or "").startswith("self."))
    return [name for name in names if name != variable(model)]


def _has_layers(at: FailingLine, made: Made) -> bool:
    """`nn.Linear(4, 2)`, or a class of the program whose __init__() makes one."""
    if not isinstance(made.node, ast.Call):
        return False
    defined = at.slice.defined(made.node.func, made.spot)
    if defined is not None:
        method, is_module = method_of(defined[0], ("__init__",)), method_of(defined[0], ("forward",)) is not None
        return is_module and method is not None and _LAYERS.search(ast.unparse(method)) is not None
    return _LAYERS.search(ast.unparse(made.node)) is not None
