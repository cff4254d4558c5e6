"""Tensors that the lines of a loop or function made, as the storage table has them: what its last passes did."""

from __future__ import annotations

import ast

from pytracer.analyze.evidence.syntax.scopes import Scope, spans
from pytracer.analyze.view import ProcessView
from pytracer.report.job import PythonFrame


def made_tensors(view: ProcessView, frame: PythonFrame, within: ast.stmt) -> list[tuple[int, int]]:
    """Line and bytes of each, the oldest first, of a part of the frame's file; nothing where some may be on a device.

    Storages on a device have the sizes of their blocks.
    """
    snapshot = view.process.snapshot
    if snapshot.light or next(iter(snapshot.storages.on_devices()), None) is not None:
        return []
    found = sorted(
        (item.order, place.line, item.nbytes)
        for item in snapshot.storages
        if (place := item.allocated_by.place) is not None and place.file == frame.file
        if place.line is not None and spans(within, place.line)
    )
    return [(line, nbytes) for _, line, nbytes in found]


def made_in_loop(view: ProcessView, frame: PythonFrame, scope: Scope, loop: ast.stmt) -> list[tuple[int, int]]:
    """Those of a loop since it began: of the function's last ones, back to the last that the loop did not make."""
    if isinstance(scope, (ast.Module, ast.Lambda)):
        return []
    there = made_tensors(view, frame, scope)
    last = next((number for number, item in enumerate(reversed(there)) if not spans(loop, item[0])), len(there))
    return there[len(there) - last :]
