"""Where a value was made: back over assignments, arguments, attributes, returns and tables of options, by syntax alone.

A step is taken only where one line can have given the value: the last binding above, the only call of a class, the only
`return` of a function. Nothing is run; where two ways are possible, the slice ends.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from functools import cached_property

from msgspec import structs

from pytracer.analyze.evidence.slicing.bindings import bindings_of, last_binding, only_global
from pytracer.analyze.evidence.slicing.callers import only_construction
from pytracer.analyze.evidence.slicing.calls import (
    MADE_ON_CALL,
    argument_of,
    call_of,
    calls_that_lead,
    method_of,
    parsed_option,
    same_object,
)
from pytracer.analyze.evidence.slicing.definitions import defined
from pytracer.analyze.evidence.slicing.files import first_file, program_files
from pytracer.analyze.evidence.slicing.spots import END, Made, Spot
from pytracer.analyze.evidence.slicing.stored_parts import is_stored
from pytracer.analyze.evidence.syntax.bindings import derived_of, is_of_outer, set_from_outside
from pytracer.analyze.evidence.syntax.calls import called_name, keyword_value
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.reaching import ENTRY, places_that_bind, reaching
from pytracer.analyze.evidence.syntax.scopes import (
    class_around,
    default_of,
    only_reads_around,
    own_nodes,
    parameters,
    runs,
    scope_of,
)
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.decode.types.snapshot import Snapshot
from pytracer.report.job import PythonFrame

_HOPS = 16
_PASSING_ON = ("torch/nn/modules/module.py", "torch/nn/parallel/distributed.py", "torch/autograd/function.py")
_SAME = frozenset({"int", "float", "str", "device", "list", "tuple"})  # what hands a value on as it is
_COMPREHENSIONS = ("<genexpr>", "<listcomp>", "<dictcomp>", "<setcomp>")


class Slice:
    """Follows values of one process from its failing line."""

    def __init__(
        self,
        snapshot: Snapshot,
        frames: Sequence[PythonFrame],
        failing: tuple[int, ast.Call] | None = None,
        stack: Sequence[PythonFrame] = (),
    ) -> None:
        self._snapshot = snapshot
        self._frames = frames  # the program's, innermost first
        self._stack = stack  # with those of libraries between, where that is known
        self._failing = failing  # the call that the frame of a depth was in, where that is recorded

    def spot(self, depth: int) -> Spot | None:
        """Of a frame of the program; of a comprehension that has one of its own, the function around it."""
        frame = self._frames[depth] if depth < len(self._frames) else None
        tree = syntax_tree(self._snapshot, frame)
        if frame is None or tree is None or frame.line is None:
            return None
        if (frame.function or "").rpartition(".")[2] == "<lambda>" and only_reads_around(tree, frame.line):
            return self._around(frame, tree, depth)
        if not runs(tree, scope_of(tree, frame.line), frame.line, frame.function):
            return None
        found = Spot(frame.file, tree, scope_of(tree, frame.line), frame.line, depth)
        if (frame.function or "").rpartition(".")[2] in _COMPREHENSIONS:
            outer = self.spot(depth + 1)
            return (
                structs.replace(found, depth=outer.depth) if outer is not None and outer.scope is found.scope else found
            )
        return found

    def _around(self, frame: PythonFrame, tree: ast.Module, depth: int) -> Spot | None:
        """The running function that a lambda of one line is written in: it has its variables as they are now."""
        scope = scope_of(tree, frame.line or 0)
        outer = (self.spot(at) for at in range(depth + 1, len(self._frames)))
        return next((item for item in outer if item is not None and item.scope is scope), None)

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
        found = last_binding(spot.scope, name, spot.line)
        if found is None and not isinstance(spot.scope, ast.Module):
            if reaching(spot.scope, name, spot.line) not in (None, {ENTRY}):
                return None
            if name in parameters(spot.scope):
                return self.argument(name, spot)
            if places_that_bind(spot.scope, name) or is_of_outer(spot.tree, spot.scope, name):
                return None
            outer = structs.replace(spot, scope=spot.tree, line=END, depth=None, call=None)
            found, spot = only_global(spot.tree, name), outer
        if found is None:
            return None
        line, value, index = found
        if value is None:
            return None
        at = structs.replace(spot, line=line)
        return (value, at) if index is None else self._item(value, index, at)

    def argument(self, name: str, spot: Spot) -> tuple[ast.AST, Spot] | None:
        """What the caller passed for a parameter, or its default."""
        function = spot.scope
        if isinstance(function, (ast.Module, ast.Lambda)):
            return None
        called = spot.call or self._caller(function, spot)
        if called is None:
            return self._passed_by_each(function, name, spot)
        call, outer = called
        value = argument_of(call, function, name)
        if value is not None:
            return value, outer
        spread = any(item.arg is None for item in call.keywords) or any(isinstance(a, ast.Starred) for a in call.args)
        default = default_of(function, name)
        return (default, spot) if default is not None and not spread else None

    def _passed_by_each(
        self, function: ast.FunctionDef | ast.AsyncFunctionDef, name: str, spot: Spot
    ) -> tuple[ast.AST, Spot] | None:
        """What all calls of a line that may have led into the function pass alike."""
        outer = self.spot(spot.depth + 1) if spot.depth is not None else None
        if outer is None or spot.depth is None or (function.name in MADE_ON_CALL and not self._is_direct(spot.depth)):
            return None
        line = self._frames[spot.depth + 1].line or outer.line
        calls = calls_that_lead(outer.tree, line, function, class_around(spot.tree, function))
        values = [argument_of(call, function, name) for call in calls]
        first = values[0] if values else None
        return (first, outer) if first is not None and all(_is_alike(first, item) for item in values) else None

    def _caller(self, function: ast.FunctionDef | ast.AsyncFunctionDef, spot: Spot) -> tuple[ast.Call, Spot] | None:
        if spot.depth is not None:
            outer = self.spot(spot.depth + 1)
            if function.name in MADE_ON_CALL and not self._is_direct(spot.depth):
                return None
            line = self._frames[spot.depth + 1].line if outer is not None else None  # a lambda's own
            owner = class_around(spot.tree, function)
            call = call_of(outer.tree, line or outer.line, function, owner) if outer is not None else None
            if call is None and self._failing is not None and self._failing[0] == spot.depth + 1:
                call = self._failing[1] if function.name == "__init__" else None
            return (call, outer) if call is not None and outer is not None else None
        owner = class_around(spot.tree, function)
        if owner is None or function.name != "__init__":
            return None
        return self._only_construction(owner, spot)

    def _is_direct(self, depth: int) -> bool:
        """Whether a frame was called by the next one of the program; nn.Sequential passes on what another gave."""
        places = [n for n, item in enumerate(self._stack) if item in self._frames[depth : depth + 2]]
        between = self._stack[places[0] + 1 : places[-1]] if len(places) == 2 else ()
        return all((item.file or "").endswith(_PASSING_ON) or "/_dynamo/" in (item.file or "") for item in between)

    def _only_construction(self, owner: ast.ClassDef, spot: Spot) -> tuple[ast.Call, Spot] | None:
        """The one `Net(...)` in the program's files."""
        found = only_construction(self._files(spot), owner, first_file(self._snapshot, self._frames))
        if found is None:
            return None
        at = Spot(found.file, found.tree, scope_of(found.tree, found.call.lineno), found.call.lineno)
        depth = next((n for n, item in enumerate(self._frames) if at.is_of(item)), None)
        return found.call, structs.replace(at, depth=depth)

    # ---- attributes and items

    def _attribute(self, node: ast.Attribute, spot: Spot) -> tuple[ast.AST, Spot] | None:
        if variable(node) is not None:  # self.x
            owner = class_around(spot.tree, spot.scope)
            if owner is None:
                return None
            construction = None
            if isinstance(spot.scope, ast.FunctionDef) and spot.scope.name == "__init__":
                construction = spot.call
            return self._of_instance(owner, node.attr, structs.replace(spot, call=construction, depth=None))
        base = self.made(node.value, spot, calls=True)
        if not isinstance(base.node, ast.Call):
            return self._of_class(base, node.attr)
        made = self.defined(base.node.func, base.spot)
        if made is not None and isinstance(made[0], ast.ClassDef):
            inside = structs.replace(made[1], call=(base.node, base.spot))
            return self._of_instance(made[0], node.attr, inside)
        if is_stored(self._trees(base.spot), node.attr):
            return None
        if called_name(base.node) in ("Namespace", "SimpleNamespace", "EasyDict"):
            value = next((item.value for item in base.node.keywords if item.arg == node.attr), None)
            return (value, base.spot) if value is not None else None
        return parsed_option(base, node.attr) if called_name(base.node) in ("parse_args", "parse_known_args") else None

    def _trees(self, spot: Spot) -> list[ast.Module]:
        return [*self._files(spot).values()]

    def _files(self, spot: Spot) -> dict[str, ast.Module]:
        """The spot's file, and those of the program."""
        return {spot.file or "": spot.tree, **self._program}

    @cached_property
    def _program(self) -> dict[str, ast.Module]:
        return program_files(self._snapshot, self._frames)

    def _of_class(self, base: Made, name: str) -> tuple[ast.AST, Spot] | None:
        """`Options.rate`, which only the class itself sets."""
        found = self.defined(base.node, base.spot)
        if found is None or not isinstance(found[0], ast.ClassDef):
            return None
        stored = (item for item in nodes_of(base.spot.tree) if isinstance(item, ast.Attribute) and item.attr == name)
        if any(isinstance(item.ctx, ast.Store) for item in stored):
            return None
        return self._of_instance(found[0], name, found[1])

    def _of_instance(self, owner: ast.ClassDef, name: str, spot: Spot) -> tuple[ast.AST, Spot] | None:
        if any(set_from_outside(tree, owner, name) for tree in self._trees(spot)):
            return None
        methods = [item for item in owner.body if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef))]
        sets = [
            (method, line, value, index)
            for method in methods
            for line, value, index in bindings_of(method, f"self.{name}")
        ]
        first = [item for item in sets if item[0].name == "__init__"]
        if len(sets) == 1 and len(first) == 1:
            method, line, value, index = first[0]
            if value is None:
                return None
            at = structs.replace(spot, scope=method, line=line, depth=None)
            return (value, at) if index is None else self._item(value, index, at)
        if sets:
            return None
        fields = [item for item in owner.body if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)]
        names = [item.target.id for item in fields if isinstance(item.target, ast.Name)]
        if name in names and not any(item.name == "__init__" for item in methods):
            called = spot.call or self._only_construction(owner, spot)
            if called is not None:
                place = names.index(name)
                given = keyword_value(called[0], name)
                if given is None and place < len(called[0].args):
                    given = called[0].args[place]
                if given is not None:
                    return given, called[1]
        plain = [item for item in (*fields, *owner.body) if isinstance(item, (ast.AnnAssign, ast.Assign))]
        for item in plain:
            targets = item.targets if isinstance(item, ast.Assign) else [item.target]
            if any(isinstance(part, ast.Name) and part.id == name for part in targets) and item.value is not None:
                return item.value, structs.replace(spot, scope=spot.tree, line=item.lineno, depth=None, call=None)
        base = self._base(owner, spot)
        return self._of_instance(base[0], name, structs.replace(base[1], call=spot.call)) if base is not None else None

    def _item(self, value: ast.AST, key: object, spot: Spot) -> tuple[ast.AST, Spot] | None:
        """`config["width"]`, `a` of `a, b = pair()`."""
        base = self.made(value, spot, calls=True)
        node = base.node
        if isinstance(node, (ast.Dict, ast.Call)) and isinstance(key, str) and is_stored(self._trees(base.spot), key):
            return None
        if isinstance(node, (ast.Tuple, ast.List)) and isinstance(key, int):
            whole = not any(isinstance(item, ast.Starred) for item in node.elts)
            return (node.elts[key], base.spot) if whole and -len(node.elts) <= key < len(node.elts) else None
        if isinstance(node, ast.Dict):
            return self._of_dict(node, key, base.spot)
        if isinstance(node, ast.Call) and called_name(node) == "dict" and not node.args:
            given = keyword_value(node, key) if isinstance(key, str) else None
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
        given = keyword_value(called[0], key) if called and isinstance(key, str) else None
        return (given, called[1]) if called is not None and given is not None else None

    # ---- calls

    def _call(self, call: ast.Call, spot: Spot) -> tuple[ast.AST, Spot] | None:
        if called_name(call) in _SAME and len(call.args) == 1 and not call.keywords:
            return call.args[0], spot
        if called_name(call) == "field" and not call.args:  # of a dataclass
            factory = keyword_value(call, "default_factory")
            made = keyword_value(call, "default") or (ast.Call(factory, [], []) if factory is not None else None)
            return (ast.copy_location(made, call), spot) if made is not None else None
        return self.returned(call, spot)

    def returned(self, call: ast.Call, spot: Spot) -> tuple[ast.AST, Spot] | None:
        """What the program's own function that is called returns, if it has one `return`."""
        found = self.function(call, spot)
        if found is None:
            return None
        function, at = found
        returns = [item for item in own_nodes(function) if isinstance(item, ast.Return)]
        if len(returns) != 1 or returns[0].value is None or any(_yields(item) for item in own_nodes(function)):
            return None
        return returns[0].value, structs.replace(
            at, scope=function, line=returns[0].lineno + 1, depth=None, call=(call, spot)
        )

    def function(self, call: ast.Call, spot: Spot) -> tuple[ast.FunctionDef, Spot] | None:
        """The program's own function or method that is called; of an object forward() or __call__()."""
        made = self.defined(call.func, spot)
        if made is not None:
            return (made[0], made[1]) if isinstance(made[0], ast.FunctionDef) else None
        names: tuple[str, ...] = MADE_ON_CALL
        owner: tuple[ast.AST, Spot] | None = None
        func = call.func
        if isinstance(func, ast.Attribute):
            inside = class_around(spot.tree, spot.scope)
            if isinstance(func.value, ast.Name) and func.value.id == "self" and inside is not None:
                owner, names = self._with_method(inside, (func.attr,), spot), (func.attr,)
                if any(method_of(part, names) for tree in self._trees(spot) for part in derived_of(tree, inside)):
                    return None  # which of them is meant is not known
                if method_of(owner[0], names) is None:  # a layer of its own
                    owner, names = self.class_of(func, spot), MADE_ON_CALL
            else:
                owner, names = self.class_of(func.value, spot), (func.attr,)
        elif isinstance(func, (ast.Name, ast.Call)):  # `Net()(x)`
            owner = self.class_of(func, spot)
        if owner is None or not isinstance(owner[0], ast.ClassDef):
            return None
        kind, at = self._with_method(owner[0], names, owner[1])
        method = method_of(kind, names)
        return (method, at) if method is not None else None

    def _base(self, owner: ast.ClassDef, spot: Spot) -> tuple[ast.ClassDef, Spot] | None:
        """The class of the program that a class is derived from, if it is the only one."""
        found = self.defined(owner.bases[0], spot) if len(owner.bases) == 1 else None
        return (found[0], found[1]) if found is not None and isinstance(found[0], ast.ClassDef) else None

    def _with_method(self, owner: ast.ClassDef, names: Sequence[str], spot: Spot) -> tuple[ast.ClassDef, Spot]:
        """The class that has one of these methods, of those that a class is derived from; else that class."""
        found: tuple[ast.ClassDef, Spot] | None = (owner, spot)
        for _ in range(_HOPS):
            if found is None or method_of(found[0], names) is not None:
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
        found = self.class_of(node, spot)
        return found is not None and method_of(found[0], ("forward",)) is not None

    def class_of(self, node: ast.AST, spot: Spot) -> tuple[ast.AST, Spot] | None:
        """The class of the program, or what it calls, that the object of an expression was made by."""
        base = self.made(node, spot, calls=True)
        for _ in range(_HOPS):
            inner = same_object(base.node)
            if inner is None:
                break
            base = self.made(inner, base.spot, calls=True)
        if not isinstance(base.node, ast.Call):
            return None
        return self.defined(base.node.func, base.spot) or self._made_by_class(base.node.func, base.spot)

    def _made_by_class(self, func: ast.expr, spot: Spot) -> tuple[ast.AST, Spot] | None:
        """`Image` of `Image.load(path)`, a classmethod that returns `cls(...)` wherever it returns."""
        if not isinstance(func, ast.Attribute):
            return None
        owner = self.defined(func.value, spot)
        method = method_of(owner[0], (func.attr,)) if owner is not None and isinstance(owner[0], ast.ClassDef) else None
        if owner is None or method is None or [ast.unparse(item) for item in method.decorator_list] != ["classmethod"]:
            return None
        values = [item.value for item in own_nodes(method) if isinstance(item, ast.Return)]
        makes = values and all(isinstance(item, ast.Call) and ast.unparse(item.func) == "cls" for item in values)
        return owner if makes else None

    def defined(self, node: ast.AST, spot: Spot) -> tuple[ast.AST, Spot] | None:
        """The class or function of the program that a name means; in its other files, too."""
        return defined(self._snapshot, node, spot, first_file(self._snapshot, self._frames))


def _is_alike(first: ast.expr, other: ast.expr | None) -> bool:
    """Whether both are the same variable, or the same attribute of one."""
    plain = isinstance(first, (ast.Name, ast.Attribute))
    return plain and other is not None and ast.unparse(first) == ast.unparse(other)


def _yields(node: ast.AST) -> bool:
    return isinstance(node, (ast.Yield, ast.YieldFrom))
