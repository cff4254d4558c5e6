"""The address that memory was made of: `_from_blob(x.ctypes.data, ...)`, `from_address(ctypes.addressof(x))`.

Back over variables, arguments of the only call of a function, and what functions of the program return.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

import msgspec
from msgspec import structs

from pytracer.analyze.evidence.slicing.bindings import bindings_of, only_global
from pytracer.analyze.evidence.slicing.callers import only_call, only_function
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.bindings import lines_that_bind
from pytracer.analyze.evidence.syntax.calls import called_name, passed_values
from pytracer.analyze.evidence.syntax.lost_owners import address_taken
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import class_around, own_nodes, parameters, scope_of

_DEPTH, _MOST_STEPS = 6, 2000
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
# What takes an address for that of memory, of which it makes an array, a tensor or a pointer.
_BELIEVE = frozenset({"_from_blob", "from_blob", "from_address", "cast"})
# Calls that return what they are given, or a part of it; and those that return what something else holds.
_SAME = frozenset(
    ("view", "reshape", "ravel", "squeeze", "transpose", "asarray", "asanyarray", "ascontiguousarray", "require")
    + ("asfortranarray",)
    + ("contiguous", "to", "float", "double", "half", "cpu", "flatten", "detach", "numpy", "from_numpy", "memoryview")
    + ("frombuffer", "from_buffer", "as_tensor", "byteswap", "newbyteorder")
)
_HELD = frozenset(("get", "setdefault", "pop", "popleft", "getattr", "next", "getbuffer", "values", "items", "memmap"))
_MODULES = frozenset(("np", "numpy", "torch", "array", "ctypes", "bytearray", "bytes", "random", "cv2"))
_COPIES = frozenset(
    ("astype", "copy", "clone", "normal", "standard_normal", "uniform", "integers", "random", "read", "tobytes", "half")
    + ("double", "float", "bfloat16", "create_string_buffer", "to_numpy", "cat", "stack", "mul", "add")
)
_TAKING = ("buffer_info", "__array_interface__")
_CACHES = ("cache", "lru_cache", "cached_property", "memoize")


class GivenMemory(msgspec.Struct, frozen=True):
    """`text` (`values.ctypes.data`), at `line`, takes the address of `owner`; `how`: the part behind the owner."""

    owner: ast.expr
    text: str
    how: str
    line: int
    spot: Spot


class Search:
    """In the files of a program."""

    def __init__(self, files: Mapping[str, ast.Module]) -> None:
        self._files = files
        self._seen: set[tuple[int, bool]] = set()
        self._steps = 0
        self.assumed = False  # whether is_fresh() took a library's function for one that makes memory

    def given(self, node: ast.AST, spot: Spot, depth: int = 0) -> Iterator[GivenMemory]:
        """The addresses that what a statement makes was made of."""
        if self._was_seen(node, of_address=False):
            return
        calls = [item for item in nodes_of(node) if isinstance(item, ast.Call) and called_name(item) in _BELIEVE]
        for call in calls:
            for value in passed_values(call):
                yield from self._addresses(value, spot, depth)
        if not calls:
            for behind, at in self._behind(node, spot, depth):
                yield from self.given(behind, at, depth + 1)

    def _addresses(self, node: ast.AST, spot: Spot, depth: int) -> Iterator[GivenMemory]:
        if self._was_seen(node, of_address=True):
            return
        taken = [(item, *found) for item in nodes_of(node) if (found := taken_of(item)) is not None]
        for item, owner, how in taken:
            text = f"{ast.unparse(item)}()" if how == "buffer_info" else ast.unparse(item)
            yield GivenMemory(owner, text, how, getattr(item, "lineno", spot.line), spot)
        if not taken:
            for value, at in self._behind(node, spot, depth):
                yield from self._addresses(value, at, depth + 1)

    def _was_seen(self, node: ast.AST, *, of_address: bool) -> bool:
        """Whether it was followed before: several variables may be made of one."""
        key = (id(node), of_address)
        seen = key in self._seen
        self._seen.add(key)
        return seen

    def _behind(self, node: ast.AST, spot: Spot, depth: int) -> Iterator[tuple[ast.AST, Spot]]:
        """What the variables of an expression were set to, and what the program's functions that it calls return."""
        if depth >= _DEPTH:
            return
        for item in nodes_of(node):
            if isinstance(item, ast.Name) and isinstance(item.ctx, ast.Load):
                yield from self.values(item.id, spot)
            elif (name := variable(item)) is not None:
                yield from of_class(name, spot)
            elif isinstance(item, ast.Call):
                yield from self.returned(item, spot)

    def values(self, name: str, spot: Spot) -> Iterator[tuple[ast.AST, Spot]]:
        """What the last line above set a variable to; of a parameter what its only caller passes."""
        bound = [item for item in lines_that_bind(spot.scope, name) if item[0] <= spot.line]
        if bound:
            line, value = max(bound, key=lambda item: item[0])
            if value is not None and not isinstance(value, (ast.Import, ast.ImportFrom)):
                yield value, structs.replace(spot, line=line - 1)
        elif isinstance(spot.scope, _FUNCTIONS) and name in parameters(spot.scope):
            given = self._argument(name, spot)
            if given is not None:
                yield given
        elif not isinstance(spot.scope, ast.Module):
            found = only_global(spot.tree, name)
            if found is not None and found[1] is not None:
                yield found[1], structs.replace(spot, scope=spot.tree, line=found[0] - 1)

    def _argument(self, name: str, spot: Spot) -> tuple[ast.expr, Spot] | None:
        """What the only call of the function passes for a parameter."""
        if not isinstance(spot.scope, _FUNCTIONS):
            return None
        called = only_call(self._files, spot.scope)
        value = called.argument(spot.scope, name) if called is not None else None
        if called is None or value is None:
            return None
        line = called.call.end_lineno or called.call.lineno
        return value, Spot(called.file, called.tree, scope_of(called.tree, called.call.lineno), line)

    def returned(self, call: ast.Call, spot: Spot) -> Iterator[tuple[ast.AST, Spot]]:
        """What the program's only function of that name returns."""
        found = only_function(self._files, called_name(call) or "")
        if found is None:
            return
        file, function = found
        for item in own_nodes(function):
            if isinstance(item, ast.Return) and item.value is not None:
                yield item.value, Spot(file, self._files[file], function, item.lineno)

    def held(self, owner: ast.expr, spot: Spot) -> tuple[ast.expr, Spot]:
        """Of a parameter what the caller passed, as far as that is known."""
        for _ in range(_DEPTH):
            if not isinstance(owner, ast.Name) or lines_that_bind(spot.scope, owner.id):
                break
            given = self._argument(owner.id, spot)
            if given is None:
                break
            owner, spot = given
        return owner, spot

    def is_fresh(self, node: ast.AST | None, spot: Spot, depth: int = 0) -> bool:
        """Whether an expression makes an object with memory of its own, which nothing else holds, as far as is seen."""
        self._steps += 1
        if depth > _DEPTH or node is None or self._steps > _MOST_STEPS:
            return False
        if isinstance(node, ast.Name):
            bound = [item for item in lines_that_bind(spot.scope, node.id) if item[0] <= spot.line]
            return bool(bound) and all(
                self.is_fresh(value, structs.replace(spot, line=at - 1), depth + 1) for at, value in bound
            )
        if isinstance(node, ast.IfExp):
            return all(self.is_fresh(item, spot, depth + 1) for item in (node.body, node.orelse))
        if isinstance(node, ast.Subscript):
            return self.is_fresh(node.value, spot, depth + 1)
        return isinstance(node, (ast.BinOp, ast.UnaryOp)) or (
            isinstance(node, ast.Call) and self._makes(node, spot, depth)
        )

    def _makes(self, call: ast.Call, spot: Spot, depth: int) -> bool:
        name = called_name(call)
        if isinstance(call.func, ast.BinOp):  # (ctypes.c_float * n)()
            return True
        if name is None or name in _HELD:
            return False
        own = [item for tree in self._files.values() for item in nodes_of(tree) if getattr(item, "name", None) == name]
        if any(isinstance(item, (*_FUNCTIONS, ast.ClassDef)) for item in own):
            found = only_function(self._files, name)
            if found is None or any(_is_cache(item) for item in found[1].decorator_list):
                return False
            returned = [*self.returned(call, spot)]
            return bool(returned) and all(self.is_fresh(value, at, depth + 1) for value, at in returned)
        if name in _SAME:
            of = call.args[0] if call.args and _is_of_module(call.func) else None
            of = call.func.value if of is None and isinstance(call.func, ast.Attribute) else of
            return self.is_fresh(of, spot, depth + 1)
        self.assumed = self.assumed or not _is_known(call)
        return True


def of_class(name: str, spot: Spot) -> Iterator[tuple[ast.AST, Spot]]:
    """What the only line of a class that sets `self.x` sets it to."""
    around = class_around(spot.tree, spot.scope)
    methods = [item for item in around.body if isinstance(item, _FUNCTIONS)] if around is not None else []
    sets = [(method, line, value) for method in methods for line, value, _ in bindings_of(method, name)]
    method, line, value = sets[0] if len(sets) == 1 else (None, 0, None)
    if method is not None and value is not None:
        yield value, structs.replace(spot, scope=method, line=line - 1)


def taken_of(node: ast.AST) -> tuple[ast.expr, str] | None:
    """See address_taken(); also of `x.buffer_info()`, `x.__array_interface__` and `ctypes.addressof(x)`."""
    if isinstance(node, ast.Attribute) and node.attr in _TAKING:
        return node.value, node.attr
    if isinstance(node, ast.Call) and called_name(node) == "addressof" and len(node.args) == 1:
        return node.args[0], "addressof"
    return address_taken(node)


def _is_of_module(function: ast.expr) -> bool:
    """`np.asarray(x)` and `memoryview(x)`, not `x.reshape(3)`."""
    owner = function.value if isinstance(function, ast.Attribute) else None
    return owner is None or (isinstance(owner, ast.Name) and owner.id in ("np", "numpy", "torch"))


def _is_known(call: ast.Call) -> bool:
    """Of NumPy, torch, ctypes or Python, or a method that always copies."""
    root: ast.AST = call.func
    while isinstance(root, (ast.Attribute, ast.Call, ast.Subscript)):
        root = root.func if isinstance(root, ast.Call) else root.value
    of_module = isinstance(root, ast.Name) and root.id in _MODULES
    return of_module or called_name(call) in _COPIES


def _is_cache(node: ast.expr) -> bool:
    node = node.func if isinstance(node, ast.Call) else node
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    return name in _CACHES
