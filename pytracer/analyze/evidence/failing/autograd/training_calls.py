"""Calls of torch's training interface that were given something else: a method for its result, a number for a loss."""

from __future__ import annotations

import ast

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.autograd.graph_lines import lines_on_the_way
from pytracer.analyze.evidence.failing.expressions import parts, source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.syntax.calls import called_name, passed_values
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import class_around, own_nodes, scope_of

_NUMBER = Pattern(r"'(float|int)' object has no attribute 'backward'")
_METHOD = Pattern(r"'(?:method|builtin_function_or_method)' object is not (?:iterable|subscriptable)")
_NO_STATE = Pattern(r"Expected state_dict to be dict-like, got <class '([\w.]+)'>")
_EXISTS = Pattern(r"attribute '(\w+)' already exists")
_CLOSURE = Pattern(r"step\(\) missing 1 required positional argument: 'closure'")
_OF_VMAP = Pattern(r"vmap: It looks like you're (?:either \(1\) )?(?:calling \.item|attempting to use a Tensor)")
_TAKES = Pattern(r"\.item\(|\.tolist\(|\bfloat\(|\.numpy\(")
_STATEMENTS = (ast.Assign, ast.AugAssign, ast.Return)
_NOTED = Pattern(r"log|print|append|write|add_scalar")


def training_call(at: FailingLine) -> str | None:
    """The first that fits the message."""
    if at.kind == "AttributeError" and _NUMBER.search(at.message):
        return _number(at)
    if at.kind == "TypeError" and _METHOD.search(at.message):
        return _method(at)
    state = _NO_STATE.search(at.message)
    if state is not None:
        return _no_state(at, state[1])
    exists = _EXISTS.search(at.message)
    if exists is not None:
        return _twice(at, exists[1])
    if at.kind == "TypeError" and _CLOSURE.search(at.message):
        return _closure(at)
    return _in_vmap(at) if _OF_VMAP.search(at.message) else None


def _number(at: FailingLine) -> str | None:
    """`loss.backward()` of a float: what took the number out of its tensor."""
    call = at.only(ast.Call)
    loss = call.func.value if call is not None and isinstance(call.func, ast.Attribute) else at.node
    loss = loss.value if isinstance(loss, ast.Attribute) and loss.attr == "backward" else loss
    name = variable(loss) if loss is not None else None
    if name is None:
        return None
    way = lines_on_the_way(at, name)
    begun = _never_added(at, name, way) if at.value(name) in ("0", "0.0") else None
    if begun is not None:
        return begun
    found = {
        item.lineno: source(item)
        for item in nodes_of(at.tree)
        if isinstance(item, _STATEMENTS) and item.lineno in way
        if item.value is not None and _TAKES.search(ast.unparse(item.value))
    }
    taken = ""
    if len(found) == 1:
        line, text = next(iter(found.items()))
        taken = f": {at.here(line)} (`{text}`) can have taken it out of its tensor. Keep the tensor there"
    rest = "use .item() only for what is printed or added up" if taken else "keep the tensor on the way to it"
    return f"`{name}`{at.came(name)} is a plain number, which has no graph{taken}{', and ' if taken else ': '}{rest}."


def _never_added(at: FailingLine, name: str, way: set[int]) -> str | None:
    """`loss = 0`, to which a loop or an `if` adds: nothing was added."""
    statements = [item for item in nodes_of(at.tree) if isinstance(item, _STATEMENTS) and item.lineno in way]
    begins = [
        item for item in statements if isinstance(item, ast.Assign) and _is_zero(item.value) and len(item.targets) == 1
    ]
    if len(begins) != 1 or any(_TAKES.search(ast.unparse(item)) for item in statements):  # it may have added a number
        return None
    begin = begins[0]
    target, scope = ast.unparse(begin.targets[0]), scope_of(at.tree, begin.lineno)
    adds = [part.lineno for part in own_nodes(scope) if isinstance(part, ast.AugAssign) and _adds(part, target)]
    if len(adds) != 1 or at.value(name) != ast.unparse(begin.value):
        return None
    return (
        f"`{name}`{at.came(name)} is still the 0 of {at.here(begin.lineno)} (`{source(begin)}`), as "
        f"{at.here(adds[0])} added nothing to it: no tensor, so no graph. Skip backward() and step() in such a "
        "round, or see why that line did not run."
    )


def _is_zero(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) in (int, float) and node.value == 0


def _adds(item: ast.AugAssign, target: str) -> bool:
    return isinstance(item.op, ast.Add) and ast.unparse(item.target) == target


def _method(at: FailingLine) -> str | None:
    """`model.parameters` without its parentheses: the only attribute that is passed on as it is."""
    if at.node is None:
        return None
    whole = [part for item in parts(at.node) for part in nodes_of(item)]
    called = {id(item.func) for item in whole if isinstance(item, ast.Call)}
    call = at.only(ast.Call)
    if not at.own:
        found = passed_values(call) if call is not None else []
    else:
        taken = [item.value for item in whole if isinstance(item, ast.Subscript)]
        rounds = [item.iter for item in [*whole, at.statement] if isinstance(item, (ast.For, ast.comprehension))]
        found = [at.node] if isinstance(at.node, ast.Attribute) else [*rounds, *taken]
    held = [
        item for item in found
        if isinstance(item, ast.Attribute) and id(item) not in called
        and isinstance(item.ctx, ast.Load) and ast.unparse(item) not in at.values
    ]  # fmt: skip
    others = [item for item in found if isinstance(item, ast.Name) and item.id not in at.values]
    if len(held) != 1 or others:  # one of those may be it
        return None
    text = source(held[0])
    return f"`{text}` at line {at.line} is the method itself, and not what it returns: call it, `{text}()`."


def _no_state(at: FailingLine, kind: str) -> str | None:
    call = at.only(ast.Call)
    if call is None or called_name(call) != "load_state_dict" or not call.args:
        return None
    given, owner = call.args[0], source(call.func)
    where = f"`{source(given)}`{at.came(given)} is of type {kind}, and {owner}() takes the state itself"
    if kind in ("str", "pathlib.PosixPath"):
        return f"{where}: read the file first, `{owner}(torch.load({source(given)}))`."
    if kind == "NoneType":
        return f"{where}: see why there is none (a function without `return`, a key that .get() did not find)."
    return f"{where}: if it is a whole model, pass `{source(given)}.state_dict()`."


def _twice(at: FailingLine, name: str) -> str | None:
    """register_buffer() of a name that a line above has set."""
    call = at.only(ast.Call)
    if call is None or not (called_name(call) or "").startswith(("register_", "add_module")):
        return None
    sets = [
        item
        for item in own_nodes(at.scope)
        if isinstance(item, (ast.Assign, ast.AnnAssign)) and item.lineno < at.line and not _is_of_branch(at, item)
        for target in (item.targets if isinstance(item, ast.Assign) else [item.target])
        if variable(target) == f"self.{name}"
    ]
    owner = class_around(at.tree, at.scope)
    methods = [item for item in owner.body if isinstance(item, ast.FunctionDef)] if owner is not None else []
    if sets:
        return (
            f"Line {sets[-1].lineno} (`{source(sets[-1])}`) has set `{name}` before {called_name(call)}() at line "
            f"{at.line} does: leave that line out, or register None in its place."
        )
    if any(item.name == name for item in methods):
        return f"`{name}` is a method of the class: register it by another name."
    return None


def _is_of_branch(at: FailingLine, statement: ast.stmt) -> bool:
    """Below an `if` that the line is not in, or in its other branch."""
    tests = [item for item in own_nodes(at.scope) if isinstance(item, ast.If) and item.lineno < statement.lineno]
    return any(
        statement.lineno <= (item.end_lineno or 0)
        and (at.line > (item.end_lineno or 0) or bool(item.orelse and item.orelse[0].lineno <= at.line))
        for item in tests
    )


def _closure(at: FailingLine) -> str | None:
    call = at.only(ast.Call)
    owner = call.func.value if call is not None and isinstance(call.func, ast.Attribute) else None
    if owner is None:
        return None
    return (
        f"`{source(owner)}`{at.came(owner)} evaluates the loss several times in one step: put "
        "zero_grad(), the forward, backward() and `return loss` into a function, and pass that: "
        f"`{source(owner)}.step(closure)`."
    )


def _in_vmap(at: FailingLine) -> str | None:
    node = at.node
    calls = [item for item in nodes_of(node) if isinstance(item, ast.Call)] if node is not None else []
    takes = [item for item in calls if called_name(item) in ("item", "tolist", "numpy", "float", "int", "bool")]
    statement = at.statement
    if takes:
        noted = " Return what shall be noted from the function (has_aux=True) and read it outside."
        note = noted if statement is not None and _NOTED.search(ast.unparse(statement)) else ""
        return (
            f"`{source(takes[0])}` at line {at.line} takes one number out of a tensor, and below vmap() it is many, "
            f"one for each sample: keep the tensor.{note}"
        )
    if isinstance(statement, (ast.If, ast.While)):
        return (
            f"Line {at.line} (`{source(statement.test)}`) branches on the value of a tensor, and below vmap() it is "
            "many, one for each sample: compute both ways and choose with torch.where()."
        )
    return None
