"""Whether all ranks of a job have the same value, and all come to a line: only where the source proves it.

Every obligation is followed to constants, options of the command line, pure functions and what a collective has made
alike. The first one that cannot be met ends the proof; what only repeats an obligation is met (by induction).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

import msgspec

from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.slicing.callers import calls_named, mentions, only_function
from pytracer.analyze.evidence.slicing.calls import argument_of, calls_that_lead
from pytracer.analyze.evidence.slicing.spots import END, Spot
from pytracer.analyze.evidence.syntax.bindings import is_of_outer
from pytracer.analyze.evidence.syntax.calls import called_name, keyword_value
from pytracer.analyze.evidence.syntax.imports import imported_as, imported_names
from pytracer.analyze.evidence.syntax.loops import LOOPS
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.ranks import reads_rank
from pytracer.analyze.evidence.syntax.scopes import (
    Scope,
    class_around,
    classes_below,
    default_of,
    definitions,
    is_parameter,
    own_nodes,
    parameters,
    parents_of,
)

_MOST = 400
_PURE = frozenset(
    {f"os.path.{name}" for name in ("join", "basename", "dirname", "splitext", "normpath", "abspath", "expanduser")}
    | {f"os.path.{name}" for name in ("exists", "isfile", "isdir", "lexists")}
    | {"os.fspath", "os.listdir", "glob.glob", "glob.iglob", "pathlib.Path", "pathlib.PurePath"}
    | {"torch.distributed.get_world_size", "torch.distributed.is_initialized", "torch.distributed.is_available"}
)
_BUILTIN = frozenset(
    {"len", "max", "min", "sorted", "range", "enumerate", "zip", "list", "tuple", "str", "int", "float", "bool", "abs"}
    | {"round", "sum", "any", "all", "reversed", "format", "print"}
)
_METHODS = frozenset(
    {"join", "joinpath", "format", "zfill", "with_name", "with_suffix", "replace", "strip", "lstrip", "rstrip", "lower"}
    | {"upper", "startswith", "endswith", "split", "get", "keys", "values", "items", "copy", "index", "count", "pop"}
    | {"popitem", "glob", "rglob", "iterdir", "exists", "is_file", "is_dir", "as_posix", "item"}
)
_ASKS = ("exists", "isfile", "isdir", "lexists", "is_file", "is_dir")
_LISTS = ("listdir", "glob", "iglob", "rglob", "iterdir")
_KEYS = ("os.path.getmtime", "os.path.getsize", "os.path.getctime")
_CHANGES = frozenset(
    {"append", "add", "insert", "extend", "pop", "popitem", "remove", "clear", "update", "setdefault", "sort"}
    | {"reverse", "discard"}
)
_PARTS = frozenset({"parent", "name", "stem", "suffix"})
_WHOLE = (ast.JoinedStr, ast.FormattedValue, ast.BinOp, ast.BoolOp, ast.Compare, ast.UnaryOp, ast.IfExp, ast.Tuple,
          ast.List, ast.Dict, ast.Subscript, ast.Slice, ast.Starred)  # fmt: skip
_COMPREHENSIONS = (ast.ListComp, ast.GeneratorExp, ast.DictComp)
_CONTAINERS = (ast.List, ast.Dict, ast.ListComp, ast.DictComp)
_MAKES = ("list", "dict", "sorted", "listdir", "glob")
_MADE_ALIKE = ("torch.distributed.all_reduce", "torch.distributed.broadcast", "torch.distributed.broadcast_object_list")
_HARMLESS = ("torch.no_grad", "torch.inference_mode", "torch.distributed.elastic.multiprocessing.errors.record")
_SPAWNS = ("torch.multiprocessing.spawn", "torch.multiprocessing.start_processes")
_UNSEEN = ("chdir", "setattr", "__setattr__", "__dict__", "set_defaults", "vars", "exec", "eval", "globals", "locals")
_OF_OBJECTS = ("eval", "exec")  # `model.eval()` is no such call
_OF_MODULES = ("__name__", "__file__")


class _Unproven(Exception):
    """What all ranks may not have alike."""


class _Value(msgspec.Struct, frozen=True):
    """To be the same on all ranks; `option`: as the object of the parsed command line that has it."""

    node: ast.AST
    spot: Spot
    option: str | None = None


class _Reached(msgspec.Struct, frozen=True):
    """To be run by all ranks, and as often."""

    node: ast.AST
    spot: Spot


_Obligation = _Value | _Reached


def is_alike_on_all_ranks(at: FailingLine, operation: ast.Call, path: ast.expr, *, makes: bool) -> bool:
    """Whether the program proves that each rank comes to the operation of the failing line, with the same path.

    What a folder has is asked at other times by other ranks: only what was there, and is gone, shows another one.
    """
    try:
        _Proof(at, ast.unparse(path), makes).check(operation, path)
    except _Unproven:
        return False
    return True


class _Proof:
    def __init__(self, at: FailingLine, path: str, makes: bool) -> None:
        self._at, self._path, self._makes = at, path, makes
        self._files = at.files

    def check(self, operation: ast.Call, path: ast.expr) -> None:
        """Raises _Unproven."""
        for tree in self._files.values():
            if any(map(_is_unseen, nodes_of(tree))):
                raise _Unproven
        waiting = [*self._way(operation)]
        spot = self._at.slice.spot(0)
        waiting += [_Value(path, spot)] if spot is not None else []
        seen, held = set[tuple[int, int, object, object]](), list[_Obligation]()
        while waiting:
            item = waiting.pop()
            kind = item.option if isinstance(item, _Value) else True
            key = (id(item.node), id(item.spot.scope), item.spot.depth, kind)
            if key in seen:
                continue
            seen.add(key)
            held.append(item)  # so that no other node gets its id
            if len(held) > _MOST:
                raise _Unproven
            waiting += self._value(item) if isinstance(item, _Value) else self._reached(item)

    # ---- the way

    def _way(self, operation: ast.Call) -> Iterator[_Obligation]:
        """By the frames of the stack, with no function of a library between them."""
        stack, frames = self._at.stack, self._at.frames
        first = next(n for n, item in enumerate(stack) if item is frames[0])
        if len(stack) < first + len(frames) or any(stack[first + n] is not item for n, item in enumerate(frames)):
            raise _Unproven
        inner: Spot | None = None
        for depth in range(len(frames)):
            spot = self._at.slice.spot(depth)
            if spot is None or spot.depth != depth:
                raise _Unproven
            calls = [operation] if inner is None else self._leading(inner, spot)
            yield from (_Reached(call, spot) for call in calls)
            inner = spot
        if inner is not None and inner.scope is not inner.tree:
            yield from self._callers(inner)

    def _leading(self, inner: Spot, spot: Spot) -> list[ast.Call]:
        function = inner.scope
        if not isinstance(function, ast.FunctionDef):
            raise _Unproven
        found = [*calls_that_lead(spot.tree, spot.line, function, class_around(inner.tree, function))]
        if not found:
            raise _Unproven
        return found

    def _reached(self, item: _Reached) -> Iterator[_Obligation]:
        spot, parents = item.spot, parents_of(item.spot.tree)
        yield from self._conditions(item.node, spot)
        line = getattr(item.node, "lineno", spot.line)
        around = [part for part in _above(item.node, spot.scope, parents) if isinstance(part, LOOPS)]
        for part in own_nodes(spot.scope):
            if not isinstance(part, (ast.Return, ast.Raise, ast.Continue, ast.Break)) or part is item.node:
                continue
            loops = [loop for loop in _above(part, spot.scope, parents) if isinstance(loop, LOOPS)]
            if isinstance(part, (ast.Continue, ast.Break)):
                leaves = bool(loops) and loops[0] in around
            else:
                leaves = part.lineno < line or any(loop in around for loop in loops)
            if leaves:
                yield from self._conditions(part, spot)
        if isinstance(spot.scope, ast.Module):
            return
        self._is_plain(spot.scope)
        if spot.call is not None:
            yield _Reached(*spot.call)
        elif spot.depth is None:
            yield from self._callers(spot)

    def _conditions(self, node: ast.AST, spot: Spot) -> Iterator[_Obligation]:
        """What decides, in its function, whether it runs."""
        inner, parents = node, parents_of(spot.tree)
        for part in _above(node, spot.scope, parents):
            if isinstance(part, (ast.If, ast.While, ast.IfExp)):
                yield _Value(part.test, spot)
            elif isinstance(part, ast.For):
                yield _Value(part.iter, spot)
            elif isinstance(part, ast.BoolOp):
                yield from (_Value(item, spot) for item in part.values if item is not inner)
            elif isinstance(part, _COMPREHENSIONS):
                yield from (_Value(item.iter, spot) for item in part.generators)
                yield from (_Value(test, spot) for item in part.generators for test in item.ifs)
            elif (isinstance(part, ast.Try) and part.handlers and inner not in part.finalbody) or isinstance(
                part, (ast.ExceptHandler, ast.AsyncFor, ast.Match, ast.Lambda, ast.SetComp, ast.ClassDef)
            ):
                raise _Unproven
            inner = part

    def _is_plain(self, function: ast.AST) -> None:
        """No decorator that may choose who calls it, and no generator."""
        if not isinstance(function, ast.FunctionDef):
            raise _Unproven
        tree = next((item for item in self._files.values() if function in parents_of(item)), None)
        for item in function.decorator_list:
            named = item.func if isinstance(item, ast.Call) else item
            own = isinstance(named, ast.Name) and named.id in ("staticmethod", "classmethod")
            if not own and (tree is None or imported_as(tree, named) not in _HARMLESS):
                raise _Unproven
        if any(isinstance(item, (ast.Yield, ast.YieldFrom)) for item in own_nodes(function)):
            raise _Unproven

    def _callers(self, spot: Spot) -> Iterator[_Obligation]:
        self._is_plain(spot.scope)
        yield from (_Reached(call, place) for call, place in self._sites(spot))

    def _sites(self, spot: Spot) -> list[tuple[ast.Call, Spot]]:
        """Every call of a function, which nothing else in the program names; also spawn(), which starts it."""
        function = spot.scope
        if not isinstance(function, ast.FunctionDef):
            raise _Unproven
        owner, name = class_around(spot.tree, function), function.name
        if name == "__init__" and owner is not None:
            name = owner.name
            named = sum(len(definitions(tree).get(name, ())) for tree in self._files.values())
            if named != 1 or classes_below(self._files.values(), owner):
                raise _Unproven
        elif name.startswith("__") or only_function(self._files, name) is None:
            raise _Unproven
        found = []
        for file, tree, item in mentions(self._files, name):
            call = parents_of(tree).get(item)
            own = isinstance(call, ast.Call) and (call.func is item or (_is_spawn(tree, call) and call.args[0] is item))
            if not own or not isinstance(call, ast.Call):
                raise _Unproven
            found.append((call, Spot(file, tree, _scope_of(tree, call), call.lineno)))
        renamed = (item for tree in self._files.values() for item in nodes_of(tree) if isinstance(item, ast.alias))
        if not found or any(item.name == name and item.asname for item in renamed):
            raise _Unproven
        return found

    # ---- values

    def _value(self, item: _Value) -> Iterator[_Obligation]:
        node, spot = item.node, item.spot
        name = variable(node)
        if isinstance(node, ast.expr) and isinstance(node, (ast.Name, ast.Attribute, ast.Call)) and reads_rank(node):
            raise _Unproven
        if name is not None:
            yield from self._attribute(item, name) if name.startswith("self.") else self._name(item, name)
        elif isinstance(node, ast.Call):
            yield from self._call(node, spot, item.option)
        elif item.option is not None:
            raise _Unproven
        elif isinstance(node, ast.Attribute):
            yield _Value(node.value, spot, None if node.attr in _PARTS else node.attr)
        elif isinstance(node, _WHOLE):
            yield from (_Value(part, spot) for part in ast.iter_child_nodes(node) if isinstance(part, ast.expr))
        elif isinstance(node, _COMPREHENSIONS):
            parts = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
            yield from (_Value(part, spot) for part in parts)
            for generator in node.generators:
                yield from (_Value(part, spot) for part in (generator.iter, *generator.ifs))
        elif not isinstance(node, ast.Constant):
            raise _Unproven

    def _call(self, call: ast.Call, spot: Spot, option: str | None) -> Iterator[_Obligation]:
        given = [*call.args, *(item.value for item in call.keywords if item.arg != "key")]
        origin, name = imported_as(spot.tree, call.func), called_name(call)
        if name == "parse_args" and isinstance(call.func, ast.Attribute) and not given:
            yield from self._option(option) if option is not None else ()
            return
        function = self._at.slice.function(call, spot)
        if function is not None and function[0].name == name:
            self._is_plain(function[0])
            place = Spot(function[1].file, function[1].tree, function[0], END, call=(call, spot))
            for item in own_nodes(function[0]):
                if isinstance(item, ast.Return):
                    yield from (_Value(part, place, option) for part in (item.value,) if part is not None)
                    yield _Reached(item, place)
            return
        if option is not None or name is None or any(name in definitions(tree) for tree in self._files.values()):
            raise _Unproven
        owner = call.func.value if isinstance(call.func, ast.Attribute) else None
        about = {*map(ast.unparse, call.args), *([ast.unparse(owner)] if owner is not None else [])}
        if (name in _ASKS and self._path not in about) or (name in _LISTS and self._makes):
            raise _Unproven  # another rank may ask when the answer is another one
        key = keyword_value(call, "key")
        if key is not None and imported_as(spot.tree, key) not in _KEYS:
            if not isinstance(key, ast.Attribute) or key.attr != "get":
                raise _Unproven
            given.append(key.value)
        if isinstance(call.func, ast.Name) and origin is None:
            if name not in _BUILTIN or self._is_bound(spot.tree, name):
                raise _Unproven
        elif origin is not None:
            if origin not in _PURE:
                raise _Unproven
        elif isinstance(call.func, ast.Attribute) and name in _METHODS:
            given.append(call.func.value)
        else:
            raise _Unproven
        yield from (_Value(part, spot) for part in given)

    def _is_bound(self, tree: ast.Module, name: str) -> bool:
        stored = (item.id for item in nodes_of(tree) if isinstance(item, ast.Name) and isinstance(item.ctx, ast.Store))
        return name in {*stored, *imported_names(tree)}

    def _option(self, name: str) -> Iterator[_Obligation]:
        """Of the command line: its default, which no line of the program changes afterwards."""
        found = 0
        for tree in self._files.values():
            for item in nodes_of(tree):
                changed = isinstance(item, ast.Attribute) and item.attr == name and not isinstance(item.ctx, ast.Load)
                if changed and variable(item) is None:
                    raise _Unproven
        for file, tree, call in calls_named(self._files, "add_argument"):
            flags = [part.value for part in call.args if isinstance(part, ast.Constant) and isinstance(part.value, str)]
            dest = keyword_value(call, "dest")
            if dest is None and name not in {flag.lstrip("-").replace("-", "_") for flag in flags}:
                continue
            if dest is not None and not (isinstance(dest, ast.Constant) and dest.value == name):
                continue
            found += 1
            kind, default = keyword_value(call, "type"), keyword_value(call, "default")
            if kind is not None and ast.unparse(kind) not in ("int", "float", "str", "Path", "pathlib.Path"):
                raise _Unproven
            if default is not None:
                yield _Value(default, Spot(file, tree, _scope_of(tree, call), call.lineno))
        if found != 1:
            raise _Unproven

    def _name(self, item: _Value, name: str) -> Iterator[_Obligation]:
        spot = item.spot
        if name in _OF_MODULES:
            return
        made = self._made_alike(item, name)
        if made is not None:
            yield _Reached(made, spot)
            return
        own = [part for part in own_nodes(spot.scope) if isinstance(part, ast.Name) and part.id == name]
        stored = [part for part in own if not isinstance(part.ctx, ast.Load)]
        if self._is_bound_otherwise(spot.tree, name):
            raise _Unproven
        if not stored and not is_parameter(spot.scope, name):
            if isinstance(spot.scope, ast.Module) or is_of_outer(spot.tree, spot.scope, name):
                raise _Unproven
            yield _Value(ast.Name(name, ast.Load()), Spot(spot.file, spot.tree, spot.tree, END), item.option)
            return
        yield from self._bound(stored, spot, item.option)
        if is_parameter(spot.scope, name):
            yield from self._parameter(name, spot, item.option)
        given = [(part, spot) for part in stored]
        yield from self._uses([part for part in own if isinstance(part.ctx, ast.Load)], given, spot)
        if isinstance(spot.scope, ast.Module):  # its functions may change it, too
            for part in nodes_of(spot.tree):
                if isinstance(part, ast.Name) and part.id == name and not any(part is one for one in own):
                    place = Spot(spot.file, spot.tree, _scope_of(spot.tree, part), part.lineno)
                    if isinstance(part.ctx, ast.Load):
                        yield from self._uses([part], given, place)

    def _is_bound_otherwise(self, tree: ast.Module, name: str) -> bool:
        """By `global`, an import, an `except`, a definition."""
        for item in nodes_of(tree):
            if isinstance(item, (ast.Global, ast.Nonlocal)) and name in item.names:
                return True
            if isinstance(item, (ast.ExceptHandler, ast.FunctionDef, ast.ClassDef)) and item.name == name:
                return True
        return name in imported_names(tree)

    def _made_alike(self, item: _Value, name: str) -> ast.Call | None:
        """`dist.all_reduce(total)` of the function's own block, behind all that makes `total`."""
        body = getattr(item.spot.scope, "body", None)
        line = getattr(item.node, "lineno", 0)
        for part in reversed(body) if isinstance(body, list) else ():
            call = part.value if isinstance(part, ast.Expr) else None
            if not isinstance(call, ast.Call) or imported_as(item.spot.tree, call.func) not in _MADE_ALIKE:
                continue
            if part.lineno >= line or variable(call.args[0] if call.args else call) != name or len(call.args) > 2:
                continue
            if any(word.arg not in ("src", "op") for word in call.keywords):
                continue
            later = (one for one in own_nodes(item.spot.scope) if isinstance(one, (ast.Name, ast.Subscript)))
            stores = (one for one in later if not isinstance(one.ctx, ast.Load) and one.lineno >= part.lineno)
            if not any(_root(one) == name for one in stores):
                return call
        return None

    def _parameter(self, name: str, spot: Spot, option: str | None) -> Iterator[_Obligation]:
        if spot.depth is not None or spot.call is not None:
            step = self._at.slice.argument(name, spot)
            if step is not None:
                yield _Value(*step, option)
                return
            if spot.call is not None or spot.depth != len(self._at.frames) - 1:
                raise _Unproven
        function = spot.scope
        if not isinstance(function, ast.FunctionDef) or name in ("self", "cls"):
            raise _Unproven
        for call, place in self._sites(spot):
            value = _spawned(call, function, name) if _is_spawn(place.tree, call) else argument_of(call, function, name)
            spread = any(one.arg is None for one in call.keywords) or any(isinstance(a, ast.Starred) for a in call.args)
            if value is None and not spread and not _is_spawn(place.tree, call):
                value, place = default_of(function, name), spot
            if value is None:
                raise _Unproven
            yield _Value(value, place, option)

    def _attribute(self, item: _Value, name: str) -> Iterator[_Obligation]:
        """Of `self`: all lines of the program that store it, whoever calls them."""
        spot, attribute = item.spot, name.partition(".")[2]
        owner = class_around(spot.tree, spot.scope)
        if owner is None or classes_below(self._files.values(), owner):
            raise _Unproven
        if any(attribute in definitions(tree) for tree in self._files.values()):
            raise _Unproven
        stored, loads = list[tuple[ast.expr, Spot]](), list[tuple[ast.expr, Spot]]()
        for file, tree in self._files.items():
            for part in nodes_of(tree):
                if not isinstance(part, ast.Attribute) or part.attr != attribute:
                    continue
                scope = _scope_of(tree, part)
                place = Spot(file, tree, scope, part.lineno)
                if isinstance(part.ctx, ast.Load):
                    loads.append((part, place))
                elif variable(part) != name:
                    raise _Unproven
                elif class_around(tree, scope) is owner:
                    stored.append((part, place))
        if not stored or any(_root(part) == attribute for part in owner.body):
            raise _Unproven
        for part, place in stored:
            yield from self._bound([part], place, item.option)
        for part, place in loads:
            yield from self._uses([part], stored, place)

    # ---- what gives a variable its values

    def _bound(self, stored: Sequence[ast.expr], spot: Spot, option: str | None) -> Iterator[_Obligation]:
        for target in stored:
            statement, value = _binding(target, spot)
            yield _Value(value, spot, option)
            if isinstance(statement, ast.AugAssign):
                yield _Value(value, spot)
            if not isinstance(statement, ast.comprehension):
                yield _Reached(statement, spot)

    def _uses(
        self, loads: Sequence[ast.expr], stored: Sequence[tuple[ast.expr, Spot]], spot: Spot
    ) -> Iterator[_Obligation]:
        """What may change a list or another container: each such line, and none that hands it to others."""
        parents = parents_of(spot.tree)
        mutable = any(_is_container(*item) for item in stored)
        for item in loads:
            above = parents.get(item)
            over = parents.get(above) if above is not None else None
            if isinstance(above, ast.Attribute) and isinstance(over, ast.Call) and over.func is above:
                if above.attr in _CHANGES or (above.attr.endswith("_") and above.attr[:1] != "_"):
                    yield from (_Value(part, spot) for part in (*over.args, *(one.value for one in over.keywords)))
                    yield _Reached(over, spot)
            elif isinstance(above, ast.Subscript) and above.value is item and not isinstance(above.ctx, ast.Load):
                yield _Value(above.slice, spot)
                yield _Reached(above, spot)
                if not isinstance(over, ast.Delete):
                    yield _Value(_binding(above, spot)[1], spot)
            elif mutable and isinstance(above, (ast.Call, ast.keyword, ast.Starred)):
                call = above if isinstance(above, ast.Call) else over
                own = isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in _BUILTIN
                if not own and (not isinstance(call, ast.Call) or imported_as(spot.tree, call.func) not in _PURE):
                    raise _Unproven
            elif mutable and isinstance(above, (ast.Assign, ast.Return, ast.Tuple, ast.List, ast.Dict, ast.NamedExpr)):
                raise _Unproven


def _binding(target: ast.expr, spot: Spot) -> tuple[ast.AST, ast.expr]:
    """The statement that stores into a target, and the value; of a tuple of the same length its item."""
    parents = parents_of(spot.tree)
    above, place = parents.get(target), None
    if isinstance(above, (ast.Tuple, ast.List)):
        place, above = (above, above.elts.index(target)), parents.get(above)
    if isinstance(above, (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.NamedExpr)) and above.value is not None:
        value = above.value
        if place is not None and isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(place[0].elts):
            starred = any(isinstance(item, ast.Starred) for item in (*value.elts, *place[0].elts))
            value = value if starred else value.elts[place[1]]
        return above, value
    if isinstance(above, (ast.For, ast.comprehension)):
        return above, above.iter
    raise _Unproven


def _is_container(target: ast.expr, spot: Spot) -> bool:
    """Whether it is given a list or the like."""
    statement, value = _binding(target, spot)
    if isinstance(statement, (ast.For, ast.comprehension)):
        return False
    return isinstance(value, _CONTAINERS) or (isinstance(value, ast.Call) and called_name(value) in _MAKES)


def _scope_of(tree: ast.Module, node: ast.AST) -> Scope:
    """Also of what stands on the line of its `def`."""
    around = _above(node, tree, parents_of(tree))
    return next(
        (item for item in around if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))), tree
    )


def _above(node: ast.AST, scope: ast.AST, parents: dict[ast.AST, ast.AST]) -> Iterator[ast.AST]:
    """What it stands in, up to its function, the innermost first."""
    above = parents.get(node)
    while above is not None and above is not scope:
        yield above
        above = parents.get(above)


def _root(node: ast.AST) -> str | None:
    """`x` of `x[0]`, and of `x: int = 0`."""
    if isinstance(node, ast.Subscript):
        return _root(node.value)
    if isinstance(node, ast.Assign):
        return _root(node.targets[0])
    return _root(node.target) if isinstance(node, ast.AnnAssign) else variable(node)


def _is_unseen(node: ast.AST) -> bool:
    """Whether it may set what the source does not show, or the folder that relative paths begin in."""
    name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else None
    if isinstance(node, ast.alias):
        name = node.name
    return name in _UNSEEN and not (isinstance(node, ast.Attribute) and name in _OF_OBJECTS)


def _is_spawn(tree: ast.Module, call: ast.Call) -> bool:
    return imported_as(tree, call.func) in _SPAWNS and bool(call.args)


def _spawned(call: ast.Call, function: ast.FunctionDef, name: str) -> ast.expr | None:
    """What spawn() gives for a parameter; the first one is the number of the process."""
    given = keyword_value(call, "args") or (call.args[1] if len(call.args) > 1 else None)
    place = parameters(function).index(name) - 1 if name in parameters(function) else -1
    items = given.elts if isinstance(given, ast.Tuple) else []
    whole = not any(isinstance(item, ast.Starred) for item in items)
    return items[place] if whole and 0 <= place < len(items) else None
