"""The dataset that a loop's DataLoader reads, where it is one that gives its samples in its own order and number.

No sampler deals out the samples of an IterableDataset: each rank has as many as its own part gives.
"""

from __future__ import annotations

import ast

import msgspec
from msgspec import structs

from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import called_name, keyword_value
from pytracer.analyze.evidence.syntax.loops import Loop

_LOADERS = ("DataLoader", "StatefulDataLoader", "WebLoader")
_OF_LIBRARIES = ("WebDataset", "IterableWrapper", "ChainDataset")
_ITERABLE = ("IterableDataset", "IterDataPipe")
_PASSES_ON = ("enumerate", "tqdm", "track", "zip", "islice", "iter", "prepare", "prepare_data_loader")
_MOST = 6


class Stream(msgspec.Struct, frozen=True):
    """`name`: of its class; `line`: of that class, where it is in the file of the loop."""

    name: str
    line: int | None

    @property
    def words(self) -> str:
        """`` `Shards` (line 21) is an IterableDataset ``."""
        line = f" (line {self.line})" if self.line is not None else ""
        return f"`{self.name}`{line} is an IterableDataset"


def stream_of(slice_: Slice, depth: int, loop: Loop) -> Stream | None:
    """Of a loop around a frame's line; None where it goes through something else, or what it is is not known."""
    spot = slice_.spot(depth)
    if spot is None or isinstance(loop, ast.While):
        return None
    node, at = _loader(slice_, loop.iter, structs.replace(spot, line=loop.lineno))
    if node is None:
        return None
    given = node.args[0] if node.args else keyword_value(node, "dataset")
    made = slice_.made(given, at, calls=True) if given is not None else None
    if made is None or not isinstance(made.node, ast.Call):
        return None
    name = called_name(made.node) or ""
    if name in _OF_LIBRARIES:
        return Stream(name, None)
    found = slice_.defined(made.node.func, made.spot)
    if found is None or not isinstance(found[0], ast.ClassDef) or not _is_iterable(slice_, found[0], found[1]):
        return None
    return Stream(found[0].name, found[0].lineno if found[1].file == spot.file else None)


def _loader(slice_: Slice, node: ast.expr, spot: Spot) -> tuple[ast.Call | None, Spot]:
    for _ in range(_MOST):
        made = slice_.made(node, spot, calls=True)
        if not isinstance(made.node, ast.Call):
            break
        if called_name(made.node) in _LOADERS:
            return made.node, made.spot
        if called_name(made.node) not in _PASSES_ON or not made.node.args:
            break
        node, spot = made.node.args[0], made.spot
    return None, spot


def _is_iterable(slice_: Slice, owner: ast.ClassDef, spot: Spot) -> bool:
    """By its bases; of a class of the program by those of that one."""
    for base in owner.bases:
        if ast.unparse(base).rpartition(".")[2].partition("[")[0] in _ITERABLE:
            return True
        found = slice_.defined(base, spot)
        if found is not None and isinstance(found[0], ast.ClassDef) and found[0] is not owner:
            return _is_iterable(slice_, found[0], found[1])
    return False
