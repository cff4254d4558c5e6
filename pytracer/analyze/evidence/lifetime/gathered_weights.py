"""A weight that FSDP gathered for a forward() or backward(), kept by the program: FSDP frees its memory afterwards.

`module.weight` is, inside a forward() and its hooks, the whole weight; FSDP2 resizes its storage to 0 when it shards
the module again. The tensor keeps its shape, and has no memory.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Sequence

import msgspec

from pytracer._library_files import is_library_file
from pytracer._text import shortened
from pytracer.analyze.evidence.lifetime.emptied import lines_that_empty, sizes_of
from pytracer.analyze.evidence.lifetime.variables import plain_expression, program_frames
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.slicing.keepers import Files
from pytracer.analyze.evidence.slicing.kept_values import KeptLine, is_same_tensor, lines_that_keep
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.names import elements
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import scope_of
from pytracer.analyze.naming import LineWords, line_in
from pytracer.analyze.tensors.fsdp_units import units
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.journal import Unit
from pytracer.decode.types.snapshot import Holder, Snapshot, Storage

_FREES = ("/torch/distributed/fsdp/_fully_shard/", "free_storage")  # the folder, and the function
_PARAMETERS = ("parameters", "named_parameters")
_MOST, _QUOTED = 2, 60


class GatheredWeight(msgspec.Struct, frozen=True):
    """`name` has the size of parameters `of`; `lines`: where it was put away, each with its text."""

    name: str
    of: str
    lines: tuple[tuple[LineWords, str], ...]
    value: str | None

    @property
    def summary(self) -> str:
        """Behind the headline."""
        lines = [f"{line} (`{text}`)" for line, text in self.lines]
        kept = f"; {' or '.join(lines)} kept it" if lines else ""
        likely = "" if self.lines else "probably "
        return (
            f"`{self.name}` is {likely}a weight of {self.of} that FSDP gathered for a forward() or backward() and has "
            f"freed since (its storage has size 0){kept}"
        )

    @property
    def advice(self) -> str:
        """The change to make."""
        where = f"at {self.lines[0][0]}" if len(self.lines) == 1 else "where it is kept"
        copy = f" (`{self.value}.detach().clone()`)" if self.value is not None else " (`.detach().clone()`)"
        return (
            f"Keep a copy{copy}, or the number that is needed (its norm), {where}: FSDP resizes that memory to 0 when "
            "it shards the module again. Or read the weight from the module where it is used: this rank's part (a "
            "DTensor; `.full_tensor()` on all ranks makes the whole), or the whole between its `unshard()` and "
            "`reshard()`."
        )


def gathered_weight(view: ProcessView, items: Sequence[Holder]) -> GatheredWeight | None:
    """Of tensors whose storages have size 0; None where a line of the program took their memory, or FSDP did not."""
    own = [item for item in items if item.elements and item.frame is not None and not is_library_file(item.frame.file)]
    own.sort(key=lambda item: len(item.expression))
    if len({item.elements for item in own}) != 1:
        return None
    elements = own[0].elements
    if lines_that_empty(view, elements) or not _freed_by_fsdp(view, elements):
        return None
    frames = program_frames(view)
    back, files = Slice(view.process.snapshot, frames), program_files(view.process.snapshot, frames)
    names = [plain_expression(item.expression) for item in own]
    return kept_weight(files, back, names, elements, view.process.snapshot)


def kept_weight(
    files: Files, back: Slice, names: Sequence[str], elements: int, snapshot: Snapshot
) -> GatheredWeight | None:
    """A weight of that size that the program keeps, by the first of the variables that are read from somewhere.

    None where no unit of fully_shard() has one, and where the lines put away something else.
    """
    found = [
        unit
        for unit in units(snapshot.recorded(Unit))
        if not unit.flat and any(item.numel == elements for item in unit.parameters)
    ]
    spot = back.spot(0)
    if not found or spot is None:
        return None
    kept: list[KeptLine] = []
    for name in names:
        kept = kept or [item for item in lines_that_keep(files, back, name, spot) if is_same_tensor(item.value)]
    of_units = {item.fqn.rpartition(".")[2] for unit in found for item in unit.parameters if item.numel == elements}
    if len(kept) > _MOST or not all(_is_weight(line, of_units) for line in kept):
        return None  # it may be another tensor of that size
    of = " or ".join([f"`{unit.fqn or unit.module}`" for unit in found[:_MOST]])
    return GatheredWeight(
        names[0],
        of if len(found) <= _MOST else f"{len(found)} units ({of}, ...)",
        tuple(
            (line_in(line.file, line.node.lineno, spot.file), shortened(ast.unparse(line.node), _QUOTED))
            for line in kept
        ),
        ast.unparse(kept[0].value) if len(kept) == 1 and not isinstance(kept[0].value, ast.Tuple) else None,
    )


def _freed_by_fsdp(view: ProcessView, elements: int) -> bool:
    freed = view.process.snapshot.storages.freed_of(sizes_of(view, elements))
    return any(_is_of_fsdp(item) for item in freed)


def _is_of_fsdp(item: Storage) -> bool:
    frame = item.freed_by.python if item.freed_by is not None else None
    folder, function = _FREES
    return frame is not None and folder in (frame.file or "") and frame.function == function


def _is_weight(line: KeptLine, names: Collection[str]) -> bool:
    """Whether it puts away a parameter behind __init__: `module.weight`, or what a loop over parameters() has."""
    if getattr(scope_of(line.tree, line.node.lineno), "name", None) == "__init__":
        return False
    values = elements(line.value)
    return any(is_same_tensor(value) and _is_parameter(line.tree, value, names) for value in values)


def _is_parameter(tree: ast.Module, value: ast.expr, names: Collection[str]) -> bool:
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
        and any(isinstance(item, ast.Name) and item.id == value.id for item in nodes_of(node.target))
        for node in nodes_of(tree)
    )
