"""What the source of a program says of its variables: those of a line, the lines that bind them, what a call passes.

Syntax alone: a name means the variable of the innermost function around it, or the module's.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

_FILLS = frozenset({"append", "extend", "add", "update", "insert", "setdefault", "appendleft", "put"})
_REGISTERS = frozenset({"register_buffer", "register_parameter", "register_module", "add_module"})

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
Scope = Function | ast.Module
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def deciding_ifs(tree: ast.Module, line: int) -> list[tuple[ast.If, bool]]:
    """The `if` statements of its function that decide whether a line is reached, the closest first.

    Each with whether it stands around the line; the others leave before it: by return, `continue`, `break` or `raise`.
    A `break` or `continue` of a loop that ends above the line leaves only that loop.
    """
    scope = scope_of(tree, line)
    found = []
    for item in own_nodes(scope):
        if not isinstance(item, ast.If) or item.lineno >= line:
            continue
        around = line <= (item.end_lineno or 0)
        last = item.body[-1]
        leaves_loop = isinstance(last, (ast.Continue, ast.Break)) and _loop_ends(scope, item.lineno) >= line
        if around or leaves_loop or isinstance(last, (ast.Return, ast.Raise)):
            found.append((item, around))
    return sorted(found, key=lambda pair: -pair[0].lineno)


def _loop_ends(scope: Scope, line: int) -> int:
    """The last line of the innermost loop around a line; 0 without one."""
    loops = ((item.lineno, item.body[-1].end_lineno or 0) for item in _loops(scope))  # `else` runs behind the loop
    return max((loop for loop in loops if loop[0] < line <= loop[1]), default=(0, 0))[1]


def _loops(scope: Scope) -> Iterator[ast.For | ast.AsyncFor | ast.While]:
    return (item for item in own_nodes(scope) if isinstance(item, (ast.For, ast.AsyncFor, ast.While)))


def names_of_line(tree: ast.Module, line: int) -> list[str]:
    """Variables that the statement reads, `self.x` included; of a `raise`, those of the `if` around it."""
    return list(dict.fromkeys(name for part in _read_on(tree, line) for name in names_of(part)))


def names_of_call(tree: ast.Module, line: int) -> list[str]:
    """As `names_of_line`; of the head of a function, its parameters: torch.compile gives that line for all of it."""
    scope = function_headed(tree, line)
    return _parameters(scope) if scope is not None else names_of_line(tree, line)


def function_headed(tree: ast.Module, line: int) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    """The function whose `def`, or one of whose decorators, is at a line."""
    for item in ast.walk(tree):
        if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef)) and item.body:
            first = min([item.lineno, *(one.lineno for one in item.decorator_list)])
            if first <= line <= item.lineno < item.body[0].lineno:
                return item
    return None


def subscripts_of_line(tree: ast.Module, line: int) -> tuple[list[str], list[str]]:
    """What the statement looks something up in, and by what: `images` and `current` of `f(images[current])`."""
    tables: list[str] = []
    keys: list[str] = []
    for part in _read_on(tree, line):
        for item in ast.walk(part):
            if isinstance(item, ast.Subscript) and isinstance(item.ctx, ast.Load):
                tables += names_of(item.value)
                keys += names_of(item.slice)
    return list(dict.fromkeys(tables)), [name for name in dict.fromkeys(keys) if name not in tables]


def _read_on(tree: ast.Module, line: int) -> Sequence[ast.AST]:
    """What the statement of a line evaluates itself; of a `raise`, the test of the `if` around it."""
    around = [item for item in ast.walk(tree) if isinstance(item, ast.stmt) and _spans(item, line)]
    inner = max(around, key=lambda item: (item.lineno, -(item.end_lineno or 0)), default=None)
    if inner is None:
        return ()
    if isinstance(inner, ast.Raise):
        tests = [item for item in around if isinstance(item, (ast.If, ast.While)) and item.lineno < inner.lineno]
        return [max(tests, key=lambda item: item.lineno).test] if tests else ()
    return [*_parts(inner)]


def _spans(node: ast.stmt | ast.expr, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or node.lineno)


def _parts(statement: ast.stmt) -> Iterator[ast.AST]:
    """What a statement evaluates itself: of a loop or branch the head without the body."""
    if isinstance(statement, (ast.If, ast.While)):
        yield statement.test
    elif isinstance(statement, (ast.For, ast.AsyncFor)):
        yield statement.iter
    elif isinstance(statement, (ast.With, ast.AsyncWith)):
        yield from statement.items
    elif isinstance(statement, ast.AugAssign):
        yield statement.value
        yield statement.target
    elif not isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Try)):
        yield statement


def names_of(node: ast.AST) -> list[str]:
    """Variables of an expression, in order, each once.

    What is only called (`model(x)`, `torch.cat(x)`) is no value that does not fit.
    """
    called = {id(item.func) for item in ast.walk(node) if isinstance(item, ast.Call)}
    bound = {
        name.id
        for item in ast.walk(node)
        if isinstance(item, ast.comprehension)
        for name in ast.walk(item.target)
        if isinstance(name, ast.Name)
    }
    found: dict[str, tuple[int, int]] = {}
    for item in ast.walk(node):
        if id(item) in called:
            continue
        name = variable(item)
        if name is None or name in bound or not isinstance(item, (ast.Name, ast.Attribute)):
            continue
        if isinstance(item.ctx, ast.Load) or item is node:  # of `x += y` also the target
            at = (item.lineno, item.col_offset)
            found[name] = min(found.get(name, at), at)
    found.pop("self", None)
    return sorted(found, key=lambda name: found[name])


def variable(node: ast.AST) -> str | None:
    """`x`, or `self.x`; None for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
        return f"self.{node.attr}"
    return None


def scope_of(tree: ast.Module, line: int) -> Scope:
    """The innermost function around a line, else the module."""
    inside = [item for item in ast.walk(tree) if isinstance(item, _FUNCTIONS) and _spans_function(item, line)]
    return max(inside, key=lambda item: item.lineno, default=tree)


def _spans_function(node: Function, line: int) -> bool:
    return node.lineno < line <= (node.end_lineno or 0)


def own_nodes(scope: ast.AST) -> Iterator[ast.AST]:
    """Of a scope without those of functions and classes inside."""
    for item in ast.iter_child_nodes(scope):
        yield item
        if not isinstance(item, (*_FUNCTIONS, ast.ClassDef)):
            yield from own_nodes(item)


def binding(tree: ast.Module, scope: Scope, name: str, line: int) -> tuple[int, str | None] | None:
    """The last line above `line` that binds it, and in words where else it is filled or set.

    Of the module where the function binds none; None for a parameter, and for what is imported or defined.
    """
    if name.startswith("self."):
        return _attribute(tree, scope, name)
    bound = lines_that_bind(scope, name)
    if not bound and not is_parameter(scope, name):
        if any(isinstance(item, ast.Global) and name in item.names for item in ast.walk(tree)):
            return None  # a function may have set it
        inside, scope, bound = scope, tree, lines_that_bind(tree, name)
        if inside is not tree and len(bound) > 1:
            return None  # which of them the function met is not known
    if not bound:
        return None
    above = [item for item in bound if item[0] < line]
    at, value = max(above or bound, key=lambda item: item[0])
    if isinstance(value, (ast.Import, ast.ImportFrom)):
        return None
    filled = _first_fill(scope, name) if _is_empty_container(value) else None
    return at, _filled(filled if filled != line else None)


def _filled(line: int | None) -> str | None:
    return f"is filled at line {line}" if line is not None else None


def lines_that_bind(scope: ast.AST, name: str) -> list[tuple[int, ast.AST | None]]:
    """Lines of a scope that bind a variable, each with the value; a loop has none."""
    found: list[tuple[int, ast.AST | None]] = []
    for node in own_nodes(scope):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            if any((item.asname or item.name.split(".")[0]) == name for item in node.names):
                found.append((node.lineno, node))
        elif isinstance(node, (ast.Assign, ast.AnnAssign, ast.NamedExpr)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(_binds(target, name) for target in targets):
                found.append((node.lineno, node.value))
        elif isinstance(node, (ast.For, ast.AsyncFor)) and _binds(node.target, name):
            found.append((node.lineno, None))
        elif isinstance(node, ast.withitem) and node.optional_vars is not None and _binds(node.optional_vars, name):
            found.append((node.optional_vars.lineno, node.context_expr))
    return found


def _binds(target: ast.AST, name: str) -> bool:
    """`a, (b, *c) = ...` binds three; `a[0] = ...` and `a.b = ...` none."""
    if isinstance(target, (ast.Tuple, ast.List)):
        return any(_binds(item, name) for item in target.elts)
    if isinstance(target, ast.Starred):
        return _binds(target.value, name)
    return isinstance(target, ast.Name) and target.id == name


def _is_empty_container(value: ast.AST | None) -> bool:
    if isinstance(value, (ast.List, ast.Tuple, ast.Set)):
        return not value.elts
    if isinstance(value, ast.Dict):
        return not value.keys
    names = ("list", "dict", "set", "deque", "defaultdict")
    return (
        isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id in names and not value.args
    )


def _first_fill(scope: ast.AST, name: str) -> int | None:
    return min(lines_that_fill(scope, name), default=None)


def lines_that_fill(scope: ast.AST, name: str) -> list[int]:
    """`x.append(...)`, `x[key] = ...`, `x += ...`, in order."""
    lines = []
    for node in own_nodes(scope):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _FILLS:
            if variable(node.func.value) == name:
                lines.append(node.lineno)
        elif isinstance(node, ast.Assign):
            held = [item.value for item in node.targets if isinstance(item, ast.Subscript)]
            if any(variable(item) == name for item in held):
                lines.append(node.lineno)
        elif isinstance(node, ast.AugAssign) and variable(node.target) == name:
            lines.append(node.lineno)
    return sorted(lines)


def _attribute(tree: ast.Module, scope: Scope, name: str) -> tuple[int, str | None] | None:
    """The line in __init__ that sets `self.x`, and the first elsewhere; else the only line that does."""
    owner = class_around(tree, scope)
    if owner is None:
        return None
    at_first: list[int] = []
    later: list[int] = []
    for method in owner.body:
        if isinstance(method, (ast.FunctionDef, ast.AsyncFunctionDef)):
            (at_first if method.name == "__init__" else later).extend(_lines_that_set(method, name))
    if at_first:
        also = f"is set at line {later[0]}" if later else _filled(_first_fill_of_class(owner, name))
        return at_first[-1], also
    return (later[0], None) if len(later) == 1 else None


def registered(node: ast.AST) -> tuple[str, ast.expr] | None:
    """`self.mask` and its value, of `self.register_buffer("mask", value)` and `setattr(self, "mask", value)`."""
    if not isinstance(node, ast.Call):
        return None
    if isinstance(node.func, ast.Attribute) and variable(node.func) is not None and node.func.attr in _REGISTERS:
        given = node.args
    elif called_name(node) == "setattr" and node.args and variable(node.args[0]) == "self":
        given = node.args[1:]
    else:
        return None
    name = given[0].value if given and isinstance(given[0], ast.Constant) else None
    return (f"self.{name}", given[1]) if isinstance(name, str) and len(given) > 1 else None


def _lines_that_set(method: ast.AST, name: str) -> Iterator[int]:
    for node in ast.walk(method):
        held = registered(node)
        if held is not None and held[0] == name and isinstance(node, ast.Call):
            yield node.lineno
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            targets = [node.target]
        else:
            continue
        if any(variable(item) == name for target in targets for item in _flat(target)):
            yield node.lineno


def _flat(target: ast.expr) -> Iterator[ast.expr]:
    if isinstance(target, (ast.Tuple, ast.List)):
        for item in target.elts:
            yield from _flat(item)
    else:
        yield target


def _first_fill_of_class(owner: ast.ClassDef, name: str) -> int | None:
    lines = [line for method in owner.body if (line := _first_fill(method, name)) is not None]
    return min(lines, default=None)


def is_parameter(scope: Scope, name: str) -> bool:
    """Whether a caller passes it."""
    return name in _parameters(scope)


def _parameters(scope: Scope) -> list[str]:
    if isinstance(scope, ast.Module):
        return []
    given = scope.args
    return [item.arg for item in (*given.posonlyargs, *given.args, *given.kwonlyargs)]


def second_parameter(scope: Scope) -> str | None:
    """Of a method that takes one argument beside `self`: that."""
    return next(iter(_parameters(scope)[1:]), None)


def passed_as(tree: ast.Module, line: int, scope: Scope, name: str) -> str | None:
    """The caller's own name for a parameter: `step(model, batch)` passes `batch`; None for anything but a name.

    Args:
        tree: The caller's module.
        line: Its line.
        scope: The function that is called.
        name: The parameter.
    """
    if isinstance(scope, (ast.Lambda, ast.Module)):
        return None
    calls = [item for item in ast.walk(tree) if isinstance(item, ast.Call) and _spans(item, line)]
    calls = [item for item in calls if called_name(item) == scope.name]
    if len(calls) != 1:
        return None
    value = _argument(calls[0], _parameters(scope), name)
    return variable(value) if value is not None else None


def _argument(call: ast.Call, parameters: Sequence[str], name: str) -> ast.expr | None:
    keyword = next((item.value for item in call.keywords if item.arg == name), None)
    if keyword is not None or any(isinstance(item, ast.Starred) for item in call.args):
        return keyword
    bound = parameters[:1] == ["self"] and isinstance(call.func, ast.Attribute)
    position = [*parameters].index(name) - bound
    return call.args[position] if 0 <= position < len(call.args) else None


def called_name(call: ast.Call) -> str | None:
    """`get` of `x.get()` and of `get()`."""
    function = call.func
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else None


def class_named(tree: ast.Module, name: str) -> ast.ClassDef | None:
    """The only class of that name."""
    found = [item for item in ast.walk(tree) if isinstance(item, ast.ClassDef) and item.name == name]
    return found[0] if len(found) == 1 else None


def function_named(tree: ast.Module, name: str) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    """The only function or method of that name."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    found = [item for item in ast.walk(tree) if isinstance(item, kinds) and item.name == name]
    return found[0] if len(found) == 1 else None


def attribute_settings(owner: ast.ClassDef) -> dict[str, tuple[int, str]]:
    """Attributes that its methods set on `self`: the first line and its method, __init__ before others."""
    methods = [item for item in owner.body if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef))]
    found: dict[str, tuple[int, str]] = {}
    for method in sorted(methods, key=lambda item: item.name != "__init__"):
        for node in ast.walk(method):
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            for target in (item for held in targets if isinstance(held, ast.expr) for item in _flat(held)):
                name = variable(target) or ""
                if name.startswith("self."):
                    found.setdefault(name.removeprefix("self."), (target.lineno, method.name))
    return found


def is_loop_variable(scope: Scope, name: str, line: int) -> bool:
    """Whether the last line above that binds it is a loop over items."""
    bound = [item for item in lines_that_bind(scope, name) if item[0] < line]
    return bool(bound) and max(bound, key=lambda item: item[0])[1] is None


def bound_value(scope: Scope, name: str, line: int) -> tuple[int, ast.AST | None] | None:
    """The last line above that binds a variable of the function, and the value; None as value in a loop or `with`."""
    if name.startswith("self."):
        return None
    bound = lines_that_bind(scope, name)
    above = [item for item in bound if item[0] < line]
    return max(above or bound, key=lambda item: item[0], default=None)


def class_around(tree: ast.Module, scope: Scope) -> ast.ClassDef | None:
    """Of a method."""
    classes = (item for item in ast.walk(tree) if isinstance(item, ast.ClassDef))
    return next((item for item in classes if any(part is scope for part in item.body)), None)


def default_of(scope: Scope, name: str) -> ast.expr | None:
    """Of a parameter."""
    if isinstance(scope, ast.Module):
        return None
    given = scope.args
    places = [*given.posonlyargs, *given.args]
    defaults = dict(zip([item.arg for item in places[::-1]], given.defaults[::-1], strict=False))
    named = {item.arg: value for item, value in zip(given.kwonlyargs, given.kw_defaults, strict=True) if value}
    return {**defaults, **named}.get(name)


def loop_around(tree: ast.Module, line: int) -> int | None:
    """The first line of the innermost loop around a line of a function."""
    loops = _loops(scope_of(tree, line))
    return max((item.lineno for item in loops if item.lineno < line <= (item.end_lineno or 0)), default=None)
