"""A weight that FSDP gathered for a forward() or backward(), kept by the program: FSDP frees its memory afterwards.

`module.weight` is, inside a forward() and its hooks, the whole weight; FSDP2 resizes its storage to 0 when it shards
the module again. The tensor keeps its shape, and has no memory.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from pytracer._library_files import is_library_file
from pytracer._text import shortened
from pytracer.analyze.evidence.lifetime.emptied import emptied_at, sizes_of
from pytracer.analyze.evidence.lifetime.variables import plain_expression, program_frames
from pytracer.analyze.evidence.lifetime.where_made import place_of
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.slicing.kept_values import KeptLine, is_same_tensor, lines_that_keep
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.tensors.fsdp_units import units
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.journal import Unit
from pytracer.decode.types.snapshot import Holder, Storage

_FREES = ("/torch/distributed/fsdp/_fully_shard/", "free_storage")  # the folder, and the function
_PARAMETERS = ("parameters", "named_parameters")
_MOST, _QUOTED = 2, 60


@dataclass(frozen=True)
class GatheredWeight:
    """`name` has the size of parameters `of`; `lines`: what put it away (`` line 50 (`kept[name] = m.weight`) ``)."""

    name: str
    of: str
    lines: tuple[str, ...]
    value: str | None

    @property
    def summary(self) -> str:
        """Behind the headline."""
        kept = f"; {' or '.join(self.lines)} kept it" if self.lines else ""
        likely = "" if self.lines else "probably "
        return (
            f"`{self.name}` is {likely}a weight of {self.of} that FSDP gathered for a forward() or backward() and has "
            f"freed since (its storage has size 0){kept}"
        )

    @property
    def advice(self) -> str:
        """The change to make."""
        where = f"at {self.lines[0].partition(' (')[0]}" if len(self.lines) == 1 else "where it is kept"
        copy = f" (`{self.value}.detach().clone()`)" if self.value is not None else " (`.detach().clone()`)"
        return (
            f"Keep a copy{copy} or the number that is needed (its norm) {where}: there FSDP has gathered the weight, and "
            "it resizes that memory to 0 when it shards the module again. Or read the weight from the module where it "
            "is used: it is this rank's part then (a DTensor; `.full_tensor()` on all ranks makes the whole), and the "
            "whole between `unshard()` and `reshard()` of the module."
        )


def gathered_weight(view: ProcessView, items: Sequence[Holder]) -> GatheredWeight | None:
    """Of tensors whose storages have size 0; None where a line of the program took their memory, or FSDP did not."""
    own = [item for item in items if item.elements and item.frame is not None and not is_library_file(item.frame.file)]
    item = min(own, key=lambda one: len(one.expression), default=None)
    if item is None or item.frame is None or item.elements is None or len({one.elements for one in own}) != 1:
        return None
    found = [
        unit
        for unit in units(view.process.snapshot.recorded(Unit))
        if not unit.flat and any(one.numel == item.elements for one in unit.parameters)
    ]
    if not found or emptied_at(view, item.elements) is not None or not _freed_by_fsdp(view, item.elements):
        return None
    kept = _kept(view, [one.expression for one in own])
    names = {one.fqn.rpartition(".")[2] for unit in found for one in unit.parameters if one.numel == item.elements}
    lines = [line for line in kept if _is_weight(line, names)]
    if len(lines) != len(kept):
        return None  # it may be another tensor of that size
    of = " or ".join([f"`{unit.fqn or unit.module}`" for unit in found[:_MOST]])
    of = of if len(found) <= _MOST else f"{len(found)} units ({of}, ...)"
    value = ast.unparse(lines[0].value) if len(lines) == 1 and not isinstance(lines[0].value, ast.Tuple) else None
    return GatheredWeight(
        plain_expression(item.expression),
        of,
        tuple(
            f"{place_of(view, line.file, line.node.lineno)} (`{shortened(ast.unparse(line.node), _QUOTED)}`)"
            for line in lines
        ),
        value,
    )


def _freed_by_fsdp(view: ProcessView, elements: int) -> bool:
    freed = view.process.snapshot.storages.freed_of(sizes_of(view, elements))
    return any(_is_of_fsdp(item) for item in freed)


def _is_of_fsdp(item: Storage) -> bool:
    frame = item.freed_by.python if item.freed_by is not None else None
    folder, function = _FREES
    return frame is not None and folder in (frame.file or "") and frame.function == function


def _kept(view: ProcessView, names: Sequence[str]) -> list[KeptLine]:
    """Lines that put a variable of the running line away as it is; of several names those of the first that has any."""
    frames = program_frames(view)
    back, files = Slice(view.process.snapshot, frames), program_files(view.process.snapshot, frames)
    spot = back.spot(0)
    for name in sorted(names, key=len) if spot is not None else ():
        found = [] if spot is None else lines_that_keep(files, back, plain_expression(name), spot)
        same = [item for item in found if is_same_tensor(item.value)]
        if same:
            return same if len(same) <= _MOST else []
    return []


def _is_weight(line: KeptLine, names: Collection[str]) -> bool:
    """Whether it puts away a parameter: `module.weight`, or what a loop over parameters() has."""
    value = line.value
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        value = value.func.value
    if isinstance(value, ast.Attribute) and value.attr == "data":
        value = value.value
    if isinstance(value, ast.Call):
        return called_name(value) == "getattr"
    if isinstance(value, ast.Attribute):
        return value.attr in names
    return isinstance(value, ast.Name) and any(
        isinstance(node, (ast.For, ast.comprehension))
        and isinstance(node.iter, ast.Call)
        and called_name(node.iter) in _PARAMETERS
        and any(isinstance(item, ast.Name) and item.id == value.id for item in ast.walk(node.target))
        for node in ast.walk(line.tree)
    )
