"""The process that had a file open for writing when another one read it: as the reader recorded it, with its lines.

Other than its stack at its own end, this is of the moment of the read. Which lines write the file the source shows.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import msgspec
from msgspec import structs

from pytracer.analyze.evidence.exceptions.same_files import may_be_same
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.stored.opened import OpenedFile
from pytracer.analyze.evidence.lifetime.file_writers import NOT_OF_PATH, writers
from pytracer.analyze.evidence.slicing.own_values import iter_spots
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import scope_of
from pytracer.analyze.kin import on_one_machine
from pytracer.analyze.naming import LineWords
from pytracer.analyze.view import JobView, ProcessView
from pytracer.decode.types.snapshot import Snapshot


class WritingLines(msgspec.Struct, frozen=True):
    """`opens` makes the file; `fills`: the only statement in its block, where that is another line."""

    opens: LineWords
    fills: LineWords | None


def recorded_writer(job: JobView, reader: Snapshot, view: ProcessView, file: OpenedFile) -> ProcessView | None:
    """The only other process that had it open; None where that was not recorded, or is no process of the job."""
    other = [pid for pid in file.writer_pids if pid != reader.pid]
    found = [
        item
        for item in job.views
        if item.process.snapshot.pid in other
        and on_one_machine(item, view)
        and item.process.snapshot.created_mono_ns < (view.process.exception_mono_ns or 0)
    ]
    return found[0] if len(found) == len(other) == 1 else None


def writing_lines(at: FailingLine, file: OpenedFile) -> WritingLines | None:
    """None where several lines of the program can have written it."""
    found = {item.opens: item for item in _lines(at, file)}
    return next(iter(found.values())) if len(found) == 1 else None


def _lines(at: FailingLine, file: OpenedFile) -> Iterator[WritingLines]:
    for name, tree in at.files.items():
        for call, paths in writers(tree):
            if called_name(call) in NOT_OF_PATH:
                continue
            spot = _spot(at, name, tree, call.lineno)
            if any(may_be_same(at, file, at, path, spot) for path in paths):
                filling = _filling(tree, call)
                yield WritingLines(at.in_file(name, call.lineno), at.in_file(name, filling) if filling else None)


def _spot(at: FailingLine, file: str, tree: ast.Module, line: int) -> Spot:
    """Of a line; in a function that the reader is in with what that one was given."""
    scope = scope_of(tree, line)
    own = next((item for item in iter_spots(at.slice) if item.file == file and item.scope is scope), None)
    return structs.replace(own, line=line) if own is not None else Spot(file, tree, scope, line)


def _filling(tree: ast.Module, call: ast.Call) -> int | None:
    """The statement in the block of `with open(path, "wb") as file:`."""
    block = next(
        (
            item
            for item in nodes_of(tree)
            if isinstance(item, ast.With) and any(part.context_expr is call for part in item.items)
        ),
        None,
    )
    only = block.body[0].lineno if block is not None and len(block.body) == 1 else None
    return only if only != call.lineno else None
