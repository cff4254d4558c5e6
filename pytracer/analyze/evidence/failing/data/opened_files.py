"""How an object got the open file that its methods read: the call that opened it, before they ran."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import Literal

import msgspec

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.slicing.bindings import bindings_of
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Made, Spot
from pytracer.analyze.evidence.syntax.bindings import set_from_outside
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import class_around, class_named, own_nodes

OpenedKind = Literal["file", "archive", "store", "perhaps a file"]
_KINDS: tuple[tuple[OpenedKind, Pattern], ...] = (
    ("file", Pattern(r"^(?:(?:io|gzip|bz2|lzma|codecs)\.)?open$")),
    (
        "archive",
        Pattern(
            r"^(?:h5py\.File|(?:zipfile\.)?ZipFile|tarfile\.open|(?:tarfile\.)?TarFile|rasterio\.open|netCDF4\.Dataset"
            r"|cv2\.VideoCapture|pd\.HDFStore|pandas\.HDFStore|tables\.open_file)$"
        ),
    ),
    ("store", Pattern(r"^(?:(?:np|numpy)\.load|sqlite3\.connect|lmdb\.open)$")),
    ("perhaps a file", Pattern(r"^(?!(?:lmdb|mmap|dbm|shelve|zarr|PIL\.Image|Image|os)\.).*\.open$")),
)
_WITHOUT_POSITION = ("driver", "mmap_mode")  # options by which it is in memory


class Opened(msgspec.Struct, frozen=True):
    """The call that opened it.

    `kind`: a file whose bytes the program itself reads; an archive, a table, a video, which moves its own; a store that
    checks what it reads, so that it gives no data of another place. `path.open()` is perhaps a file.
    """

    made: Made
    call: ast.Call
    kind: OpenedKind


def opened_file(files: Mapping[str, ast.Module], back: Slice, name: str, spot: Spot) -> Opened | None:
    """What `name` has open where a function reads it; None where another line may have set or closed it.

    Args:
        files: Those of the program.
        back: Of the process.
        name: A variable, or an attribute as `self.file`.
        spot: The function that reads it.
    """
    node = ast.parse(name, mode="eval").body
    made = back.made(node, spot, calls=False)
    copied = any(isinstance(item, ast.Call) for item, _ in made.through)  # `list(file)`
    found = made if isinstance(made.node, ast.Call) and not copied else _by_helper(files, name, spot)
    call = found.node if found is not None else None
    if found is None or not isinstance(call, ast.Call) or any(item.arg in _WITHOUT_POSITION for item in call.keywords):
        return None
    text = ast.unparse(call.func)
    kind = next((kind for kind, pattern in _KINDS if pattern.search(text)), None)
    if kind is None or _closes(found.spot, name):
        return None
    owner = class_around(spot.tree, spot.scope) if name.startswith("self.") else None
    attribute = name.removeprefix("self.")
    if owner is not None and any(set_from_outside(tree, owner, attribute) for tree in files.values()):
        return None
    return Opened(found, call, kind)


def lineage(files: Mapping[str, ast.Module], owner: ast.ClassDef) -> Iterator[tuple[str, ast.ClassDef]]:
    """A class, and those of the program that it is derived from, each with its file."""
    waiting, seen = [owner], list[ast.ClassDef]()
    while waiting:
        kind = waiting.pop(0)
        file = next((file for file, tree in files.items() if any(item is kind for item in nodes_of(tree))), None)
        if file is None or kind in seen:
            continue
        yield file, kind
        seen.append(kind)
        names = [base.id for base in kind.bases if isinstance(base, ast.Name)]
        waiting += [item for name in names for tree in files.values() if (item := class_named(tree, name)) is not None]


def _by_helper(files: Mapping[str, ast.Module], name: str, spot: Spot) -> Made | None:
    """`self.file = open(path)` in a method that `__init__` alone calls, perhaps of a class that it is derived from."""
    owner = class_around(spot.tree, spot.scope)
    if owner is None or not name.startswith("self."):
        return None
    classes = [*lineage(files, owner)]
    methods = [(file, item) for file, kind in classes for item in kind.body if isinstance(item, ast.FunctionDef)]
    sets = [(file, item, line, value) for file, item in methods for line, value, _ in bindings_of(item, name)]
    opening = [item for item in sets if isinstance(item[3], ast.Call)]
    if len(opening) != 1 or any(item[1].name != "__init__" for item in sets if item is not opening[0]):
        return None
    file, method, line, value = opening[0]
    calls = [item for item in nodes_of(files[file]) if isinstance(item, ast.Call) and called_name(item) == method.name]
    begins = [item for _, part in methods if part.name == "__init__" for item in nodes_of(part) if item in calls]
    if value is None or (method.name != "__init__" and not (len(calls) == 1 and begins)):
        return None
    return Made(value, Spot(file, files[file], method, line))


def _closes(spot: Spot, name: str) -> bool:
    """Whether the function that opens it closes it, too."""
    calls = (item for item in own_nodes(spot.scope) if isinstance(item, ast.Call) and called_name(item) == "close")
    return any(isinstance(item.func, ast.Attribute) and variable(item.func.value) == name for item in calls)
