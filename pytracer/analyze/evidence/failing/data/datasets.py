"""The dataset behind a batch: which of its samples is meant, and the method that made it."""

from __future__ import annotations

import ast
import re

import msgspec
from msgspec import structs

from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import called_name, keyword_value
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import class_named, scope_of


class Getter(msgspec.Struct, frozen=True):
    """`__getitem__` of a class of the program. `spot`: its place, with its file."""

    owner: ast.ClassDef
    method: ast.FunctionDef
    spot: Spot


def getter(at: FailingLine) -> Getter | None:
    """Of the worker's dataset; where that is torch's own or not known, of the only class that has one in this file."""
    spot = at.slice.spot(0)
    if spot is None:
        return None
    known = (at.dataset or "").rpartition(".")[2]
    if known:
        for depth in range(len(at.frames)):
            from_here = at.slice.spot(depth)
            found = at.slice.defined(ast.Name(known), from_here) if from_here is not None else None
            if found is not None and isinstance(found[0], ast.ClassDef):
                method = _method(found[0])
                return Getter(found[0], method, _inside(found[1], method)) if method is not None else None
        owner = class_named(at.tree, known)
        if owner is not None:
            method = _method(owner)
            return Getter(owner, method, _inside(spot, method)) if method is not None else None
    owners = [item for item in nodes_of(at.tree) if isinstance(item, ast.ClassDef) and _method(item) is not None]
    owners = [item for item in owners if not _loads_another(at, item)]
    method = _method(owners[0]) if len(owners) == 1 else None
    return Getter(owners[0], method, _inside(spot, method)) if method is not None else None


def _loads_another(at: FailingLine, owner: ast.ClassDef) -> bool:
    """Whether it is no dataset by its bases, and no DataLoader of the program is given one."""
    if any(re.search(r"Data|Image|Folder", ast.unparse(base)) for base in owner.bases):
        return False
    for frame_depth in range(len(at.frames)):
        spot = at.slice.spot(frame_depth)
        for item in nodes_of(spot.tree) if spot is not None else ():
            if isinstance(item, ast.Call) and called_name(item) == "DataLoader" and spot is not None:
                given = item.args[0] if item.args else keyword_value(item, "dataset")
                here = structs.replace(spot, scope=scope_of(spot.tree, item.lineno), line=item.lineno, depth=None)
                made = at.slice.made(given, here, calls=True).node if given is not None else None
                if made is None or any(isinstance(part, ast.Name) and part.id == owner.name for part in nodes_of(made)):
                    return False
                if not isinstance(made, (ast.List, ast.ListComp, ast.Tuple)) and not _is_torchs(made):
                    return False
    return True


def _is_torchs(made: ast.AST) -> bool:
    return isinstance(made, ast.Call) and called_name(made) in ("TensorDataset", "list", "ImageFolder", "load_dataset")


def _method(owner: ast.ClassDef) -> ast.FunctionDef | None:
    found = (item for item in owner.body if isinstance(item, ast.FunctionDef) and item.name == "__getitem__")
    return next(found, None)


def _inside(spot: Spot, method: ast.FunctionDef) -> Spot:
    return Spot(spot.file, spot.tree, method, method.lineno)


def indices(at: FailingLine) -> list[int]:
    """Of the samples of the batch, in its order; of the dataset that the DataLoader has."""
    words = at.values.get("indices of the batch", "").split()
    return [int(word) for word in words] if all(word.lstrip("-").isdecimal() for word in words) else []


def sample_name(at: FailingLine, place: int) -> str:
    """`sample 41 of the dataset`, of the one at a place of the batch; else `sample 3 of the batch`."""
    found = indices(at)
    return f"sample {found[place]} of the dataset" if place < len(found) else f"sample {place} of the batch"
