"""Where a value was made: back over assignments, arguments, attributes, returns and tables of options, by syntax alone.

A step is taken only where one line can have given the value: the last binding above, the only call of a class, the only
`return` of a function. Nothing is run; where two ways are possible, the slice ends.
"""

from __future__ import annotations

import ast
import builtins
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from pytracer.analyze.evidence.syntax.bindings import registered
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.loops import LOOPS
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.scopes import Function, Scope, class_around, own_nodes, scope_of
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.decode.types.snapshot import Snapshot
from pytracer.report.job import PythonFrame

_HOPS = 16
_MADE_ON_CALL = ("forward", "__call__")
_SAME = frozenset({"int", "float", "str", "device", "list", "tuple"})  # what hands a value on as it is
_END = 1 << 30  # behind the last line
_BUILT_IN = frozenset(dir(builtins))
_COMPREHENSIONS = ("<genexpr>", "<listcomp>", "<dictcomp>", "<setcomp>")
_RETURN_SELF = frozenset(
    {"eval", "train", "to", "cuda", "cpu", "float", "double", "half", "bfloat16", "requires_grad_"}
)
_WRAPPERS = frozenset({"DistributedDataParallel", "DDP", "DataParallel"})
_BRANCHES = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.Try, ast.Match)


@dataclass(frozen=True)
class Spot:
    """A place in a program. `depth`: of its frame among the program's on the stack, None if it is not there.

    `call`: what called the function, where that is known otherwise than by the stack.
    """

    file: str | None
    tree: ast.Module
    scope: Scope
    line: int
    depth: int | None = None
    call: tuple[ast.Call, Spot] | None = None


@dataclass(frozen=True)
class Made:
    """The expression that made a value. `through`: the spots between, of which the first is the reader's own."""

    node: ast.AST
    spot: Spot
    through: tuple[tuple[ast.AST, Spot], ...] = ()

    @property
    def line(self) -> int:
        """Its line."""
        return getattr(self.node, "lineno", self.spot.line)


class Slice:
    """Follows values of one process from its failing line."""

    def __init__(
        self, snapshot: Snapshot, frames: Sequence[PythonFrame], failing: tuple[int, ast.Call] | None = None
    ) -> None:
        self._snapshot = snapshot
        self._frames = frames  # the program's, innermost first
        self._failing = failing  # the call that the frame of a depth was in, where that is recorded

    def spot(self, depth: int) -> Spot | None:
        """Of a frame of the program; of a comprehension that has one of its own, the function around it."""
        frame = self._frames[depth] if depth < len(self._frames) else None
        tree = syntax_tree(self._snapshot, frame)
        if frame is None or tree is None or frame.line is None:
            return None
        found = Spot(frame.file, tree, scope_of(tree, frame.line), frame.line, depth)
        if (frame.function or "").rpartition(".")[2] in _COMPREHENSIONS:
            outer = self.spot(depth + 1)
            return replace(found, depth=outer.depth) if outer is not None and outer.scope is found.scope else found
        return found

    def made(self, node: ast.AST, spot: Spot, *, calls: bool) -> Made:
        """As far back as it is certain. `calls`: also through what functions of the program return."""
        passed: list[tuple[ast.AST, Spot]] = []
        while len(passed) < _HOPS:
            if not calls and isinstance(node, ast.Call) and called_name(node) not in _SAME:
                break
            step = self._step(node, spot)
            if step is None or step[0] is node:
                break
            passed.append((node, spot))
            node, spot = step
        return Made(node, spot, tuple(passed))

    def _step(self, node: ast.AST, spot: Spot) -> tuple[ast.AST, Spot] | None:
        if isinstance(node, ast.Name):
            return self._name(node.id, spot)
        if isinstance(node, ast.Attribute):
            return self._attribute(node, spot)
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            return self._item(node.value, node.slice.value, spot)
        if isinstance(node, ast.NamedExpr):
            return node.value, spot
        return self._call(node, spot) if isinstance(node, ast.Call) else None

    # ---- names and parameters

    def _name(self, name: str, spot: Spot) -> tuple[ast.AST, Spot] | None:
        found = _last_binding(spot.scope, name, spot.line)
        if found is None and not isinstance(spot.scope, ast.Module):
            if name in _parameters(spot.scope):
                return self.argument(name, spot)
            outer = replace(spot, scope=spot.tree, line=_END, depth=None, call=None)
            found, spot = _only_global(spot.tree, name), outer
        if found is None:
            return None
        line, value, index = found
        if value is None:
            return None
        at = replace(spot, line=line)
        return (value, at) if index is None else self._item(value, index, at)

    def argument(self, name: str, spot: Spot) -> tuple[ast.AST, Spot] | None:
        """What the caller passed for a parameter, or its default."""
        function = spot.scope
        if isinstance(function, (ast.Module, ast.Lambda)):
            return None
        called = spot.call or self._caller(function, spot)
        if called is None:
            return None
        call, outer = called
        value = argument_of(call, function, name)
        if value is not None:
            return value, outer
        spread = any(item.arg is None for item in call.keywords) or any(isinstance(a, ast.Starred) for a in call.args)
        default = _default(function, name)
        return (default, spot) if default is not None and not spread else None

    def _caller(self, function: ast.FunctionDef | ast.AsyncFunctionDef, spot: Spot) -> tuple[ast.Call, Spot] | None:
        if spot.depth is not None:
            outer = self.spot(spot.depth + 1)
            call = _call_of(outer.tree, outer.line, function, class_around(spot.tree, function)) if outer else None
            if call is None and self._failing is not None and self._failing[0] == spot.depth + 1:
                call = self._failing[1] if function.name == "__init__" else None
            return (call, outer) if call is not None and outer is not None else None
        owner = class_around(spot.tree, function)
        if owner is None or function.name != "__init__":
            return None
        return self._only_construction(owner, spot)

    def _only_construction(self, owner: ast.ClassDef, spot: Spot) -> tuple[ast.Call, Spot] | None:
        """The one `Net(...)` in the files of the stack."""
        trees = {spot.file: spot.tree}
        trees |= {
            frame.file: tree for frame in self._frames if (tree := syntax_tree(self._snapshot, frame)) is not None
        }
        found = [
            (item, Spot(file, tree, scope_of(tree, item.lineno), item.lineno))
            for file, tree in trees.items()
            for item in ast.walk(tree)
            if isinstance(item, ast.Call) and called_name(item) == owner.name
            if file == self._frames[-1].file or not _is_demonstration(tree, item.lineno)
        ]
        if len(found) != 1:
            return None
        call, at = found[0]
        depth = next((n for n, item in enumerate(self._frames) if _is_in(at, item)), None)
        return call, replace(at, depth=depth)

    # ---- attributes and items

    def _attribute(self, node: ast.Attribute, spot: Spot) -> tuple[ast.AST, Spot] | None:
        if variable(node) is not None:  # self.x
            owner = class_around(spot.tree, spot.scope)
            if owner is None:
                return None
            construction = None
            if isinstance(spot.scope, ast.FunctionDef) and spot.scope.name == "__init__":
                construction = spot.call
            return self._of_instance(owner, node.attr, replace(spot, call=construction, depth=None))
        base = self.made(node.value, spot, calls=True)
        if not isinstance(base.node, ast.Call):
            return self._of_class(base, node.attr)
        made = self.defined(base.node.func, base.spot)
        if made is not None and isinstance(made[0], ast.ClassDef):
            inside = replace(made[1], call=(base.node, base.spot))
            return self._of_instance(made[0], node.attr, inside)
        if called_name(base.node) in ("Namespace", "SimpleNamespace", "EasyDict"):
            value = next((item.value for item in base.node.keywords if item.arg == node.attr), None)
            return (value, base.spot) if value is not None else None
        return _option(base, node.attr) if called_name(base.node) in ("parse_args", "parse_known_args") else None

    def _of_class(self, base: Made, name: str) -> tuple[ast.AST, Spot] | None:
        """`Options.rate`, which only the class itself sets."""
        found = self.defined(base.node, base.spot)
        if found is None or not isinstance(found[0], ast.ClassDef):
            return None
        stored = (item for item in ast.walk(base.spot.tree) if isinstance(item, ast.Attribute) and item.attr == name)
        if any(isinstance(item.ctx, ast.Store) for item in stored):
            return None
        return self._of_instance(found[0], name, found[1])

    def _of_instance(self, owner: ast.ClassDef, name: str, spot: Spot) -> tuple[ast.AST, Spot] | None:
        methods = [item for item in owner.body if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef))]
        sets = [
            (method, line, value, index)
            for method in methods
            for line, value, index in _bindings(method, f"self.{name}")
        ]
        first = [item for item in sets if item[0].name == "__init__"]
        if len(sets) == 1 and len(first) == 1:
            method, line, value, index = first[0]
            if value is None:
                return None
            at = replace(spot, scope=method, line=line, depth=None)
            return (value, at) if index is None else self._item(value, index, at)
        if sets:
            return None
        fields = [item for item in owner.body if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)]
        names = [item.target.id for item in fields if isinstance(item.target, ast.Name)]
        if name in names and not any(item.name == "__init__" for item in methods):
            called = spot.call or self._only_construction(owner, spot)
            if called is not None:
                place = names.index(name)
                given = next((item.value for item in called[0].keywords if item.arg == name), None)
                if given is None and place < len(called[0].args):
                    given = called[0].args[place]
                if given is not None:
                    return given, called[1]
        plain = [item for item in (*fields, *owner.body) if isinstance(item, (ast.AnnAssign, ast.Assign))]
        for item in plain:
            targets = item.targets if isinstance(item, ast.Assign) else [item.target]
            if any(isinstance(part, ast.Name) and part.id == name for part in targets) and item.value is not None:
                return item.value, replace(spot, scope=spot.tree, line=item.lineno, depth=None, call=None)
        base = self._base(owner, spot)
        return self._of_instance(base[0], name, replace(base[1], call=spot.call)) if base is not None else None

    def _item(self, value: ast.AST, key: object, spot: Spot) -> tuple[ast.AST, Spot] | None:
        """`config["width"]`, `a` of `a, b = pair()`."""
        base = self.made(value, spot, calls=True)
        node = base.node
        if isinstance(node, (ast.Tuple, ast.List)) and isinstance(key, int):
            whole = not any(isinstance(item, ast.Starred) for item in node.elts)
            return (node.elts[key], base.spot) if whole and -len(node.elts) <= key < len(node.elts) else None
        if isinstance(node, ast.Dict):
            return self._of_dict(node, key, base.spot)
        if isinstance(node, ast.Call) and called_name(node) == "dict" and not node.args:
            given = next((item.value for item in node.keywords if item.arg == key), None)
            return (given, base.spot) if given is not None else None
        return None

    def _of_dict(self, node: ast.Dict, key: object, spot: Spot) -> tuple[ast.AST, Spot] | None:
        for name, value in zip(node.keys[::-1], node.values[::-1], strict=True):
            if isinstance(name, ast.Constant) and name.value == key:
                return value, spot
            if name is None:  # **options
                inner = self._keywords(value, key, spot)
                inner = inner if inner is not None else self._item(value, key, spot)
                if inner is not None or not self._lacks(value, key, spot):
                    return inner
        return None

    def _lacks(self, value: ast.AST, key: object, spot: Spot) -> bool:
        """Whether what `**value` adds is known, and has no such key."""
        function = spot.scope
        own = getattr(getattr(getattr(function, "args", None), "kwarg", None), "arg", None)
        if isinstance(value, ast.Name) and value.id == own and isinstance(function, ast.FunctionDef):
            called = spot.call or self._caller(function, spot)
            return called is not None and all(item.arg is not None for item in called[0].keywords)
        node = self.made(value, spot, calls=True).node
        if isinstance(node, ast.Dict):
            return all(isinstance(item, ast.Constant) and item.value != key for item in node.keys)
        known = isinstance(node, ast.Call) and called_name(node) == "dict" and not node.args
        return known and all(item.arg not in (None, key) for item in node.keywords)  # type: ignore[attr-defined]

    def _keywords(self, value: ast.AST, key: object, spot: Spot) -> tuple[ast.AST, Spot] | None:
        """What `**options` of the function was given for it."""
        function = spot.scope
        if isinstance(function, (ast.Module, ast.Lambda)) or function.args.kwarg is None:
            return None
        if not isinstance(value, ast.Name) or value.id != function.args.kwarg.arg:
            return None
        called = spot.call or self._caller(function, spot)
        given = next((item.value for item in called[0].keywords if item.arg == key), None) if called else None
        return (given, called[1]) if called is not None and given is not None else None

    # ---- calls

    def _call(self, call: ast.Call, spot: Spot) -> tuple[ast.AST, Spot] | None:
        if called_name(call) in _SAME and len(call.args) == 1 and not call.keywords:
            return call.args[0], spot
        found = self.function(call, spot)
        if found is None:
            return None
        function, at = found
        returns = [item for item in own_nodes(function) if isinstance(item, ast.Return)]
        if len(returns) != 1 or returns[0].value is None or any(_yields(item) for item in own_nodes(function)):
            return None
        return returns[0].value, replace(at, scope=function, line=returns[0].lineno + 1, depth=None, call=(call, spot))

    def function(self, call: ast.Call, spot: Spot) -> tuple[ast.FunctionDef, Spot] | None:
        """The program's own function or method that is called; of an object forward() or __call__()."""
        made = self.defined(call.func, spot)
        if made is not None:
            return (made[0], made[1]) if isinstance(made[0], ast.FunctionDef) else None
        names: tuple[str, ...] = _MADE_ON_CALL
        owner: tuple[ast.AST, Spot] | None = None
        func = call.func
        if isinstance(func, ast.Attribute):
            inside = class_around(spot.tree, spot.scope)
            if isinstance(func.value, ast.Name) and func.value.id == "self" and inside is not None:
                owner, names = self._with_method(inside, (func.attr,), spot), (func.attr,)
                if _method(owner[0], names) is None:  # a layer of its own
                    owner, names = self._class_of(func, spot), _MADE_ON_CALL
            else:
                owner, names = self._class_of(func.value, spot), (func.attr,)
        elif isinstance(func, (ast.Name, ast.Call)):  # `Net()(x)`
            owner = self._class_of(func, spot)
        method = _method(owner[0], names) if owner is not None and isinstance(owner[0], ast.ClassDef) else None
        return (method, owner[1]) if method is not None and owner is not None else None

    def _base(self, owner: ast.ClassDef, spot: Spot) -> tuple[ast.ClassDef, Spot] | None:
        """The class of the program that a class is derived from, if it is the only one."""
        found = self.defined(owner.bases[0], spot) if len(owner.bases) == 1 else None
        return (found[0], found[1]) if found is not None and isinstance(found[0], ast.ClassDef) else None

    def _with_method(self, owner: ast.ClassDef, names: Sequence[str], spot: Spot) -> tuple[ast.ClassDef, Spot]:
        """The class that has one of these methods, of those that a class is derived from; else that class."""
        found: tuple[ast.ClassDef, Spot] | None = (owner, spot)
        for _ in range(_HOPS):
            if found is None or _method(found[0], names) is not None:
                break
            found = self._base(*found)
        return found if found is not None else (owner, spot)

    def is_layer(self, node: ast.AST, spot: Spot) -> bool:
        """One of torch's layers, or a module of the program."""
        base = self.made(node, spot, calls=True).node
        if not isinstance(base, ast.Call):
            return False
        if re.match(r"(?:torch\.)?nn\.[A-Z]", ast.unparse(base.func)):
            return True
        found = self._class_of(node, spot)
        return found is not None and _method(found[0], ("forward",)) is not None

    def _class_of(self, node: ast.AST, spot: Spot) -> tuple[ast.AST, Spot] | None:
        base = self.made(node, spot, calls=True)
        for _ in range(_HOPS):
            inner = _same_object(base.node)
            if inner is None:
                break
            base = self.made(inner, base.spot, calls=True)
        return self.defined(base.node.func, base.spot) if isinstance(base.node, ast.Call) else None

    def defined(self, node: ast.AST, spot: Spot) -> tuple[ast.AST, Spot] | None:
        """The class or function of the program that a name means; in its other files, too."""
        if not isinstance(node, ast.Name):
            return None
        for item in spot.tree.body:
            if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and item.name == node.id:
                return item, replace(spot, scope=spot.tree, line=_END, depth=None, call=None)
            if isinstance(item, ast.ImportFrom) and item.level <= 1 and spot.file is not None and item.module:
                found = next((part for part in item.names if (part.asname or part.name) == node.id), None)
                other = self._imported(spot.file, item.module) if found is not None else None
                if found is not None and other is not None:
                    name = ast.Name(found.name)
                    return self.defined(name, other)
        return None

    def _imported(self, file: str, module: str) -> Spot | None:
        path = f"{os.path.join(os.path.dirname(file), *module.split('.'))}.py"
        tree = syntax_tree(self._snapshot, PythonFrame(file=path, line=1))
        return Spot(path, tree, tree, _END) if tree is not None else None


def argument_of(call: ast.Call, function: Function, name: str) -> ast.expr | None:
    """What a call passes for a parameter."""
    given = next((item.value for item in call.keywords if item.arg == name), None)
    options = [item.value for item in call.keywords if item.arg is None]
    if given is not None:
        return given
    if len(options) == 1 and not call.args:  # `f(**batch())`
        return _part(options[0], name)
    places = [item.arg for item in (*function.args.posonlyargs, *function.args.args)]
    if name not in places:
        return None
    place = places.index(name) - (places[:1] == ["self"])
    spread = [n for n, item in enumerate(call.args) if isinstance(item, ast.Starred)]
    if len(spread) == 1 and spread[0] <= place and spread[0] == len(call.args) - 1:  # `f(*pair())`
        held = call.args[spread[0]]
        return _part(held.value, place - spread[0]) if isinstance(held, ast.Starred) else None
    before = call.args[: place + 1]
    whole = 0 <= place < len(call.args) and not any(isinstance(item, ast.Starred) for item in before)
    return call.args[place] if whole else None


def _part(value: ast.expr, key: int | str) -> ast.expr:
    """`value[key]`, which no line has written."""
    made = ast.Subscript(value, ast.Constant(key), ast.Load())
    return ast.fix_missing_locations(ast.copy_location(made, value))


def _default(function: Function, name: str) -> ast.expr | None:
    places = [*function.args.posonlyargs, *function.args.args]
    defaults = dict(zip([item.arg for item in places[::-1]], function.args.defaults[::-1], strict=False))
    named = {
        item.arg: value
        for item, value in zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True)
        if value is not None
    }
    return {**defaults, **named}.get(name)


def _parameters(scope: Scope) -> list[str]:
    if isinstance(scope, ast.Module):
        return []
    given = scope.args
    return [item.arg for item in (*given.posonlyargs, *given.args, *given.kwonlyargs)]


def _bindings(scope: ast.AST, name: str) -> Iterator[tuple[int, ast.AST | None, int | None]]:
    """Lines that bind it, the value, and which part of it; no value of a loop, a `with` or `x += y`."""
    for node in own_nodes(scope):
        if isinstance(node, (ast.Assign, ast.AnnAssign, ast.NamedExpr)) and node.value is not None:
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                if _is(target, name):
                    yield node.lineno, node.value, None
                elif isinstance(target, (ast.Tuple, ast.List)):
                    parts = [n for n, item in enumerate(target.elts) if _is(item, name)]
                    starred = any(isinstance(item, ast.Starred) for item in target.elts)
                    if parts and not starred:
                        yield node.lineno, node.value, parts[0]
                    elif any(_is(item, name) for item in ast.walk(target)):
                        yield node.lineno, None, None
        elif isinstance(node, (ast.For, ast.AsyncFor, ast.AugAssign)):
            if any(_is(item, name) for item in ast.walk(node.target)):
                yield node.lineno, None, None
        elif (held := registered(node)) is not None and held[0] == name and isinstance(node, ast.Call):
            yield node.lineno, held[1], None
        elif isinstance(node, ast.withitem) and node.optional_vars is not None and _holds(node.optional_vars, name):
            yield node.optional_vars.lineno, None, None


def _last_binding(scope: Scope, name: str, line: int) -> tuple[int, ast.AST | None, int | None] | None:
    """None also where another one may be meant: a branch was or was not taken, or a round of a loop set it before."""
    found = [*_bindings(scope, name)]
    before = [item for item in found if item[0] < line and not _other_branch(scope, item[0], line)]
    above = sorted(before, key=lambda item: item[0])
    if not above:
        return None
    last = above[-1]
    around = [item for item in own_nodes(scope) if isinstance(item, _BRANCHES) and line != _END]
    for item in around:
        inside = item.lineno <= line <= (item.end_lineno or 0)
        if not inside and len(above) > 1 and item.lineno < last[0] <= (item.end_lineno or 0):
            return None
        carried = any(line <= other[0] <= (item.end_lineno or 0) for other in found)
        if inside and carried and isinstance(item, LOOPS) and last[0] < item.lineno:
            return None
    return last


def _is_demonstration(tree: ast.Module, line: int) -> bool:
    """Below `if __name__ == "__main__"`, which does not run in a file that is imported."""
    return any(
        isinstance(item, ast.If)
        and "__name__" in ast.unparse(item.test)
        and item.lineno <= line <= (item.end_lineno or 0)
        for item in tree.body
    )


def _only_global(tree: ast.Module, name: str) -> tuple[int, ast.AST | None, int | None] | None:
    """Which of several a function met is not known; nor whether another function has set it."""
    found = [*_bindings(tree, name)]
    declared = any(isinstance(item, ast.Global) and name in item.names for item in ast.walk(tree))
    return found[0] if len(found) == 1 and not declared else None


def _other_branch(scope: Scope, one: int, line: int) -> bool:
    """Whether an `if` has the first line in its body, and the second in its `else`."""
    return any(
        isinstance(item, ast.If)
        and item.orelse
        and item.lineno < one < item.orelse[0].lineno <= line <= (item.end_lineno or 0)
        for item in own_nodes(scope)
    )


def _holds(target: ast.AST, name: str) -> bool:
    return any(_is(item, name) for item in ast.walk(target))


def _is(target: ast.AST, name: str) -> bool:
    return variable(target) == name


def _is_in(spot: Spot, frame: PythonFrame) -> bool:
    own = scope_of(spot.tree, frame.line) if frame.line is not None else None
    return frame.file == spot.file and own is spot.scope


def _call_of(
    tree: ast.Module, line: int, function: ast.FunctionDef | ast.AsyncFunctionDef, owner: ast.ClassDef | None
) -> ast.Call | None:
    """The call of a line that led into a function."""
    calls = [
        item for item in ast.walk(tree) if isinstance(item, ast.Call) and item.lineno <= line <= (item.end_lineno or 0)
    ]
    named = [item for item in calls if called_name(item) == function.name]
    if function.name == "__init__" and owner is not None:
        named = [item for item in calls if called_name(item) == owner.name] or named
    elif function.name in _MADE_ON_CALL and not named:
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        others = {None, *_BUILT_IN, *(item.name for item in tree.body if isinstance(item, kinds))}
        named = [
            item
            for item in calls
            if (variable(item.func) not in others or isinstance(item.func, ast.Call)) and _fits(item, function)
        ]
    return named[0] if len(named) == 1 else None


def _fits(call: ast.Call, function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether it may pass all that the method needs."""
    spread = any(isinstance(item, ast.Starred) for item in call.args) or any(item.arg is None for item in call.keywords)
    required = len(function.args.args) - 1 - len(function.args.defaults)
    return spread or len(call.args) + len(call.keywords) >= required


def _same_object(node: ast.AST) -> ast.expr | None:
    """`Net()` of `Net().eval()` and of `DDP(Net())`: whose forward() a call reaches."""
    if not isinstance(node, ast.Call):
        return None
    name = called_name(node)
    if name in _WRAPPERS and node.args:
        return node.args[0]
    return node.func.value if isinstance(node.func, ast.Attribute) and name in _RETURN_SELF else None


def _method(owner: ast.AST, names: Sequence[str]) -> ast.FunctionDef | None:
    body = owner.body if isinstance(owner, ast.ClassDef) else []
    return next((item for item in body if isinstance(item, ast.FunctionDef) and item.name in names), None)


def _yields(node: ast.AST) -> bool:
    return isinstance(node, (ast.Yield, ast.YieldFrom))


def _option(base: Made, name: str) -> tuple[ast.AST, Spot] | None:
    """The default of an option of argparse, where it is in the same file."""
    for item in ast.walk(base.spot.tree):
        if not isinstance(item, ast.Call) or called_name(item) != "add_argument":
            continue
        words = [part.value for part in item.args if isinstance(part, ast.Constant) and isinstance(part.value, str)]
        if any(word.lstrip("-").replace("-", "_") == name for word in words):
            return item, replace(base.spot, scope=base.spot.tree, line=item.lineno, depth=None, call=None)
    return None
