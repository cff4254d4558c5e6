"""What a line reads from a file that another line of the same program saved: that line, and the value that it saved.

By syntax alone: both paths end alike, in characters that the source shows, and only one line saves such a file.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

import msgspec
from msgspec import structs

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.stored.paths import path_parts
from pytracer.analyze.evidence.slicing.callers import only_call
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import argument_at, called_name
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import own_nodes, scope_of

_READERS = frozenset({"load", "fromfile", "memmap", "open_memmap", "from_file", "loadtxt"})
_WRITERS = frozenset({"tofile", "savez", "savez_compressed", "save", "savetxt", "memmap", "open_memmap", "write"})
_UNKNOWN = Pattern(r"\{.*? \d+ \d+\}")  # as path_parts writes what the source does not show
_NUMPY_SAVES = frozenset({"savez", "savez_compressed", "save"})
_MODE = 2  # where memmap() takes it
_LEAST = 3  # characters that are known; fewer are of any file
_NUMPY, _ARRAY = frozenset({"np", "numpy"}), ".npy"


class Written(msgspec.Struct, frozen=True):
    """`value` is what the call at `spot` saves."""

    value: ast.expr
    spot: Spot
    folder: tuple[str, ...] | None = None  # where the source shows all of it


def reads_file(call: ast.Call) -> bool:
    """Whether it reads numbers from a file whose path is its first argument."""
    return called_name(call) in _READERS and bool(call.args) and not isinstance(call.args[0], ast.Starred)


def written(files: Mapping[str, ast.Module], back: Slice, call: ast.Call, key: object, spot: Spot) -> Written | None:
    """Of a reading call; None where no line or more than one may have saved it.

    Args:
        files: Those of the program.
        back: Of the process.
        call: `np.load(path)`, at `spot`.
        key: `"rows"` of `np.load(path)["rows"]`, or None.
        spot: The place of the call.
    """
    found = writers(files, back, call, key, spot)
    return found[0] if len(found) == 1 else None


def writers(files: Mapping[str, ast.Module], back: Slice, call: ast.Call, key: object, spot: Spot) -> list[Written]:
    """All lines that may have saved it, or a part of it."""
    end = _end(back, call.args[0], spot)
    if end is None:
        return []
    found = [
        item
        for file, tree in files.items()
        for node in nodes_of(tree)
        if isinstance(node, ast.Call) and called_name(node) in _WRITERS
        for item in _of_end(back, node, key, place_of(files, file, tree, node), end)
    ]
    read = _folder(back, call.args[0], spot)
    other = found[0].folder if len(found) == 1 else None
    return [] if read is not None and other is not None and read != other else found


def saves_of(files: Mapping[str, ast.Module], back: Slice, call: ast.Call, spot: Spot) -> list[tuple[ast.Call, Spot]]:
    """The calls of np.savez() and np.save() that write the file that a call reads, whatever they put in it."""
    end, found = _end(back, call.args[0], spot), list[tuple[ast.Call, Spot]]()
    for file, tree in files.items() if end is not None else ():
        for node in nodes_of(tree):
            if isinstance(node, ast.Call) and called_name(node) in _NUMPY_SAVES and _of_numpy(node) and node.args:
                place = place_of(files, file, tree, node)
                if end in (_end(back, node.args[0], place), _end(back, node.args[0], place, added=".npz")):
                    found.append((node, place))
    return found


def place_of(files: Mapping[str, ast.Module], file: str, tree: ast.Module, node: ast.Call, left: int = 4) -> Spot:
    """The place of a call; its function is taken to be called by the only line that calls it."""
    scope = scope_of(tree, node.lineno)
    spot = Spot(file, tree, scope, node.lineno)
    outer = only_call(files, scope) if left and isinstance(scope, (ast.FunctionDef, ast.AsyncFunctionDef)) else None
    if outer is None or outer.passed is not None:
        return spot
    return structs.replace(spot, call=(outer.call, place_of(files, outer.file, outer.tree, outer.call, left - 1)))


def _of_end(back: Slice, call: ast.Call, key: object, spot: Spot, end: str) -> Iterator[Written]:
    numpy = called_name(call) == "save" and _of_numpy(call)
    for path, value in (*_saved(call, key), *_mapped(call, key), *_put(call, key, spot)):
        if _end(back, path, spot, added=_ARRAY if numpy else "") == end:
            yield Written(value, spot, _folder(back, path, spot))


def _saved(call: ast.Call, key: object) -> Iterator[tuple[ast.expr, ast.expr]]:
    """The path and the value: of `np.save(path, x)`, `torch.save(x, path)`, `x.tofile(path)`, `np.savez(path, k=x)`."""
    name, given = called_name(call), call.args
    if any(isinstance(item, ast.Starred) for item in given) or not given:
        return
    if name == "tofile" and isinstance(call.func, ast.Attribute) and key is None:
        yield given[0], call.func.value
    elif name in ("savez", "savez_compressed"):
        yield from ((given[0], item.value) for item in call.keywords if item.arg == key and key is not None)
    elif name in ("save", "savetxt") and len(given) > 1:
        path, value = given[:2] if _of_numpy(call) else given[1::-1]
        of_key = _item(value, key)
        if of_key is not None:
            yield path, of_key


def _mapped(call: ast.Call, key: object) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Of `np.memmap(path, mode="w+", ...)`, which makes the file."""
    mode = argument_at(call, _MODE, "mode")
    makes = called_name(call) in ("memmap", "open_memmap") and isinstance(mode, ast.Constant) and mode.value == "w+"
    if makes and key is None and call.args:
        yield call.args[0], call


def _put(call: ast.Call, key: object, spot: Spot) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Of `file.write(x.tobytes())`, with the path that `file` was opened by in that function."""
    given = call.args[0] if called_name(call) == "write" and len(call.args) == 1 and key is None else None
    if not isinstance(given, ast.Call) or called_name(given) != "tobytes" or not isinstance(given.func, ast.Attribute):
        return
    name = variable(call.func.value) if isinstance(call.func, ast.Attribute) else None
    for opened in _opened(spot.scope, name) if name is not None else ():
        of_path = called_name(opened) == "open" and isinstance(opened.func, ast.Attribute)
        path = opened.func.value if of_path and isinstance(opened.func, ast.Attribute) else None
        path = opened.args[0] if path is None and opened.args else path
        if path is not None:
            yield path, given.func.value


def _opened(scope: ast.AST, name: str) -> Iterator[ast.Call]:
    """The calls of open() whose file has that name."""
    for item in own_nodes(scope):
        pairs = [(part.context_expr, part.optional_vars) for part in item.items] if isinstance(item, ast.With) else []
        pairs += [(item.value, item.targets[0])] if isinstance(item, ast.Assign) else []
        for value, target in pairs:
            held = variable(target) if target is not None else None
            if held == name and isinstance(value, ast.Call) and called_name(value) == "open":
                yield value


def _item(value: ast.expr, key: object) -> ast.expr | None:
    """The value itself, or what a dict that is written there has below a key."""
    if key is None:
        return value
    pairs = zip(value.keys, value.values, strict=True) if isinstance(value, ast.Dict) else ()
    found = [item for at, item in pairs if isinstance(at, ast.Constant) and at.value == key]
    return found[0] if len(found) == 1 else None


def _of_numpy(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and variable(call.func.value) in _NUMPY


def _folder(back: Slice, node: ast.expr, spot: Spot) -> tuple[str, ...] | None:
    parts = path_parts(back, node, spot)[:-1]
    return parts if parts and not any("{" in part for part in parts) else None


def _end(back: Slice, node: ast.expr, spot: Spot, *, added: str = "") -> str | None:
    """`*.index.npy`: the file's name with `*` for what is not shown; None where too little of it is shown."""
    parts = path_parts(back, node, spot)
    name = _UNKNOWN.sub("*", parts[-1]) if parts else ""
    if not name.endswith(added):
        name += added  # as numpy.save() does (numpy 2.x, lib/_npyio_impl.py)
    return name if len(name.replace("*", "")) >= _LEAST else None
