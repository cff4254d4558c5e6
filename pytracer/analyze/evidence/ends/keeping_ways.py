"""Where what a line makes is kept by other functions: it is followed into what they return, pass on and store.

By syntax alone, forward from the line: into the functions that it is passed to, to who calls the one that returns or
yields it, through attributes, and into what hooks of layers and cached functions keep. Functions are met by their name,
since callbacks and buffers are called by objects whose class no line shows. Nothing that is taken out of again, or
begins anew in each round, is a place.
"""

from __future__ import annotations

import ast
import builtins
from collections import deque
from collections.abc import Iterator, Mapping

import msgspec
from msgspec import structs

from pytracer._text import shortened
from pytracer.analyze.evidence.ends.bounded_containers import Bounds
from pytracer.analyze.evidence.ends.growing_containers import only_grows, stored
from pytracer.analyze.evidence.ends.keeping_lines import KeepingLine, held_by
from pytracer.analyze.evidence.ends.keeping_places import KeepingPlace, place_told
from pytracer.analyze.evidence.ends.kept_parts import gives_any, hands_on, head_nodes, holds_any, targets_of
from pytracer.analyze.evidence.ends.kept_regions import FORWARD, Region, dispatched, given_to, name_of, without_losses
from pytracer.analyze.evidence.ends.object_names import Objects
from pytracer.analyze.evidence.ports.numbers import Ports
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import called_name, keyword_value, passed_values
from pytracer.analyze.evidence.syntax.constants import is_none
from pytracer.analyze.evidence.syntax.imports import imported_as
from pytracer.analyze.evidence.syntax.loops import loops_around
from pytracer.analyze.evidence.syntax.names import elements, indexed, last_name, variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import (
    class_around,
    classes_below,
    own_nodes,
    parameters,
    scope_of,
    spans,
    statement_at,
)
from pytracer.decode.types.snapshot import Snapshot
from pytracer.report.job import PythonFrame

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_LOOPS = (ast.For, ast.AsyncFor)
_HOOKS = frozenset({"register_forward_hook", "register_full_backward_hook", "register_forward_pre_hook"})
_OF_CONTAINERS = frozenset({*dir(list), *dir(dict), *dir(set), *dir(deque)})
_PUTS = frozenset({"put", "put_nowait"})
_OF_NAMES = frozenset({"items", "keys", "named_parameters", "named_modules", "named_children", "named_buffers"})
_CACHES = frozenset({"lru_cache", "cache"})
_REDUCES = frozenset({"mean", "sum", "norm", "item", "float", "int", "len", "tolist", "str", "size", "argmax"})
_DEEPEST, _MOST_REGIONS, _MOST_CALLED = 6, 40, 6
_LONG = 40


def kept_by_others(snapshot: Snapshot, frame: PythonFrame) -> KeepingLine | None:
    """What keeps all that the line of `frame` made; None where no line does, or several do."""
    files = program_files(snapshot, [frame])
    tree = files.get(frame.file or "")
    if tree is None or frame.file is None or frame.line is None:
        return None
    ways = _Ways(files)
    found = ways.from_line(frame.file, tree, frame.line) or ways.from_hooks(tree, frame.line)
    places = {(item.file, item.node.lineno): item for item in found}
    if len(places) != 1:
        return None
    return place_told(next(iter(places.values())), frame.file)


class Buffer(msgspec.Struct, frozen=True):
    """What keeps the last `most` of what a line makes; `size`: how the program has that number."""

    place: KeepingPlace
    most: int
    size: str


def kept_in_buffer(snapshot: Snapshot, frame: PythonFrame) -> Buffer | None:
    """The only container with a bound that keeps it, where that number is known."""
    files = program_files(snapshot, [frame])
    tree = files.get(frame.file or "")
    if tree is None or frame.file is None or frame.line is None:
        return None
    ways = _Ways(files)
    found = [] if ways.from_line(frame.file, tree, frame.line) else ways.bounded
    if len({(place.file, place.node.lineno) for place, _ in found}) != 1:
        return None
    place, size = found[0]
    line = size.lineno
    home = next((file for file, there in files.items() if any(item is size for item in nodes_of(there))), place.file)
    spot = Spot(home, files[home], scope_of(files[home], line), line)
    most = Ports(Slice(snapshot, [frame]), snapshot, None).number(size, spot)
    return Buffer(place, most, ast.unparse(size)) if most is not None else None


class _Ways:
    """Follows what is made in the files of one program."""

    def __init__(self, files: Mapping[str, ast.Module]) -> None:
        self._files = files
        self._bounds, self._objects = Bounds(files), Objects(files)
        self._left: set[int] = set()  # functions whose callers are known: some call each other
        self._direct: list[KeepingPlace] = []
        self.bounded: list[tuple[KeepingPlace, ast.expr]] = []  # with how many each may have
        self._named: dict[str, list[tuple[str, ast.Module, _Function]]] = {}
        for file, tree in files.items():
            for item in nodes_of(tree):
                if isinstance(item, _FUNCTIONS):
                    self._named.setdefault(item.name, []).append((file, tree, item))

    def from_line(self, file: str, tree: ast.Module, line: int) -> list[KeepingPlace]:
        """What the statement of a line binds, returns, or passes on at once."""
        scope, statement = scope_of(tree, line), statement_at(tree, line)
        if statement is None or isinstance(scope, ast.Lambda):
            return []
        start = Region(file, tree, scope, frozenset())
        self._direct.clear()
        self._left.clear()
        if isinstance(statement, ast.Return):
            return [*_cached(start), *self._follow([*self._returned(start)])]
        if isinstance(statement, ast.Expr):
            return self._follow(self._beyond(start, statement))
        names = without_losses(
            name for item in targets_of(statement) for part in elements(item) if (name := variable(part))
        )
        value = getattr(statement, "value", None)
        if not names or (isinstance(value, ast.Call) and called_name(value) in _REDUCES):
            return []
        return self._follow([structs.replace(start, names=names, since=line)])

    def from_hooks(self, tree: ast.Module, line: int) -> list[KeepingPlace]:
        """What hooks of layers keep, where the line calls something that may be one."""
        calls = [item for item in nodes_of(tree) if isinstance(item, ast.Call) and spans(item, line)]
        inside = getattr(scope_of(tree, line), "name", None) in FORWARD
        if not inside and not any(self._may_be_layer(tree, item) for item in calls):
            return []
        self._left.clear()
        found: list[Region] = []
        for file, there in self._files.items():
            for call in nodes_of(there):
                if isinstance(call, ast.Call) and called_name(call) in _HOOKS and call.args:
                    found += self._hook(file, there, call.args[0])
        return self._follow(found)

    def _may_be_layer(self, tree: ast.Module, call: ast.Call) -> bool:
        """`model(x)`, `self.net(x)`; no function of a library or of the program, nor a method: `loss.backward()`."""
        name = variable(call.func)
        if name is None or imported_as(tree, call.func) is not None or hasattr(builtins, name):
            return False
        return name.rpartition(".")[2] not in self._named and not name.rpartition(".")[2][:1].isupper()

    def _hook(self, file: str, tree: ast.Module, given: ast.expr) -> Iterator[Region]:
        """Of `self.save`, `save`, `make_hook(name)`, `partial(save, name)`; a lambda keeps by a call only."""
        if isinstance(given, ast.Call):
            maker = given.args[0] if called_name(given) == "partial" and given.args else given.func
            made = self._named.get(last_name(maker) or "", [])
            inner = [
                (there, its, part)
                for there, its, item in made
                for part in nodes_of(item)
                if isinstance(part, _FUNCTIONS) and part is not item
            ]
            functions = made if called_name(given) == "partial" else inner
        else:
            functions = self._named.get(last_name(given) or "", [])
        for there, its, function in functions[:_MOST_CALLED]:
            last = [item for item in parameters(function) if item != "self"][-2:]  # inputs, output
            yield Region(there, its, function, frozenset(last), hook=True)

    def _follow(self, waiting: list[Region]) -> list[KeepingPlace]:
        found: list[KeepingPlace] = []
        seen: set[tuple[int, frozenset[str]]] = set()
        while waiting and len(seen) < _MOST_REGIONS:
            region = self._with_aliases(waiting.pop(0))
            key = (id(region.scope), region.names)
            if key in seen or region.depth > _DEEPEST:
                continue
            seen.add(key)
            found += self._stores(region)
            waiting += self._called(region)
            waiting += self._attributes(region)
            if any(gives_any(item, region.names) for item in own_nodes(region.scope)):
                found += _cached(region)
                waiting += self._returned(region)
        return [*found, *self._direct]

    def _with_aliases(self, region: Region) -> Region:
        names = {name for name in region.names if not _is_rebound(region, name)}
        for item in [*own_nodes(region.scope)] * 2:
            held = frozenset(names)
            if isinstance(item, (ast.Assign, ast.AnnAssign)) and item.value is not None and holds_any(item.value, held):
                names |= {name for part in targets_of(item) for one in elements(part) if (name := variable(one))}
            elif isinstance(item, ast.NamedExpr) and holds_any(item.value, held):
                names |= {item.target.id}
            elif isinstance(item, _LOOPS) and holds_any(item.iter, held):
                names |= {name for one in elements(item.target) if (name := variable(one))}
        return structs.replace(region, names=frozenset(names))

    def _stores(self, region: Region) -> Iterator[KeepingPlace]:
        for node in own_nodes(region.scope):
            if not isinstance(node, ast.stmt):
                continue
            queued = _queued(node)
            if queued is not None and holds_any(queued[1], region.names) and self._bounds.has_no_limit(queued[0]):
                yield KeepingPlace(region.file, region.tree, node, _short(queued[1]), ast.unparse(queued[0]), "queue")
                continue
            container, value = _stored(node) or (None, None)
            if container is None or value is None or not holds_any(value, region.names):
                continue
            names = [name for name, _ in held_by(value) if name in region.names]
            kept = "` and `".join(dict.fromkeys(names)) or _short(value)
            kind = "hook" if region.hook else "container"
            place = KeepingPlace(region.file, region.tree, node, kept, ast.unparse(container), kind)
            most = self._bounds.most(region.tree, container, node)
            if most is not None:
                self.bounded.append((place, most))
            elif self._grows(region, node, container, value):
                yield place

    def _grows(self, region: Region, node: ast.stmt, container: ast.expr, value: ast.expr) -> bool:
        """Whether a statement adds to a container that nothing bounds."""
        plain_sum = isinstance(node, ast.AugAssign) and not isinstance(value, (ast.List, ast.Tuple))
        own = variable(indexed(container)) or ""
        if own.startswith("self.") and getattr(region.scope, "name", "") == "__init__":
            return False  # of one object
        if plain_sum or own in region.names or self._bounds.is_bounded(region.tree, container, node):
            return False
        if isinstance(node, ast.Assign) and _is_of_few(node.targets[0], region):
            return False
        return only_grows(region.tree, region.scope, container, node)

    def _called(self, region: Region) -> Iterator[Region]:
        """The functions of the program that it is passed to, by their names."""
        for call in own_nodes(region.scope):
            if isinstance(call, ast.Call) and any(holds_any(item, region.names) for item in passed_values(call)):
                yield from self._entered(region, call)

    def _entered(self, region: Region, call: ast.Call, held: ast.expr | None = None) -> Iterator[Region]:
        name = dispatched(call, region) or called_name(call)
        functions = self._named.get(name or "", [])
        if isinstance(call.func, ast.Attribute) and _is_of_round(region, call.func.value):
            return  # its object is gone with the round
        owners = [
            (file, tree, part)
            for file, tree in self._files.items()
            for item in nodes_of(tree)
            if isinstance(item, ast.ClassDef) and item.name == name
            for part in item.body
            if isinstance(part, ast.FunctionDef) and part.name == "__init__"
        ]
        for file, tree, function in [*functions, *owners][:_MOST_CALLED]:
            if function is region.scope or not self._may_be(region, call, file, tree, function):
                continue
            names, spread, texts = given_to(region, call, function, held)
            if names or any(spread):
                yield Region(file, tree, function, names, spread, texts, region.depth + 1)

    def _attributes(self, region: Region) -> Iterator[Region]:
        """The other methods of an object that has it as an attribute."""
        kept = frozenset(name for name in region.names if name.startswith("self."))
        owner = class_around(region.tree, region.scope) if kept else None
        for method in owner.body if owner is not None else ():
            if isinstance(method, _FUNCTIONS) and method is not region.scope:
                yield Region(region.file, region.tree, method, kept, depth=region.depth + 1)

    def _returned(self, region: Region) -> Iterator[Region]:
        """Who calls the function that gives it: what they bind, loop over, or pass on."""
        if id(region.scope) in self._left or region.depth > _DEEPEST:
            return
        self._left.add(id(region.scope))
        names = self._called_by(region)
        for file, tree in self._files.items():
            for statement in nodes_of(tree):
                if isinstance(statement, ast.stmt) and not isinstance(statement, (*_FUNCTIONS, ast.ClassDef)):
                    calls = [item for item in head_nodes(statement) if isinstance(item, ast.Call)]
                    if any(name_of(item) in names and _is_of_file(tree, item, region.file) for item in calls):
                        outer = Region(
                            file, tree, scope_of(tree, statement.lineno), frozenset(), depth=region.depth + 1
                        )
                        yield from self._beyond(outer, statement, names)

    def _called_by(self, region: Region) -> frozenset[str]:
        """The names that a function is called by: its own; of forward() those of the objects of its class."""
        name = getattr(region.scope, "name", None)
        if name not in FORWARD:
            return frozenset({name}) if name is not None and not name.startswith("__") else frozenset()
        owner = class_around(region.tree, region.scope)
        return self._objects.of(owner.name) if owner is not None else frozenset()

    def _may_be(self, region: Region, call: ast.Call, file: str, tree: ast.Module, function: _Function) -> bool:
        """Whether a call of that name is one of the function, by the object or the module that has it."""
        owner, func = class_around(tree, function), call.func
        if not isinstance(func, (ast.Name, ast.Attribute)) or function.name == "__init__":
            return True  # `getattr(callback, name)(...)`
        if imported_as(region.tree, func) is not None:
            return owner is None and _is_of_file(region.tree, call, file)
        if owner is None or isinstance(func, ast.Name):
            return owner is None
        holder = last_name(func.value)
        related = {owner.name, *(item.name for item in classes_below(self._files.values(), owner))}
        if holder == "self":
            around = class_around(region.tree, region.scope)
            return (
                around is None
                or around.name in related
                or (function.name not in _names_in(around) and any(last_name(base) in related for base in around.bases))
            )
        if function.name in _OF_CONTAINERS and holder not in {"super", *self._objects.of(owner.name)}:
            return False
        makers = self._objects.makers(holder) if holder is not None else frozenset[str]()
        return not makers or bool(makers & related)

    def _beyond(self, region: Region, statement: ast.stmt, names: frozenset[str] | None = None) -> list[Region]:
        """What a statement does with the result of its calls, or of those by certain `names`."""
        found: list[Region] = []
        calls = [item for item in head_nodes(statement) if isinstance(item, ast.Call)]
        if names is not None:
            calls = [item for item in calls if name_of(item) in names]
        for target in targets_of(statement):
            value = getattr(statement, "iter", getattr(statement, "value", None))
            if any(hands_on(value, item) for item in calls):
                bound = without_losses(held for part in elements(target) if (held := variable(part)))
                found.append(structs.replace(region, names=bound, since=statement.end_lineno or 0))
        container, value = _stored(statement) or (None, None)
        kept = container is not None and value is not None and any(hands_on(value, item) for item in calls)
        if container is not None and value is not None and kept and self._grows(region, statement, container, value):
            place = KeepingPlace(
                region.file, region.tree, statement, _short(value), ast.unparse(container), "container"
            )
            self._direct.append(place)
        for outer in (item for item in head_nodes(statement) if isinstance(item, ast.Call)):
            for given in passed_values(outer):
                if any(hands_on(given, item) for item in calls):
                    found += self._entered(region, outer, given)
        gives = isinstance(statement, ast.Return) or isinstance(getattr(statement, "value", None), ast.Yield)
        if gives and (names is None or any(hands_on(getattr(statement, "value", None), item) for item in calls)):
            found += self._returned(region)
        return found


def _stored(node: ast.stmt) -> tuple[ast.expr, ast.expr] | None:
    """Also of `cache.setdefault(key, value)`, `items.insert(0, value)` and `store.update(key=value)`."""
    call = node.value if isinstance(node, ast.Expr) else None
    if isinstance(call, ast.Call) and called_name(call) in ("setdefault", "insert") and len(call.args) == 2:
        return (call.func.value, call.args[1]) if isinstance(call.func, ast.Attribute) else None
    return stored(node)


def _queued(node: ast.stmt) -> tuple[ast.expr, ast.expr] | None:
    call = node.value if isinstance(node, ast.Expr) else None
    if isinstance(call, ast.Call) and called_name(call) in _PUTS and isinstance(call.func, ast.Attribute) and call.args:
        return call.func.value, call.args[0]
    return None


def _cached(region: Region) -> Iterator[KeepingPlace]:
    """`@cache`, `@lru_cache(maxsize=None)` of the function that gives it."""
    function = region.scope
    for item in getattr(function, "decorator_list", ()):
        named = called_name(item) if isinstance(item, ast.Call) else last_name(item)
        if named not in _CACHES or not isinstance(function, _FUNCTIONS):
            continue
        size = (keyword_value(item, "maxsize") or next(iter(item.args), None)) if isinstance(item, ast.Call) else None
        if named == "cache" or (size is not None and is_none(size)):
            yield KeepingPlace(region.file, region.tree, function, f"@{ast.unparse(item)}", function.name, "cache")


def _is_of_few(target: ast.expr, region: Region) -> bool:
    """Whether a key is the name of a layer, a parameter or a metric: what is put there replaces the one before."""
    key = variable(target.slice) if isinstance(target, ast.Subscript) else None
    if key is None:
        return False
    named = (
        item
        for item in own_nodes(region.scope)
        if isinstance(item, _LOOPS) and isinstance(item.iter, ast.Call) and called_name(item.iter) in _OF_NAMES
    )
    in_loop = any(key == variable(part) for item in named for part in elements(item.target))
    return region.hook or in_loop or key in dict(region.texts)


def _is_of_file(tree: ast.Module, call: ast.Call, file: str) -> bool:
    """Not `torch.load(path)` of a function load(): the module that it is imported from is another one."""
    origin = imported_as(tree, call.func)
    return origin is None or bool({*origin.split(".")[:-1]} & {*file.removesuffix(".py").split("/")})


def _is_rebound(region: Region, name: str) -> bool:
    """Whether a later line gives the name to something that is made of it: `out = out.argmax(1)`."""
    found = False
    for item in own_nodes(region.scope):
        if isinstance(item, ast.Assign) and item.lineno > region.since and name in map(variable, item.targets):
            found = found or not (isinstance(item.value, ast.Constant) or holds_any(item.value, region.names))
    return found


def _is_of_round(region: Region, holder: ast.expr) -> bool:
    """Whether the innermost loop makes the object anew: `for x in xs: log = Log(); log.add(x)`."""
    name = variable(holder)
    loops = loops_around(region.tree, holder.lineno)
    binds = (item for item in nodes_of(loops[-1]) if isinstance(item, ast.Assign)) if loops and name else ()
    return any(name == variable(part) for item in binds for one in item.targets for part in elements(one))


def _names_in(owner: ast.ClassDef) -> set[str]:
    return {item.name for item in owner.body if isinstance(item, _FUNCTIONS)}


def _short(value: ast.expr) -> str:
    return shortened(ast.unparse(value), _LONG)
