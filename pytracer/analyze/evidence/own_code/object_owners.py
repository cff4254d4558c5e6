"""Where the Python object that owns a native one was made, and how it ended: collected, or closed, while it was in use.

A variable of a function that has returned, a temporary of a line that has run, a `with` that was left. What a method or
function of the program does with the object is followed, as it may keep it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from functools import cache

import msgspec
from msgspec import structs

from pytracer.analyze.evidence.own_code.handles import (
    EXIT,
    GC,
    Function,
    IsNative,
    Release,
    gives_itself_away,
    is_collected,
    release_by,
)
from pytracer.analyze.evidence.own_code.native_calls import KEEPS, Uses, parents_of
from pytracer.analyze.evidence.slicing.calls import argument_of
from pytracer.analyze.evidence.slicing.keepers import initializer
from pytracer.analyze.evidence.syntax.bindings import lines_that_bind
from pytracer.analyze.evidence.syntax.calls import called_name, passed_values
from pytracer.analyze.evidence.syntax.constants import is_none
from pytracer.analyze.evidence.syntax.loops import loops_around
from pytracer.analyze.evidence.syntax.names import is_name, last_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import (
    Scope,
    is_parameter,
    own_nodes,
    parameters,
    scope_of,
    spans,
    statement_at,
)

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_WITHS = (ast.With, ast.AsyncWith)
_LOOKS_AT = frozenset({"print", "len", "isinstance", "type", "id", "repr", "str", "hasattr", "bool"})
_MOST_CALLS = 4


class Owned(msgspec.Struct, frozen=True):
    """`given`, whose handle a native call is given, is what `line` of `file` made as `name`, or as a temporary.

    `ended`: in words, with a place for `ends_at`, a line of that file. `release`: what freed the native object then.
    """

    file: str
    line: int
    name: str
    temporary: bool
    given: ast.expr
    release: Release
    ended: str
    ends_at: int | None = None


class _Origin(msgspec.Struct, frozen=True):
    """`made`: the call that returns the object; `around`: the `with` that closes it. `kept`: whether it may be held."""

    file: str
    scope: Scope
    name: str | None
    made: ast.expr
    kept: bool
    around: ast.With | ast.AsyncWith | None = None


class Owners:
    """Of a program. `running`: the lines of its stack, by file. `parents`: see parents_of(), by file."""

    def __init__(
        self,
        files: Mapping[str, ast.Module],
        releases: Mapping[str, Sequence[Release]],
        is_native: IsNative,
        running: Sequence[tuple[str | None, int]],
    ) -> None:
        self._files, self._releases, self._is_native, self._running = files, releases, is_native, running
        nodes = [(file, node) for file, tree in files.items() for node in nodes_of(tree)]
        self._functions = [(file, node) for file, node in nodes if isinstance(node, _FUNCTIONS)]
        self._classes = [(file, node) for file, node in nodes if isinstance(node, ast.ClassDef)]
        self._calls = [(file, node) for file, node in nodes if isinstance(node, ast.Call)]
        self.parents = {file: parents_of(tree) for file, tree in files.items()}
        self._methods = {id(part): node for _, node in self._classes for part in node.body}
        self._kind = cache(self._kind_of)

    def dropped(self, file: str, node: ast.Name | ast.Attribute) -> Iterator[Owned]:
        """Of `quantizer.handle`, and of a variable with what `ffi.gc()` returned; nothing where one may live."""
        given, attribute = (node.value, node.attr) if isinstance(node, ast.Attribute) else (node, None)
        all_ended: list[Owned] = []
        for origin in self._origins(file, given, attribute, 0) or ():
            found = [item for item in self._kind(origin.file, origin.made) if item.attribute == (attribute or "")]
            ended = self._ended(origin, found) if found else None
            if ended is None:
                return
            release, words, line = ended
            name, made, temporary = origin.name or ast.unparse(origin.made), origin.made.lineno, origin.name is None
            all_ended.append(Owned(origin.file, made, name, temporary, given, release, words, line))
        yield from all_ended

    def _kind_of(self, file: str, node: ast.AST | None, depth: int = 0) -> tuple[Release, ...]:
        """How an object frees what it owns, by the call that makes it."""
        if not isinstance(node, ast.Call) or depth > _MOST_CALLS:
            return ()
        if is_collected(node, self._is_native):
            return (release_by("", "", GC, file, node),)
        name = called_name(node) or ""
        own = [item for _, item in self._classes if item.name == name]
        if own:
            items = () if any(map(gives_itself_away, own)) else self._of_class(name)
            return tuple(structs.replace(item, owner=name) for item in items)
        made = [(at, item) for at, item in self._functions if item.name == name and id(item) not in self._methods]
        for at, function in made[:1] if len(made) == 1 else ():
            returned = [item.value for item in own_nodes(function) if isinstance(item, ast.Return) and item.value]
            if len(returned) == 1:
                return self._kind_of(at, _plain_value(function, returned[0]), depth + 1)
        return ()

    def _of_class(self, name: str, below: tuple[str, ...] = ()) -> Iterator[Release]:
        """Its own, and those of the classes that it derives from, each by its last name: `Index(lib.Index)` is one."""
        yield from self._releases.get(name, ())
        for _, item in self._classes:
            if item.name == name:
                for base in filter(None, map(last_name, item.bases)):
                    yield from self._of_class(base, (*below, name)) if base not in (*below, name) else ()

    def _origins(self, file: str, node: ast.expr, attribute: str | None, depth: int) -> list[_Origin] | None:
        """All that it may be; None where that is not known."""
        tree = self._files[file]
        scope = scope_of(tree, node.lineno)
        if isinstance(node, ast.Call):
            return [_Origin(file, scope, None, node, kept=False)] if self._kind(file, node) else None
        if not isinstance(node, ast.Name) or depth > _MOST_CALLS:
            return None
        around = _with_of(scope, node.id)
        if around is not None:
            statement, made = around
            return (
                [_Origin(file, scope, node.id, made, kept=True, around=statement)] if self._kind(file, made) else None
            )
        values = [value for _, value in lines_that_bind(scope, node.id) if value is None or not is_none(value)]
        if values:
            value = values[0] if len(values) == 1 and not is_parameter(scope, node.id) else None
            kinds = self._kind(file, value) if isinstance(value, ast.Call) else ()
            kept = bool(kinds) and self._keeps(file, scope, node.id, attribute, kinds, depth)
            return [_Origin(file, scope, node.id, value, kept)] if kinds and isinstance(value, ast.Call) else None
        if not isinstance(scope, _FUNCTIONS) or not is_parameter(scope, node.id):
            return None
        found: list[_Origin] = []
        for at, call in self._sites(scope):
            given = argument_of(call, scope, node.id)
            more = self._origins(at, given, attribute, depth + 1) if given is not None else None
            if more is None:
                return None
            found += more
        kinds = tuple(item for origin in found for item in self._kind(origin.file, origin.made))
        kept = self._keeps(file, scope, node.id, attribute, kinds, depth)
        return [_Origin(i.file, i.scope, i.name, i.made, i.kept or kept, i.around) for i in found]

    def _sites(self, function: Function) -> Iterator[tuple[str, ast.Call]]:
        """The calls of a function; of a class, for its __init__."""
        owner = self._methods.get(id(function))
        name = owner.name if owner is not None and function.name == "__init__" else function.name
        names = {name} | {
            item.name for _, item in self._classes if name in map(last_name, item.bases) and initializer(item) is None
        }
        return ((file, call) for file, call in self._calls if called_name(call) in names)

    def _keeps(
        self, file: str, scope: Scope, name: str, attribute: str | None, kinds: Sequence[Release], depth: int
    ) -> bool:
        """Whether anything but the variable may hold the object, here or in what it is passed to."""
        parents = self.parents[file]
        classes = {item.owner for item in kinds}
        methods = {
            part.name
            for _, item in self._classes
            if item.name in classes
            for part in item.body
            if isinstance(part, _FUNCTIONS)
        }

        def is_harmless(node: ast.AST) -> bool:
            if self._is_native(node) or not isinstance(node, ast.Call):
                return self._is_native(node)
            return called_name(node) in _LOOKS_AT or not self._passes_to_keeper(node, name, attribute, kinds, depth)

        def is_read(node: ast.Attribute) -> bool:
            around = parents.get(id(node))
            if node.attr == attribute and any(item.way == GC for item in kinds):  # the object of cffi is the owner
                return self._is_native(around) if around is not None else False
            return node.attr not in methods or (isinstance(around, ast.Call) and around.func is node)

        return Uses(parents, is_harmless, is_read=is_read).keep(scope, name)

    def _passes_to_keeper(
        self, call: ast.Call, name: str, attribute: str | None, kinds: Sequence[Release], depth: int
    ) -> bool:
        called = called_name(call)
        if called in KEEPS:  # of a container, for all that is known
            return True
        owners = {id(part) for _, item in self._classes if item.name == called for part in item.body}
        made = [(at, item) for at, item in self._functions if id(item) in owners and item.name == "__init__"]
        made = made or [(at, item) for at, item in self._functions if item.name == called]
        if not made or depth >= _MOST_CALLS:
            return True
        for file, function in made:
            taken = [item for item in parameters(function) if is_name(argument_of(call, function, item), name)]
            passed = sum(is_name(item, name) for item in passed_values(call))
            if len(taken) != passed:
                return True
            if any(self._keeps(file, function, item, attribute, kinds, depth + 1) for item in taken):
                return True
        return False

    def _ended(self, origin: _Origin, found: Sequence[Release]) -> tuple[Release, str, int | None] | None:
        """What freed it, how it ended, and at which line if that is another one; None where it may be alive."""
        tree, scope = self._files[origin.file], origin.scope
        here = [line for file, line in self._running if file == origin.file and scope_of(tree, line) is scope]
        left = next((item for item in found if item.way == EXIT), None)
        if origin.around is not None:
            inside = any(spans(origin.around, line) for line in here)
            return (left, "was closed when that `with` was left", None) if left is not None and not inside else None
        if origin.name is not None:
            for node in own_nodes(scope):
                if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                    continue
                way = next((item for item in found if item.way == node.func.attr), None)
                plain = way is not None and isinstance(self.parents[origin.file].get(id(node)), ast.Expr)
                before = plain and all(node.lineno < line for line in here)
                if way is not None and before and is_name(node.func.value, origin.name):
                    return way, "was closed at {}", node.lineno
        release = next((item for item in found if item.by_collection), None)
        if release is None or origin.kept:
            return None
        if origin.name is None:
            statement = statement_at(tree, origin.made.lineno)
            inside = statement is None or any(spans(statement, line) for line in here)
            return (release, "was collected as soon as that line had run", None) if not inside else None
        if not here:
            owner = self._methods.get(id(scope))
            name = ".".join(item.name for item in (owner, scope) if isinstance(item, (ast.ClassDef, *_FUNCTIONS)))
            return (release, f"was collected when {name}() returned", None) if _returns(scope) else None
        return self._let_go(tree, origin, release, here)

    def _let_go(
        self, tree: ast.Module, origin: _Origin, release: Release, here: Sequence[int]
    ) -> tuple[Release, str, int | None] | None:
        """Of a function that is running: by `del`, or by the next round of a loop that has ended."""
        for node in origin.scope.body if not isinstance(origin.scope, ast.Lambda) else ():
            after = origin.made.lineno < node.lineno < min(here)
            none = isinstance(node, ast.Assign) and is_none(node.value)
            targets = node.targets if isinstance(node, ast.Delete) or (none and isinstance(node, ast.Assign)) else []
            if after and any(is_name(item, origin.name) for item in targets):
                return release, "was collected at {}", node.lineno
        loops = loops_around(tree, origin.made.lineno)
        if loops and all(line > (loops[-1].end_lineno or 0) for line in here):
            return release, "was collected when the next round of its loop bound the name anew", None
        return None


def _plain_value(function: Function, node: ast.expr) -> ast.AST | None:
    """What a variable is set to, where one line does; an expression itself."""
    if not isinstance(node, ast.Name):
        return node
    bound = lines_that_bind(function, node.id)
    return bound[0][1] if len(bound) == 1 else None


def _with_of(scope: Scope, name: str) -> tuple[ast.With | ast.AsyncWith, ast.expr] | None:
    """`with IndexFlat(rows) as name:`."""
    withs = (node for node in own_nodes(scope) if isinstance(node, _WITHS))
    found = [(node, item.context_expr) for node in withs for item in node.items if is_name(item.optional_vars, name)]
    return found[0] if len(found) == 1 else None


def _returns(scope: Scope) -> bool:
    """Whether its variables end when it returns; those of a generator, and of the module, live longer."""
    return isinstance(scope, _FUNCTIONS) and not any(
        isinstance(i, (ast.Yield, ast.YieldFrom)) for i in own_nodes(scope)
    )
