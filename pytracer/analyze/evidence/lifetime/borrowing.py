"""The line of the program that gave a tensor memory of others: from an address, an array, a buffer."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from pytracer.analyze.evidence.lifetime.unmapping import unmapping_of
from pytracer.analyze.evidence.lifetime.variables import program_frames
from pytracer.analyze.evidence.lifetime.where_made import own_line
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.scopes import scope_of
from pytracer.analyze.parts import python_frame
from pytracer.analyze.tensors.origins import is_borrowed
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import Storage


def borrowed_at(view: ProcessView) -> tuple[Mapping[str, ast.Module], Spot] | None:
    """Of the tensor at the fault, with the program's files; None where it owns its memory, or an unmapping is known."""
    if unmapping_of(view) is not None:
        return None
    return borrowed_storage_at(view, view.place.storage if view.place is not None else None)


def borrowed_storage_at(view: ProcessView, storage: Storage | None) -> tuple[Mapping[str, ast.Module], Spot] | None:
    """The same of any storage."""
    if storage is None or not is_borrowed(storage):
        return None
    made = own_line(storage.allocated_by)
    frame = python_frame(made) if made is not None else None
    if frame is None or frame.file is None or frame.line is None:
        return None
    files = program_files(view.process.snapshot, [frame, *program_frames(view)])
    tree = files.get(frame.file)
    return (files, Spot(frame.file, tree, scope_of(tree, frame.line), frame.line)) if tree is not None else None
