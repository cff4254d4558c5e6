"""A file that the reading methods of a class take from what was opened before they ran: one place for all its copies.

By syntax alone, from a method such as `__getitem__` over the functions and objects of the program that it calls.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from pytracer.analyze.evidence.slicing.bindings import bindings_of
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Made, Spot
from pytracer.analyze.evidence.syntax.bindings import set_from_outside
from pytracer.analyze.evidence.syntax.calls import called_name, keyword_value, passed_values
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.scopes import class_around, class_named, own_nodes

_PLAIN = re.compile(r"^(?:io\.|gzip\.|bz2\.|lzma\.|codecs\.)?open$|\.open$")
_ARCHIVES = re.compile(
    r"^(?:h5py\.File|(?:zipfile\.)?ZipFile|tarfile\.open|(?:tarfile\.)?TarFile|rasterio\.open|netCDF4\.Dataset"
    r"|cv2\.VideoCapture|pd\.HDFStore|pandas\.HDFStore|tables\.open_file)$"
)
_WITHOUT_POSITION = re.compile(r"^(?:lmdb|mmap|dbm|shelve|PIL\.Image|Image|os)\.")
_READS = frozenset({"read", "readinto", "readline", "readlines", "read1"})
_NO_USE = frozenset({"close", "fileno", "keys", "namelist", "infolist", "getnames", "getmembers", "isOpened"})
_MODES = re.compile(r"[wax]")
_METHODS = 24  # that are followed


@dataclass(frozen=True)
class OpenHandle:
    """`name`: as the reader writes it. `opened`: the call that opened it. `reads`: the line that uses it.

    `plain`: a file with bytes that the program itself seeks and reads; else an archive, a table, a video.
    """

    name: str
    opened: Made
    reads: Spot
    plain: bool


@dataclass
class _Reached:
    """What a method calls of the program: its functions, each with its place."""

    spots: list[Spot] = field(default_factory=list)

    def add(self, spot: Spot) -> None:
        """Once each."""
        if all(item.scope is not spot.scope for item in self.spots) and len(self.spots) < _METHODS:
            self.spots.append(spot)


def shared_handle(files: Mapping[str, ast.Module], back: Slice, owner: str) -> OpenHandle | None:
    """Of what `__getitem__` of a dataset reads; None without such a file, or with several.

    `owner`: its class; of one that is not the program's, such as a Subset, all that have the method come into question.
    """
    classes = [item for tree in files.values() for item in ast.walk(tree) if isinstance(item, ast.ClassDef)]
    named = [item for item in classes if item.name == owner]
    found: dict[tuple[str | None, int], OpenHandle] = {}
    for kind in named or classes:
        for getter in (*_methods(files, kind, "__getitem__"), *_methods(files, kind, "__iter__")):
            for item in _handles(files, back, kind, getter):
                found.setdefault((item.opened.spot.file, item.opened.line), item)
    return next(iter(found.values())) if len(found) == 1 else None


def _handles(files: Mapping[str, ast.Module], back: Slice, kind: ast.ClassDef, getter: Spot) -> Iterator[OpenHandle]:
    reached = _Reached()
    reached.add(getter)
    for spot in reached.spots:  # grows while it is gone through
        for item in own_nodes(spot.scope):
            called = [*_called(files, back, kind, item, spot)] if isinstance(item, ast.Call) else []
            if isinstance(item, ast.Subscript) and variable(item.value) is not None:  # `self.base[index]`
                called = [*_methods(files, _class_of(files, back, item.value, spot), "__getitem__")]
            for found in called:
                reached.add(found)
    for spot in reached.spots:
        for name in _names(spot):
            uses = [*_uses(spot, name)]
            opened = _opened(files, back, name, spot, reached) if uses else None
            if opened is None:
                continue
            call = opened.node
            assert isinstance(call, ast.Call)
            plain = _ARCHIVES.match(ast.unparse(call.func)) is None
            if plain and not (_is_moved(reached, name) and _is_read_from(call)):
                continue
            yield OpenHandle(name, opened, replace(spot, line=uses[0].lineno), plain)


def _called(
    files: Mapping[str, ast.Module], back: Slice, kind: ast.ClassDef, call: ast.Call, spot: Spot
) -> Iterator[Spot]:
    """The functions of the program that a call may mean: `self.read()`, `read(path)`, `self.store.read()`."""
    name, spot = called_name(call), replace(spot, line=call.lineno)
    if isinstance(call.func, ast.Name):
        function = back.defined(call.func, spot)
        if function is not None and isinstance(function[0], ast.FunctionDef):
            yield replace(function[1], scope=function[0], line=function[0].lineno)
        return
    base = call.func.value if isinstance(call.func, ast.Attribute) else None
    if base is None or name is None:
        return
    owner = class_around(spot.tree, spot.scope) if isinstance(base, ast.Name) and base.id == "self" else None
    if owner is None and variable(base) is not None:
        owner = _class_of(files, back, base, spot)
    found = [*_methods(files, owner, name)]
    if not found and isinstance(base, ast.Name) and base.id == "self":
        found = [*_methods(files, kind, name)]  # of the class that is derived from it
    yield from found


def _methods(files: Mapping[str, ast.Module], owner: ast.ClassDef | None, name: str) -> Iterator[Spot]:
    method = _method(files, owner, name) if owner is not None else None
    if method is not None:
        yield Spot(method[0], files[method[0]], method[1], method[1].lineno)


def _class_of(files: Mapping[str, ast.Module], back: Slice, node: ast.expr, spot: Spot) -> ast.ClassDef | None:
    made = back.made(node, spot, calls=True).node
    name = called_name(made) if isinstance(made, ast.Call) else None
    found = [item for tree in files.values() if name and (item := class_named(tree, name)) is not None]
    return found[0] if len(found) == 1 else None


def _method(files: Mapping[str, ast.Module], owner: ast.ClassDef, name: str) -> tuple[str, ast.FunctionDef] | None:
    """Its own, or that of a class of the program that it is derived from."""
    for file, kind in _lineage(files, owner):
        own = next((item for item in kind.body if isinstance(item, ast.FunctionDef) and item.name == name), None)
        if own is not None:
            return file, own
    return None


def _lineage(files: Mapping[str, ast.Module], owner: ast.ClassDef) -> Iterator[tuple[str, ast.ClassDef]]:
    """A class, and those of the program that it is derived from, each with its file."""
    waiting, seen = [owner], list[ast.ClassDef]()
    while waiting:
        kind = waiting.pop(0)
        file = next((file for file, tree in files.items() if any(item is kind for item in ast.walk(tree))), None)
        if file is None or kind in seen:
            continue
        yield file, kind
        seen.append(kind)
        names = [base.id for base in kind.bases if isinstance(base, ast.Name)]
        waiting += [item for name in names for tree in files.values() if (item := class_named(tree, name)) is not None]


def _names(spot: Spot) -> list[str]:
    """Variables and attributes that a function reads."""
    read = (variable(item) for item in own_nodes(spot.scope) if isinstance(item, (ast.Name, ast.Attribute)))
    return [*dict.fromkeys(name for name in read if name is not None and name != "self")]


def _uses(spot: Spot, name: str) -> Iterator[ast.expr]:
    """Where a function takes data from it: `f.read()`, `f[i]`, `np.fromfile(f)`."""
    for item in own_nodes(spot.scope):
        if isinstance(item, ast.Call):
            base = item.func.value if isinstance(item.func, ast.Attribute) else None
            own = base is not None and variable(base) == name and called_name(item) not in _NO_USE
            if own or (called_name(item) != "len" and any(variable(part) == name for part in passed_values(item))):
                yield item
        elif isinstance(item, ast.Subscript) and variable(item.value) == name and isinstance(item.ctx, ast.Load):
            yield item


def _is_moved(reached: _Reached, name: str) -> bool:
    """Whether the program seeks in it, and reads it after that."""
    calls = [item for spot in reached.spots for item in own_nodes(spot.scope) if isinstance(item, ast.Call)]
    own = [item for item in calls if isinstance(item.func, ast.Attribute) and variable(item.func.value) == name]
    seeks = any(called_name(item) == "seek" for item in own)
    reads = any(called_name(item) in _READS for item in own)
    passed = any(variable(part) == name for item in calls for part in passed_values(item))
    return seeks and (reads or passed)


def _is_read_from(call: ast.Call) -> bool:
    """Whether open() is not told to write."""
    mode = keyword_value(call, "mode") or next(
        (item for item in call.args[:2] if isinstance(item, ast.Constant) and len(str(item.value)) <= len("rb+")), None
    )
    told = mode.value if isinstance(mode, ast.Constant) else "r"
    return not (isinstance(told, str) and _MODES.search(told) and "+" not in told)


def _opened(files: Mapping[str, ast.Module], back: Slice, name: str, spot: Spot, reached: _Reached) -> Made | None:
    """The call that opened it, in a function that does not run with the reader; None where another may have."""
    node = ast.parse(name, mode="eval").body
    made = back.made(node, replace(spot, depth=None), calls=False)
    if made.node is node or not isinstance(made.node, ast.Call):
        found = _by_helper(files, name, spot)
        if found is None:
            return None
        made = found
    call = made.node
    if not isinstance(call, ast.Call) or any(item.scope is made.spot.scope for item in reached.spots):
        return None
    text = ast.unparse(call.func)
    if not (_PLAIN.search(text) or _ARCHIVES.match(text)) or _WITHOUT_POSITION.match(text):
        return None
    if any(item.arg == "driver" for item in call.keywords):
        return None
    owner = class_around(spot.tree, spot.scope) if name.startswith("self.") else None
    attribute = name.removeprefix("self.")
    if owner is not None and any(set_from_outside(tree, owner, attribute) for tree in files.values()):
        return None
    return None if _closes(made.spot, name) else made


def _by_helper(files: Mapping[str, ast.Module], name: str, spot: Spot) -> Made | None:
    """`self.file = open(path)` in a method that `__init__` alone calls, perhaps of a class that it is derived from."""
    owner = class_around(spot.tree, spot.scope)
    if owner is None or not name.startswith("self."):
        return None
    classes = [*_lineage(files, owner)]
    methods = [(file, item) for file, kind in classes for item in kind.body if isinstance(item, ast.FunctionDef)]
    sets = [(file, item, line, value) for file, item in methods for line, value, _ in bindings_of(item, name)]
    opening = [item for item in sets if isinstance(item[3], ast.Call)]
    if len(opening) != 1 or any(item[1].name != "__init__" for item in sets if item is not opening[0]):
        return None
    file, method, line, value = opening[0]
    calls = [item for item in ast.walk(files[file]) if isinstance(item, ast.Call) and called_name(item) == method.name]
    begins = [item for _, part in methods if part.name == "__init__" for item in ast.walk(part) if item in calls]
    if value is None or (method.name != "__init__" and not (len(calls) == 1 and begins)):
        return None
    return Made(value, Spot(file, files[file], method, line))


def _closes(spot: Spot, name: str) -> bool:
    """Whether the function that opens it closes it, too."""
    calls = (item for item in own_nodes(spot.scope) if isinstance(item, ast.Call) and called_name(item) == "close")
    return any(isinstance(item.func, ast.Attribute) and variable(item.func.value) == name for item in calls)
