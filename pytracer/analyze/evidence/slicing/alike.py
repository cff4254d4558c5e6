"""Whether all ranks of a job have the same value, and all come to a line: only where the source proves it.

Every obligation is followed to constants, options of the command line, pure functions and what a collective has made
alike. The first one that cannot be met ends the proof; what only repeats an obligation is met (by induction).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.slicing.alike_ways import Ways, is_spawn, is_spawned, spawned_value, uses_inside
from pytracer.analyze.evidence.slicing.callers import calls_named
from pytracer.analyze.evidence.slicing.calls import argument_of
from pytracer.analyze.evidence.slicing.obligations import (
    Obligation,
    Reached,
    Unproven,
    Value,
    function_around,
    root_of,
)
from pytracer.analyze.evidence.slicing.spots import END, Spot
from pytracer.analyze.evidence.syntax.bindings import is_of_outer
from pytracer.analyze.evidence.syntax.calls import called_name, keyword_value
from pytracer.analyze.evidence.syntax.imports import imported_as, imported_names
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.path_questions import ASKS_OF_PATH, LISTS_FOLDER
from pytracer.analyze.evidence.syntax.ranks import reads_rank
from pytracer.analyze.evidence.syntax.scopes import (
    class_around,
    classes_below,
    default_of,
    definitions,
    is_parameter,
    own_nodes,
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
    {
        "len",
        "max",
        "min",
        "sorted",
        "range",
        "enumerate",
        "zip",
        "list",
        "tuple",
        "dict",
        "str",
        "int",
        "float",
        "bool",
        "abs",
    }
    | {"round", "sum", "any", "all", "reversed", "format", "print"}
)
_METHODS = frozenset(
    {"join", "joinpath", "format", "zfill", "with_name", "with_suffix", "replace", "strip", "lstrip", "rstrip", "lower"}
    | {"upper", "startswith", "endswith", "split", "get", "keys", "values", "items", "copy", "index", "count", "pop"}
    | {"popitem", "glob", "rglob", "iterdir", "exists", "is_file", "is_dir", "as_posix", "item"}
)
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
_UNSEEN = ("chdir", "setattr", "__setattr__", "__dict__", "set_defaults", "vars", "exec", "eval", "globals", "locals")
_OF_OBJECTS = ("eval", "exec")  # `model.eval()` is no such call
_OF_MODULES = ("__name__", "__file__")


def is_alike_on_all_ranks(at: FailingLine, operation: ast.Call, path: ast.expr, *, makes: bool) -> bool:
    """Whether the program proves that each rank comes to the operation of the failing line, with the same path.

    What a folder has is asked at other times by other ranks: only what was there, and is gone, shows another one.
    """
    try:
        _Proof(at, ast.unparse(path), makes).check(operation, path)
    except Unproven:
        return False
    return True


class _Proof:
    def __init__(self, at: FailingLine, path: str, makes: bool) -> None:
        self._at, self._path, self._makes = at, path, makes
        self._files, self._ways = at.files, Ways(at)
        self._followed = set[int]()  # uses of a container in a function that it was given to

    def check(self, operation: ast.Call, path: ast.expr) -> None:
        """Raises Unproven."""
        for tree in self._files.values():
            if any(map(_is_unseen, nodes_of(tree))):
                raise Unproven
        waiting = [*self._ways.way(operation)]
        spot = self._at.slice.spot(0)
        waiting += [Value(path, spot)] if spot is not None else []
        seen, held = set[tuple[int, int, object, object]](), list[Obligation]()
        while waiting:
            item = waiting.pop()
            kind = item.option if isinstance(item, Value) else True
            key = (id(item.node), id(item.spot.scope), item.spot.depth, kind)
            if key in seen:
                continue
            seen.add(key)
            held.append(item)  # so that no other node gets its id
            if len(held) > _MOST:
                raise Unproven
            waiting += self._value(item) if isinstance(item, Value) else self._ways.reached(item)

    def _value(self, item: Value) -> Iterator[Obligation]:
        node, spot = item.node, item.spot
        name = variable(node)
        if isinstance(node, ast.expr) and isinstance(node, (ast.Name, ast.Attribute, ast.Call)) and reads_rank(node):
            raise Unproven
        if name is not None:
            yield from self._attribute(item, name) if name.startswith("self.") else self._name(item, name)
        elif isinstance(node, ast.Call):
            yield from self._call(node, spot, item.option)
        elif item.option is not None:
            raise Unproven
        elif isinstance(node, ast.Attribute):
            yield Value(node.value, spot, None if node.attr in _PARTS else node.attr)
        elif isinstance(node, _WHOLE):
            yield from (Value(part, spot) for part in ast.iter_child_nodes(node) if isinstance(part, ast.expr))
        elif isinstance(node, _COMPREHENSIONS):
            parts = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
            yield from (Value(part, spot) for part in parts)
            for generator in node.generators:
                yield from (Value(part, spot) for part in (generator.iter, *generator.ifs))
        elif not isinstance(node, ast.Constant):
            raise Unproven

    def _call(self, call: ast.Call, spot: Spot, option: str | None) -> Iterator[Obligation]:
        given = [*call.args, *(item.value for item in call.keywords if item.arg != "key")]
        origin, name = imported_as(spot.tree, call.func), called_name(call)
        if name == "parse_args" and isinstance(call.func, ast.Attribute) and not given:
            yield from self._option(option) if option is not None else ()
            return
        function = self._at.slice.function(call, spot)
        if function is not None and function[0].name == name:
            self._ways.check_plain(function[0])
            place = Spot(function[1].file, function[1].tree, function[0], END, call=(call, spot))
            for item in own_nodes(function[0]):
                if isinstance(item, ast.Return):
                    yield from (Value(part, place, option) for part in (item.value,) if part is not None)
                    yield Reached(item, place)
            return
        if option is not None or name is None or any(name in definitions(tree) for tree in self._files.values()):
            raise Unproven
        owner = call.func.value if isinstance(call.func, ast.Attribute) else None
        about = {*map(ast.unparse, call.args), *([ast.unparse(owner)] if owner is not None else [])}
        if (name in ASKS_OF_PATH and self._path not in about) or (name in LISTS_FOLDER and self._makes):
            raise Unproven  # another rank may ask when the answer is another one
        key = keyword_value(call, "key")
        if key is not None and imported_as(spot.tree, key) not in _KEYS:
            if not isinstance(key, ast.Attribute) or key.attr != "get":
                raise Unproven
            given.append(key.value)
        if isinstance(call.func, ast.Name) and origin is None:
            if name not in _BUILTIN or self._is_bound(spot.tree, name):
                raise Unproven
        elif origin is not None:
            if origin not in _PURE:
                raise Unproven
        elif isinstance(call.func, ast.Attribute) and name in _METHODS:
            given.append(call.func.value)
        else:
            raise Unproven
        yield from (Value(part, spot) for part in given)

    def _is_bound(self, tree: ast.Module, name: str) -> bool:
        stored = (item.id for item in nodes_of(tree) if isinstance(item, ast.Name) and isinstance(item.ctx, ast.Store))
        return name in {*stored, *imported_names(tree)}

    def _option(self, name: str) -> Iterator[Obligation]:
        """Of the command line: its default, which no line of the program changes afterwards."""
        found = 0
        for tree in self._files.values():
            for item in nodes_of(tree):
                changed = isinstance(item, ast.Attribute) and item.attr == name and not isinstance(item.ctx, ast.Load)
                if changed and variable(item) is None:
                    raise Unproven
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
                raise Unproven
            if default is not None:
                yield Value(default, Spot(file, tree, function_around(tree, call), call.lineno))
        if found != 1:
            raise Unproven

    def _name(self, item: Value, name: str) -> Iterator[Obligation]:
        spot = item.spot
        if name in _OF_MODULES:
            return
        made = self._made_alike(item, name)
        if made is not None:
            yield Reached(made, spot)
            return
        own = [part for part in own_nodes(spot.scope) if isinstance(part, ast.Name) and part.id == name]
        stored = [part for part in own if not isinstance(part.ctx, ast.Load)]
        if self._is_bound_otherwise(spot.tree, name):
            raise Unproven
        if not stored and not is_parameter(spot.scope, name):
            if isinstance(spot.scope, ast.Module) or is_of_outer(spot.tree, spot.scope, name):
                raise Unproven
            yield Value(ast.Name(name, ast.Load()), Spot(spot.file, spot.tree, spot.tree, END), item.option)
            return
        yield from self._bound(stored, spot, item.option)
        if is_parameter(spot.scope, name):
            yield from self._parameter(name, spot, item.option)
        given = [(part, spot) for part in stored]
        yield from self._uses([part for part in own if isinstance(part.ctx, ast.Load)], given, spot)
        if isinstance(spot.scope, ast.Module):  # its functions may change it, too
            for part in nodes_of(spot.tree):
                if isinstance(part, ast.Name) and part.id == name and not any(part is one for one in own):
                    place = Spot(spot.file, spot.tree, function_around(spot.tree, part), part.lineno)
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

    def _made_alike(self, item: Value, name: str) -> ast.Call | None:
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
            if not any(root_of(one) == name for one in stores):
                return call
        return None

    def _parameter(self, name: str, spot: Spot, option: str | None) -> Iterator[Obligation]:
        if spot.depth is not None or spot.call is not None:
            step = self._at.slice.argument(name, spot)
            if step is not None:
                yield Value(*step, option)
                return
            if spot.call is not None or spot.depth != len(self._at.frames) - 1:
                raise Unproven
        function = spot.scope
        if not isinstance(function, ast.FunctionDef) or name in ("self", "cls"):
            raise Unproven
        for call, place in self._ways.sites(spot):
            value = (
                spawned_value(call, function, name) if is_spawn(place.tree, call) else argument_of(call, function, name)
            )
            spread = any(one.arg is None for one in call.keywords) or any(isinstance(a, ast.Starred) for a in call.args)
            if value is None and not spread and not is_spawn(place.tree, call):
                value, place = default_of(function, name), spot
            if value is None:
                raise Unproven
            yield Value(value, place, option)

    def _attribute(self, item: Value, name: str) -> Iterator[Obligation]:
        """Of `self`: all lines of the program that store it, whoever calls them."""
        spot, attribute = item.spot, name.partition(".")[2]
        owner = class_around(spot.tree, spot.scope)
        if owner is None or classes_below(self._files.values(), owner):
            raise Unproven
        if any(attribute in definitions(tree) for tree in self._files.values()):
            raise Unproven
        stored, loads = list[tuple[ast.expr, Spot]](), list[tuple[ast.expr, Spot]]()
        for file, tree in self._files.items():
            for part in nodes_of(tree):
                if not isinstance(part, ast.Attribute) or part.attr != attribute:
                    continue
                scope = function_around(tree, part)
                place = Spot(file, tree, scope, part.lineno)
                if isinstance(part.ctx, ast.Load):
                    loads.append((part, place))
                elif variable(part) != name:
                    raise Unproven
                elif class_around(tree, scope) is owner:
                    stored.append((part, place))
        if not stored or any(root_of(part) == attribute for part in owner.body):
            raise Unproven
        for part, place in stored:
            yield from self._bound([part], place, item.option)
        for part, place in loads:
            yield from self._uses([part], stored, place)

    # ---- what gives a variable its values

    def _bound(self, stored: Sequence[ast.expr], spot: Spot, option: str | None) -> Iterator[Obligation]:
        for target in stored:
            statement, value = _binding(target, spot)
            yield Value(value, spot, option)
            if isinstance(statement, ast.AugAssign):
                yield Value(value, spot)
            if not isinstance(statement, ast.comprehension):
                yield Reached(statement, spot)

    def _uses(
        self, loads: Sequence[ast.expr], stored: Sequence[tuple[ast.expr, Spot]], spot: Spot
    ) -> Iterator[Obligation]:
        """What may change a list or another container: each such line, and none that hands it to others."""
        parents = parents_of(spot.tree)
        mutable = any(_is_container(*item) for item in stored)
        for item in loads:
            above = parents.get(item)
            over = parents.get(above) if above is not None else None
            if isinstance(above, ast.Attribute) and isinstance(over, ast.Call) and over.func is above:
                if above.attr in _CHANGES or (above.attr.endswith("_") and above.attr[:1] != "_"):
                    yield from (Value(part, spot) for part in (*over.args, *(one.value for one in over.keywords)))
                    yield Reached(over, spot)
            elif isinstance(above, ast.Subscript) and above.value is item and not isinstance(above.ctx, ast.Load):
                yield Value(above.slice, spot)
                yield Reached(above, spot)
                if not isinstance(over, ast.Delete):
                    yield Value(_binding(above, spot)[1], spot)
            elif mutable and isinstance(above, (ast.Call, ast.keyword, ast.Starred)):
                call = above if isinstance(above, ast.Call) else over
                inside = uses_inside(self._at.slice, call, item, spot) if isinstance(call, ast.Call) else None
                if inside is not None:
                    fresh = [part for part in inside[0] if id(part) not in self._followed]
                    self._followed.update(map(id, fresh))
                    yield from self._uses(fresh, stored, inside[1])
                    continue
                own = isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in _BUILTIN
                if not own and (not isinstance(call, ast.Call) or imported_as(spot.tree, call.func) not in _PURE):
                    raise Unproven
            elif mutable and isinstance(above, ast.Tuple) and is_spawned(above, spot.tree):
                continue  # each process has its own
            elif mutable and isinstance(above, (ast.Assign, ast.Return, ast.Tuple, ast.List, ast.Dict, ast.NamedExpr)):
                raise Unproven


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
    raise Unproven


def _is_container(target: ast.expr, spot: Spot) -> bool:
    """Whether it is given a list or the like."""
    statement, value = _binding(target, spot)
    if isinstance(statement, (ast.For, ast.comprehension)):
        return False
    return isinstance(value, _CONTAINERS) or (isinstance(value, ast.Call) and called_name(value) in _MAKES)


def _is_unseen(node: ast.AST) -> bool:
    """Whether it may set what the source does not show, or the folder that relative paths begin in."""
    name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else None
    if isinstance(node, ast.alias):
        name = node.name
    return name in _UNSEEN and not (isinstance(node, ast.Attribute) and name in _OF_OBJECTS)
