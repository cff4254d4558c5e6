"""Memory whose address a native struct keeps, and which nothing holds: `struct.field = ffi.new("float[]", n)`.

The struct has the address alone. What owns the memory is freed when the line has run, or when the function whose
variable alone held it returns; what is written there later damages the heap.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

import msgspec

from pytracer._text import list_words, shortened
from pytracer.analyze.evidence.lifetime.variables import program_frames
from pytracer.analyze.evidence.own_code.native_calls import NativeCalls, Uses, native_calls, parents_of
from pytracer.analyze.evidence.own_code.own_libraries import allocating_frames
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.syntax.calls import called_name, passed_values
from pytracer.analyze.evidence.syntax.names import last_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import Function, is_parameter, scope_of
from pytracer.analyze.naming import short_file
from pytracer.analyze.view import ProcessView

_QUOTED, _MOST = 44, 2
_CONTAINERS = (ast.Dict, ast.List, ast.ListComp, ast.DictComp)
_PASSES_ON = frozenset({"cast", "c_void_p", "int"})
# Calls of torch, NumPy and ctypes that always return new memory.
_MAKES = frozenset(
    ("zeros", "ones", "empty", "full", "rand", "randn", "randint", "arange", "tensor", "array", "astype", "clone")
    + ("zeros_like", "ones_like", "empty_like", "copy", "create_string_buffer")
)


class UnheldMemory(msgspec.Struct, frozen=True):
    """`target` (`self.io.inputs`) has the address of `made` since `line` of `file`.

    `variable` of `held_by`, a function, is all that held it; None where nothing did.
    """

    target: str
    made: str
    file: str
    line: int
    variable: str | None = None
    held_by: str | None = None

    @property
    def place(self) -> str:
        """`runtime.py:44`."""
        return f"{self.file}:{self.line}"


class UnheldMemories(msgspec.Struct, frozen=True):
    """The first ones of a program, those that a line drops at once before those of variables."""

    items: tuple[UnheldMemory, ...]

    @property
    def summary(self) -> str:
        """`` first suspect is a dangling pointer, as nothing holds the memory whose address `a.b` keeps (p.py:4) ``"""
        targets = list_words([f"`{item.target}`" for item in self.items])
        places = list_words(list(dict.fromkeys(item.place for item in self.items)))
        one = len(self.items) == 1
        return (
            f"first {'suspect is a dangling pointer' if one else 'suspects are dangling pointers'}, as nothing holds "
            f"the memory whose address {targets} keep{'s' * one} ({places})"
        )

    @property
    def advice(self) -> str:
        """The change to make."""
        at_once = [item for item in self.items if item.variable is None]
        return " ".join([*([_at_once(at_once)] if at_once else []), *map(_of_variable, self.items[len(at_once) :])])


def _at_once(items: Sequence[UnheldMemory]) -> str:
    places: dict[str, list[str]] = {}
    for item in items:
        places.setdefault(item.made, []).append(item.place)
    made = list_words([f"`{text}` ({list_words(list(dict.fromkeys(at)))})" for text, at in places.items()])
    targets = list_words([f"`{item.target}`" for item in items])
    one = len(items) == 1
    where, them = ("a variable or attribute", "it") if one else ("variables or attributes", "them")
    return (
        f"Hold {made} in {where} as well (`self.held = ...`) for as long as native code may use {them}: {targets} "
        f"keep{'s' * one} only the address, and the memory is freed as soon as the line has run."
    )


def _of_variable(item: UnheldMemory) -> str:
    return (
        f"Hold `{item.variable}` of {item.held_by}() in an attribute or a list as well for as long as native code may "
        f"use it: `{item.target}` ({item.place}) keeps only the address, and the memory is freed when {item.held_by}() "
        "returns."
    )


def unheld_memory(view: ProcessView) -> UnheldMemories | None:
    """Of the program's files, also where no Python code is running; None where all is held, as far as is seen."""
    frames = program_frames(view)
    known = {frame.file for frame in frames}
    frames += [frame for frame in allocating_frames(view) if frame.file not in known]
    files = program_files(view.process.snapshot, frames)
    native = native_calls(files)
    types = _struct_types(files)
    structs = _structs(files, types)
    running = [(frame.file, frame.line) for frame in program_frames(view) if frame.line]
    found = []
    for file, tree in files.items():
        search = _Search(tree, file, native, types, structs, [line for at, line in running if line and at == file])
        found += [*search.found()]
    found.sort(key=lambda item: item.variable is not None)
    return UnheldMemories(tuple(islice(dict.fromkeys(found), _MOST))) if found else None


def _struct_types(files: Mapping[str, ast.Module]) -> set[str]:
    """Classes that derive from ctypes.Structure."""
    nodes = (node for tree in files.values() for node in nodes_of(tree) if isinstance(node, ast.ClassDef))
    return {node.name for node in nodes if any(last_name(base) in ("Structure", "Union") for base in node.bases)}


def _structs(files: Mapping[str, ast.Module], types: set[str]) -> set[str]:
    """Last names of the variables that hold native structs or arrays of them, and nowhere a container of Python."""
    found: tuple[set[str], set[str]] = (set(), set())
    nodes = (node for tree in files.values() for node in nodes_of(tree) if isinstance(node, ast.Assign))
    for node in nodes:
        if isinstance(node.value, _CONTAINERS) or _is_struct(node.value, types):
            found[_is_struct(node.value, types)].update(filter(None, map(last_name, node.targets)))
    return found[True] - found[False]


def _is_struct(node: ast.expr, types: set[str]) -> bool:
    return isinstance(node, ast.Call) and (_owner_of_cffi(node) or last_name(node.func) in types)


def _owner_of_cffi(node: ast.AST) -> bool:
    """`ffi.new(...)`, which returns the owner of the memory."""
    return isinstance(node, ast.Call) and called_name(node) == "new" and _of_cffi(node)


class _Search:
    """Of one file."""

    def __init__(
        self,
        tree: ast.Module,
        file: str,
        native: NativeCalls,
        types: set[str],
        structs: set[str],
        running: Sequence[int],
    ) -> None:
        self._tree, self._file, self._native, self._types, self._structs = tree, file, native, types, structs
        self._running = [scope_of(tree, line) for line in running]
        self._parents = parents_of(tree)
        self._uses = Uses(self._parents, native.is_of_library, self._is_field)

    def found(self) -> Iterator[UnheldMemory]:
        """Of assignments to fields, and of initializers."""
        for node in nodes_of(self._tree):
            if isinstance(node, ast.Assign) and all(self._is_field(item) for item in node.targets):
                yield from self._of_field(node.targets[0], node.value)
            elif isinstance(node, ast.Call) and _owner_of_cffi(node):
                yield from self._of_initializer(node)
            elif isinstance(node, ast.Call) and last_name(node.func) in self._types:
                given = passed_values(node)
                yield from (self._described(node, owner) for owner, _ in map(_owner, given) if owner and _makes(owner))

    def _is_field(self, node: ast.expr) -> bool:
        """`self.io.inputs` and `rows[i].data`, of a native struct."""
        return isinstance(node, (ast.Attribute, ast.Subscript)) and self._struct(node.value) is not None

    def _struct(self, node: ast.expr) -> ast.expr | None:
        """The variable with the struct of which an expression is a part."""
        while True:
            if last_name(node) in self._structs:
                return node
            if not isinstance(node, (ast.Attribute, ast.Subscript)):
                return None
            node = node.value

    def _of_field(self, target: ast.expr, value: ast.expr) -> Iterator[UnheldMemory]:
        owner, by_address = _owner(value)
        if isinstance(owner, ast.Call):
            yield self._described(target, owner)
        elif isinstance(owner, ast.Name) and isinstance(target, (ast.Attribute, ast.Subscript)):
            struct = self._struct(target.value)
            scope = scope_of(self._tree, owner.lineno)
            if struct is not None and isinstance(scope, (ast.FunctionDef, ast.AsyncFunctionDef)):
                yield from self._of_local(target, owner.id, struct, scope, by_address=by_address)

    def _of_local(
        self,
        target: ast.expr,
        name: str,
        struct: ast.expr,
        scope: ast.FunctionDef | ast.AsyncFunctionDef,
        *,
        by_address: bool,
    ) -> Iterator[UnheldMemory]:
        """Of a variable of a function that has returned, where the struct lives on and no native call came before."""
        made = [
            node.value
            for node in nodes_of(scope)
            if isinstance(node, ast.Assign)
            and any(isinstance(item, ast.Name) and item.id == name for item in node.targets)
        ]
        known = len(made) == 1 and (_makes(made[0]) if by_address else _owner_of_cffi(made[0]))
        if not known or any(scope is item for item in self._running):
            return
        after = [node for node in nodes_of(scope) if isinstance(node, ast.Call) and node.lineno > target.lineno]
        if any(self._uses_struct(call, struct) for call in after) or not self._outlives(struct, scope):
            return
        if not self._uses.keep(scope, name):
            yield self._described(target, made[0], name, scope.name)

    def _uses_struct(self, call: ast.Call, struct: ast.expr) -> bool:
        """Whether it is a native call, which uses the address while the variable still holds the memory."""
        given = (last_name(node) for item in call.args for node in nodes_of(item))
        return self._native.is_of_library(call) or (self._native.has(call) and last_name(struct) in given)

    def _outlives(self, struct: ast.expr, scope: Function) -> bool:
        """Whether a struct is an attribute, a caller's or the module's, or leaves the function."""
        if not isinstance(struct, ast.Name) or is_parameter(scope, struct.id):
            return True
        own = any(
            isinstance(node, ast.Name) and node.id == struct.id and isinstance(node.ctx, ast.Store)
            for node in nodes_of(scope)
        )
        return not own or self._uses.keep(scope, struct.id)

    def _of_initializer(self, call: ast.Call) -> Iterator[UnheldMemory]:
        """`net = ffi.new("net_t *", {"layers": ffi.new("layer_t[]", n)})`: cffi copies the address alone."""
        given = self._parents.get(id(call))
        target = given.targets[0] if isinstance(given, ast.Assign) else call
        for node in (item for argument in call.args[1:] for item in nodes_of(argument)):
            inside = isinstance(node, ast.Call) and _owner_of_cffi(node)
            around = self._parents.get(id(node))
            if (
                inside
                and isinstance(node, ast.Call)
                and isinstance(around, (ast.Dict, ast.List, ast.Tuple, ast.ListComp))
            ):
                yield self._described(target, node)

    def _described(
        self, target: ast.expr, made: ast.expr, variable: str | None = None, held_by: str | None = None
    ) -> UnheldMemory:
        text, of = (shortened(ast.unparse(item), _QUOTED) for item in (target, made))
        return UnheldMemory(text, of, short_file(self._file), target.lineno, variable, held_by)


def _owner(value: ast.expr) -> tuple[ast.expr | None, bool]:
    """What owns the memory whose address a value is: a call that makes it, or a variable.

    And whether the value is but a number: an object of ctypes is held by what it is assigned to.
    """
    by_address = isinstance(value, ast.Attribute) and value.attr == "value"  # ctypes.cast(x, c_void_p).value
    value = value.value if by_address and isinstance(value, ast.Attribute) else value
    while isinstance(value, ast.Call) and not _owner_of_cffi(value):
        name, of_cffi = called_name(value), _of_cffi(value)
        if not value.args or not (name in _PASSES_ON or name == "addressof" or (name == "from_buffer" and of_cffi)):
            break
        by_address = by_address or name == "from_buffer" or (name == "addressof" and not of_cffi)
        value = value.args[-1] if of_cffi and name != "addressof" else value.args[0]
    taken = _taken(value)
    by_address, value = by_address or taken is not None, taken or value
    if isinstance(value, ast.Name) or _owner_of_cffi(value) or (by_address and _makes(value)):
        return value, by_address
    return None, by_address


def _of_cffi(call: ast.Call) -> bool:
    function = call.func
    return isinstance(function, ast.Attribute) and "ffi" in (last_name(function.value) or "").lower()


def _taken(value: ast.expr) -> ast.expr | None:
    """`x` of `x.data_ptr()`, of `x.ctypes.data` and of `x.ctypes.data_as(...)`, which a struct does not keep either."""
    taken = value.func if isinstance(value, ast.Call) else value
    if not isinstance(taken, ast.Attribute):
        return None
    if taken.attr == "data_ptr" and taken is not value:
        return taken.value
    inner = taken.value if taken.attr in ("data", "data_as") else None
    return inner.value if isinstance(inner, ast.Attribute) and inner.attr == "ctypes" else None


def _makes(node: ast.expr) -> bool:
    """Whether an expression always makes an object with memory of its own."""
    if not isinstance(node, ast.Call):
        return False
    of_array = isinstance(node.func, ast.BinOp) and isinstance(node.func.op, ast.Mult)  # (ctypes.c_long * n)()
    return _owner_of_cffi(node) or of_array or called_name(node) in _MAKES
