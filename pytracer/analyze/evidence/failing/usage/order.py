"""Calls that came in another order than torch needs: what happened before the failing line, or should have."""

from __future__ import annotations

import ast
import re

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.autograd.new_leaves import new_leaf
from pytracer.analyze.evidence.failing.data.consumed import reads_between
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.slicing.callers import only_function
from pytracer.analyze.evidence.syntax.bindings import lines_that_bind
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.loops import PLAIN_LOOPS, loops_around
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import own_nodes

_EMPTY = "got an empty parameter list"
_UNSCALED = "unscale_() has already been called"
_NO_LEAF = "can't optimize a non-leaf Tensor"
_FLIPS = Pattern(r"::-1|\b(?:np|numpy)\.(?:flip|fliplr|flipud|rot90)\(")
_RECOMPUTED = Pattern(r"different number of tensors was saved|Recomputed values .* different metadata")
_NO_CHECKS = "No inf checks were recorded for this optimizer"
_TOO_EARLY = Pattern(r"cannot assign (?:module|parameters?|buffers?) before Module\.__init__\(\) call")
_NO_GRAPH = Pattern(r"\b(?:no_grad|inference_mode)\b|set_grad_enabled\(False")
_LISTED = ("parameters", "named_parameters")
_SIZES = Pattern(r"features|channels|dim|size|num|width|shape")
_MOVES = ("to", "cuda", "cpu", "float", "double", "half", "type")


def called_in_order(at: FailingLine) -> str | None:
    """The first that fits the message."""
    if _EMPTY in at.message:
        return _nothing_passes(at)
    if _UNSCALED in at.message:
        return _without_update(at)
    if _NO_LEAF in at.message:
        return _result(at)
    if _NO_CHECKS in at.message:
        return _without_gradients(at)
    if _TOO_EARLY.search(at.message):
        return _before_init(at)
    if "appear in more than one parameter group" in at.message:
        return _in_two_groups(at)
    if "strides" in at.message and "negative" in at.message:
        return _flipped(at)
    return _changed_by_itself(at) if _RECOMPUTED.search(at.message) else None


def order_subject(at: FailingLine) -> str | None:
    """What the headline says of a GradScaler's optimizer."""
    if _NO_CHECKS not in at.message:
        return None
    optimizer = _optimizer(at)
    if optimizer is None:
        return None
    leaf = new_leaf(at)
    why = f"; {leaf.place} makes a new tensor, where backward() ends" if leaf is not None else ""
    return f"no parameter of `{optimizer[0]}`{optimizer[1]} has a gradient{why}"


def _optimizer(at: FailingLine) -> tuple[str, str] | None:
    """What GradScaler.step() is given, and what made it."""
    call = at.only(ast.Call)
    given = call.args[0] if call is not None and call.args and called_name(call) == "step" else None
    if given is None:
        return None
    made = at.made(given, calls=False)
    return (
        source(given),
        f" ({at.place(made.spot, made.line)}: `{source(made.node)}`)"
        if made is not None and made.line != at.line
        else "",
    )


def _without_gradients(at: FailingLine) -> str | None:
    """GradScaler.step(optimizer), which looks at the gradients that there are."""
    optimizer = _optimizer(at)
    if optimizer is None:
        return None
    leaf = new_leaf(at)
    if leaf is not None:
        return f"No parameter of `{optimizer[0]}` has a gradient: {leaf.advice}"
    other = _another_model(at)
    if other is not None:
        return f"No parameter of `{optimizer[0]}`{optimizer[1]} has a gradient: {other}"
    cuts = {
        f"{at.in_file(file, item.lineno)} (`with {source(item.items[0].context_expr)}`)"
        for file, tree in at.files.items()
        for method in nodes_of(tree)
        if isinstance(method, ast.FunctionDef) and method.name in ("forward", "__call__")
        for item in own_nodes(method)
        if isinstance(item, ast.With) and _NO_GRAPH.search(ast.unparse(item.items[0].context_expr))
    }
    what = f"; {cuts.pop()} in forward() cuts it off, if that is on the way" if len(cuts) == 1 else ""
    return (
        f"No parameter of `{optimizer[0]}`{optimizer[1]} has a gradient: the loss does not depend on them (frozen, "
        f"detach(), no_grad(){what}), they are another model's, or backward() did not run."
    )


def _another_model(at: FailingLine) -> str | None:
    """`net = grow(net)` behind the line that gave the optimizer the parameters of `net`."""
    call = at.only(ast.Call)
    made = at.made(call.args[0]) if call is not None and call.args else None
    owners = [
        item.func.value
        for item in (nodes_of(made.node) if made is not None else ())
        if isinstance(item, ast.Call) and isinstance(item.func, ast.Attribute) and item.func.attr in _LISTED
    ]
    name = variable(owners[0]) if len(owners) == 1 else None
    if made is None or name is None:
        return None
    later = [
        (line, value)
        for line, value in lines_that_bind(made.spot.scope, name)
        if made.spot.scope is not at.scope or line < at.line
        if line > made.line and isinstance(value, ast.Call)
    ]
    if len(later) != 1 or not _makes_anew(at, later[0][1], name):
        return None
    line, value = later[0]
    return (
        f"{at.place(made.spot, line)} (`{name} = {source(value)}`) assigns `{name}` after {at.here(made.line)} gave "
        "the optimizer its parameters, so that it still has those of the model before. Make the optimizer again there "
        "(and the schedule)."
    )


def _makes_anew(at: FailingLine, value: ast.Call, name: str) -> bool:
    """Whether a call gives other parameters: a wrapper, and a helper that returns what it is given, keep these."""
    if called_name(value) == "deepcopy":
        return True
    if source(value.func).startswith("self."):
        return False  # it may read the model there
    if name not in {variable(item) for item in nodes_of(value) if isinstance(item, (ast.Name, ast.Attribute))}:
        return True
    own = only_function(at.files, called_name(value) or "")
    if own is None:
        return False
    function = own[1]
    given = {item.arg for item in function.args.args}
    made = [_returned(function, item.value) for item in own_nodes(function) if isinstance(item, ast.Return)]
    return bool(made) and all(isinstance(item, ast.Call) and not given & _held_names(item) for item in made)


def _held_names(call: ast.Call) -> set[str]:
    """What a call is given, but for sizes: `net` of `Wrap(net)`, not of `nn.Linear(net.in_features, 2)`."""
    sizes = {
        id(item.value)
        for item in nodes_of(call)
        if isinstance(item, ast.Attribute) and _SIZES.search(item.attr) is not None
    }
    return {item.id for item in nodes_of(call) if isinstance(item, ast.Name) and id(item) not in sizes}


def _returned(function: ast.FunctionDef | ast.AsyncFunctionDef, value: ast.AST | None) -> ast.AST | None:
    """What a returned name was set to, where one line sets it."""
    if not isinstance(value, ast.Name):
        return value
    bound = [item for _, item in lines_that_bind(function, value.id)]
    return bound[0] if len(bound) == 1 and value.id not in {item.arg for item in function.args.args} else None


def _before_init(at: FailingLine) -> str | None:
    """An attribute of a module that is set above `super().__init__()`, or without it."""
    if not isinstance(at.scope, ast.FunctionDef) or at.scope.name != "__init__":
        return None
    begins = [
        item.lineno for item in own_nodes(at.scope) if isinstance(item, ast.Call) and called_name(item) == "__init__"
    ]
    text = source(at.statement) if at.statement is not None else f"line {at.line}"
    later = [line for line in begins if line > at.line]
    if later:
        return (
            f"`super().__init__()` comes at {at.here(later[0])}, after line {at.line} (`{text}`): call it first in "
            "__init__(), before any module, parameter or buffer is assigned."
        )
    if begins:
        return None
    return (
        f"__init__() ({at.here(at.scope.lineno)}) does not call `super().__init__()`: make that its first line, before "
        f"line {at.line} (`{text}`)."
    )


def _nothing_passes(at: FailingLine) -> str | None:
    """One that nothing passes."""
    call = at.only(ast.Call)
    name = variable(call.args[0]) if call is not None and call.args else None
    bound = [item for item in lines_that_bind(at.scope, name) if item[0] < at.line] if name is not None else []
    if len(bound) != 1 or name is None:
        return None
    line, value = bound[0]
    once = isinstance(value, ast.GeneratorExp) or (
        isinstance(value, ast.Call)
        and called_name(value) in ("filter", "map", "zip", "parameters", "named_parameters", "chain")
    )
    if not once or value is None:
        return None
    if reads_between(at.scope, name, line, at.line):
        return None  # it may be what read it to its end
    text = ast.unparse(value)
    if "requires_grad" not in text or re.search(r"\bnot [\w.]*requires_grad|requires_grad and\b|\band\b", text):
        return None
    frozen = _only_freeze(at)
    by = f" ({frozen} freezes some)" if frozen else ""
    return (
        f"No parameter passes `requires_grad` at {at.here(line)} (`{source(value)}`){by}: leave those that shall be "
        "trained with requires_grad=True, or add the new layers after the others are frozen."
    )


def _only_freeze(at: FailingLine) -> str:
    found = [
        item.lineno
        for item in nodes_of(at.tree)
        if isinstance(item, (ast.Assign, ast.Expr)) and re.search(r"requires_grad(?:_\(| = )False", ast.unparse(item))
    ]
    return f"{at.here(found[0])}" if len(found) == 1 else ""


def _without_update(at: FailingLine) -> str | None:
    """A round of the loop that leaves between unscale_() and update()."""
    call = at.only(ast.Call)
    scaler = source(call.func.value) if call is not None and isinstance(call.func, ast.Attribute) else "scaler"
    loops = loops_around(at.tree, at.line, PLAIN_LOOPS)
    if not loops:
        return None
    inside = [item for item in nodes_of(loops[-1]) if isinstance(item, (ast.Call, ast.Continue))]
    updates = [
        item.lineno
        for item in inside
        if isinstance(item, ast.Call) and called_name(item) == "update" and source(item.func).startswith(f"{scaler}.")
    ]
    last = max(updates, default=None)
    left = [item.lineno for item in inside if isinstance(item, ast.Continue) and at.line < item.lineno]
    left = [line for line in left if last is None or line < last]
    left = [line for line in left if not any(line - 3 < update < line for update in updates)]
    if last is not None and len(left) == 1:
        return (
            f"`continue` at {at.here(left[0])} left a round before {scaler}.update(): {at.here(last)} "
            "was not reached after "
            f"unscale_() at line {at.line}, which the next round calls again. Call {scaler}.update() before that "
            "`continue`, too."
        )
    elsewhere = any(
        isinstance(item, ast.Call) and called_name(item) == "update" and source(item.func).startswith(f"{scaler}.")
        for tree in at.files.values() for item in nodes_of(tree)
    )  # fmt: skip
    if last is None and not elsewhere:
        return f"No line of this loop calls {scaler}.update(): call it once behind {scaler}.step(optimizer)."
    return None


def _result(at: FailingLine) -> str | None:
    """A tensor that an operation gave, in place of the one that requires a gradient."""
    call = at.only(ast.Call)
    first = call.args[0] if call is not None and call.args else None
    items = first.elts if isinstance(first, (ast.List, ast.Tuple)) else [first] if first is not None else []
    for item in items:
        found = at.made(item)
        node = found.node if found is not None else None
        if found is None or node is None:
            continue
        where = f"`{source(item)}` ({at.shown(found)})"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _MOVES:
            return (
                f"{where} is the copy that .{node.func.attr}() made of the tensor with requires_grad: make it there "
                "with device= and dtype= at once, or call requires_grad_() behind it."
            )
        if isinstance(node, ast.BinOp):
            return (
                f"{where} is the result of an operation, and an optimizer takes only tensors that were made directly. "
                "Compute it first without requires_grad, then call `.requires_grad_()`."
            )
    return None


def _in_two_groups(at: FailingLine) -> str | None:
    """`model.parameters()` has those of `model.head`, too."""
    call = at.only(ast.Call)
    found = at.made(call.args[0]) if call is not None and call.args else None
    groups = found.node if found is not None else call.args[0] if call is not None and call.args else None
    owners = [
        (source(value.func.value), value.lineno)
        for item in nodes_of(groups or ast.Pass())
        if isinstance(item, ast.Dict)
        for key, value in zip(item.keys, item.values, strict=True)
        if isinstance(key, ast.Constant) and key.value == "params"
        if isinstance(value, ast.Call) and called_name(value) == "parameters" and isinstance(value.func, ast.Attribute)
    ]
    pairs = [(one, other) for one in owners for other in owners if other[0].startswith(f"{one[0]}.") or
             (one[0] == other[0] and one[1] < other[1])]  # fmt: skip
    if len(pairs) != 1:
        return None
    (outer, line), (inner, other) = pairs[0]
    return (
        f"`{outer}.parameters()` ({at.here(line)}) has the parameters of `{inner}` ({at.here(other)}), "
        "too. Leave them out "
        "of the "
        f"first group: `ids = {{id(p) for p in {inner}.parameters()}}`, then `[p for p in {outer}.parameters() if "
        "id(p) not in ids]`."
    )


def _flipped(at: FailingLine) -> str | None:
    """An array that is read backwards."""
    found = {
        item.lineno: source(item)
        for item in nodes_of(at.tree)
        if isinstance(item, (ast.Assign, ast.AnnAssign, ast.Return)) and _FLIPS.search(ast.unparse(item))
        if not re.search(r"copy\(|ascontiguousarray\(|np\.array\(", ast.unparse(item))
    }
    if len(found) != 1:
        return None
    line, text = next(iter(found.items()))
    return (
        f"In this file {at.here(line)} (`{text}`) can give the view that is read backwards, and "
        "from_numpy() takes none: "
        "end it with `.copy()`, or use torch.flip() on the tensor."
    )


def _changed_by_itself(at: FailingLine) -> str | None:
    """A checkpointed forward() that sets an attribute that it branches on."""
    found = []
    for owner in nodes_of(at.tree):
        for method in owner.body if isinstance(owner, ast.ClassDef) else ():
            if (
                not isinstance(owner, ast.ClassDef)
                or not isinstance(method, ast.FunctionDef)
                or method.name != "forward"
            ):
                continue
            sets = {
                name: item.lineno
                for item in own_nodes(method)
                if isinstance(item, (ast.Assign, ast.AugAssign))
                for target in (item.targets if isinstance(item, ast.Assign) else [item.target])
                if (name := variable(target) or "").startswith("self.")
            }
            for item in own_nodes(method):
                if isinstance(item, (ast.If, ast.IfExp)):
                    read = {variable(part) for part in nodes_of(item.test)}
                    found += [(owner, method, item, name, line) for name, line in sets.items() if name in read]
    if len(found) != 1:
        return None
    owner, method, test, name, line = found[0]
    return (
        f"{owner.name}.{method.name}() branches on `{name}` ({at.here(test.lineno)}) and sets it itself "
        f"({at.here(line)}): if "
        "it is checkpointed, it can go another way when it is run again in backward. Set it outside of the "
        "checkpointed part, such as after the step."
    )
