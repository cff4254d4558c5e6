"""Large arrays that a program reserves at once, and that take memory as they are filled: `np.empty((capacity, 3, 84))`.

Linux gives a large array its pages when they are first written, so that a replay buffer grows from step to step for as
long as it has empty entries. Known from the source: shapes by constants and options. Only where a later line of the
function that makes them was met at work.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator, Mapping
from itertools import islice

import msgspec
from msgspec.structs import replace

from pytracer._text import list_words, shortened, size_words
from pytracer.analyze.evidence.ends.text_watches import option_of, own_frame
from pytracer.analyze.evidence.ports.numbers import Ports
from pytracer.analyze.evidence.slicing.callers import calls_named
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import argument_at
from pytracer.analyze.evidence.syntax.imports import imported_as
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import class_around, scope_of, spans
from pytracer.analyze.naming import LineWords
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import Snapshot

_RESERVES = frozenset({"numpy.empty", "numpy.zeros"})
_BYTES = {
    "float64": 8, "float32": 4, "float16": 2, "int64": 8, "int32": 4, "int16": 2, "int8": 1, "uint8": 1, "bool": 1,
    "bool_": 1, "float": 8, "int": 8,
}  # fmt: skip
_LEVELS = 3  # of calls that lead to it
_LOOKED_AT = 4096
_QUOTED, _NAMES = 40, 3


class Reserved(msgspec.Struct, frozen=True):
    """`nbytes`: of all `names` together, one entry of the first dimension, `count`, taking `each`."""

    names: tuple[str, ...]
    at: LineWords
    nbytes: int
    count: str
    option: str | None
    number: int
    each: int

    @property
    def words(self) -> str:
        """`; x.py:33 reserves 5.5 GiB for `self.obses` and `self.next_obses`, which take memory as they are filled`."""
        names = list_words([f"`{item}`" for item in self.names[:_NAMES]])
        takes = "takes" if len(self.names) == 1 else "take"
        it = "it is" if len(self.names) == 1 else "they are"
        return f"; {self.at} reserves {size_words(self.nbytes)} for {names}, which {takes} memory as {it} filled"

    @property
    def advice(self) -> str:
        """What to hold less of."""
        named = f"`{self.option}` ({self.number})" if self.option is not None else f"`{self.count}` ({self.number})"
        return (
            f"Make {named} small enough for the limit: each entry that is filled takes {size_words(self.each)}. Or "
            "keep each entry once, or in a smaller dtype. How many were filled is not recorded: other memory may have "
            "grown, too."
        )


class _Array(msgspec.Struct, frozen=True):
    name: str
    spot: Spot
    sizes: tuple[int, ...]
    count: ast.expr
    nbytes: int


def reserved(view: ProcessView, limit: int | None) -> Reserved | None:
    """The arrays of one function that are together larger than a limit of so many bytes."""
    snapshot = view.process.snapshot
    frame = view.python_frame or own_frame(snapshot)
    if frame is None or limit is None:
        return None
    files, back = program_files(snapshot, [frame]), Slice(snapshot, [frame])
    met = _met(snapshot)
    scopes: dict[int, list[_Array]] = {}
    for item in _arrays(files, back, snapshot, met):
        scopes.setdefault(id(item.spot.scope), []).append(item)
    largest = max(scopes.values(), key=lambda group: sum(item.nbytes for item in group), default=[])
    first = max(largest, key=lambda item: item.nbytes, default=None)
    alike = [item for item in largest if first is not None and item.sizes[0] == first.sizes[0]]
    nbytes = sum(item.nbytes for item in alike)
    if first is None or nbytes <= limit or first.spot.file is None:
        return None
    large = [item for item in alike if item.nbytes * 20 >= first.nbytes]
    line = min(item.spot.line for item in large)
    name = first.spot.file.rsplit("/", 1)[-1]
    return Reserved(
        tuple(item.name for item in large),
        LineWords(f"{name}:{line}", first.spot.file, line),
        sum(item.nbytes for item in large),
        shortened(ast.unparse(first.count), _QUOTED),
        option_of(back, first.count, first.spot),
        first.sizes[0],
        sum(item.nbytes for item in large) // max(first.sizes[0], 1),
    )


def _met(snapshot: Snapshot) -> dict[str, set[int]]:
    """The lines at which tensors were made, by file."""
    found: dict[str, set[int]] = {}
    for storage in islice(snapshot.storages.by_size(), _LOOKED_AT):
        place = storage.allocated_by.place
        if place is not None and place.line is not None:
            found.setdefault(place.file, set()).add(place.line)
    return found


def _arrays(
    files: Mapping[str, ast.Module], back: Slice, snapshot: Snapshot, met: Mapping[str, set[int]]
) -> Iterator[_Array]:
    for file, tree in files.items():
        for item in nodes_of(tree):
            if not isinstance(item, ast.Assign) or len(item.targets) != 1:
                continue
            call = item.value
            if not isinstance(call, ast.Call) or not call.args or imported_as(tree, call.func) not in _RESERVES:
                continue
            spot = _reached(files, Spot(file, tree, scope_of(tree, item.lineno), item.lineno), met)
            shape = _shape(back, snapshot, call.args[0], spot) if spot is not None else None
            each = _each(call)
            if spot is None or shape is None or each is None:
                continue
            sizes, count = shape
            yield _Array(ast.unparse(item.targets[0]), spot, sizes, count, math.prod(sizes) * each)


def _reached(
    files: Mapping[str, ast.Module], spot: Spot, met: Mapping[str, set[int]], levels: int = _LEVELS
) -> Spot | None:
    """With the only call that leads there, where the program came to a line behind it."""
    scope = spot.scope
    if isinstance(scope, ast.Lambda) or not any(spans(item, spot.line) for item in scope.body if _is_plain(item)):
        return None
    later = [line for line in met.get(spot.file or "", ()) if line > spot.line]
    if any(scope_of(spot.tree, line) is scope for line in later):
        return spot
    owner = class_around(spot.tree, scope)
    name = owner.name if owner is not None else getattr(scope, "name", None)
    if name is None or not levels or (owner is not None and getattr(scope, "name", None) != "__init__"):
        return None
    calls = [*calls_named(files, name)]
    if len(calls) != 1:
        return None
    file, tree, call = calls[0]
    outer = _reached(files, Spot(file, tree, scope_of(tree, call.lineno), call.lineno), met, levels - 1)
    return replace(spot, call=(call, outer)) if outer is not None else None


def _is_plain(statement: ast.stmt) -> bool:
    """One that runs whenever its block does."""
    return isinstance(statement, (ast.Assign, ast.AnnAssign, ast.Expr))


def _shape(back: Slice, snapshot: Snapshot, node: ast.expr, spot: Spot) -> tuple[tuple[int, ...], ast.expr] | None:
    """The sizes, and the expression of the first one."""
    made = back.made(node, spot, calls=True)
    parts = made.node.elts if isinstance(made.node, (ast.Tuple, ast.List)) else [node]
    at = made.spot if isinstance(made.node, (ast.Tuple, ast.List)) else spot
    sizes: list[int] = []
    for part in parts:
        if isinstance(part, ast.Starred):
            inner = _shape(back, snapshot, part.value, at)
            if inner is None:
                return None
            sizes += inner[0]
            continue
        number = Ports(back, snapshot, None).number(part, at)
        if number is None or number < 0:
            return None
        sizes.append(number)
    first = parts[0] if parts else None
    return (tuple(sizes), first) if first is not None and not isinstance(first, ast.Starred) else None


def _each(call: ast.Call) -> int | None:
    """Bytes of an element; None of a dtype that is not known."""
    dtype = argument_at(call, 1, "dtype")
    if dtype is None:
        return _BYTES["float64"]
    name = dtype.value if isinstance(dtype, ast.Constant) else ast.unparse(dtype).rpartition(".")[2]
    return _BYTES.get(str(name))
