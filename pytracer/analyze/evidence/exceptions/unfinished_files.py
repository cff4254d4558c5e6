"""A file that was read while another process of the job was still writing it: opened, and not yet filled.

open(path, "w") makes an empty file at once. What then computes its content leaves it so for as long, and another
process that only asks whether it is there takes it for finished. The writer's stack at its own end shows that it was in
such a block: which file that was is known by the path that both lines name.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from itertools import takewhile

import msgspec

from pytracer._patterns import Pattern
from pytracer._text import capital, size_words
from pytracer.analyze.behind import Behind
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine, failing_line
from pytracer.analyze.evidence.failing.stored.opened import OpenedFile, broken_file, opened
from pytracer.analyze.evidence.failing.stored.paths import path_parts
from pytracer.analyze.evidence.lifetime.file_writers import names_file, texts_of, writers
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.loops import deciding_ifs
from pytracer.analyze.evidence.syntax.scopes import spans, withs_around
from pytracer.analyze.kin import on_one_machine
from pytracer.analyze.naming import LineWords, name_words
from pytracer.analyze.view import JobView, ProcessView
from pytracer.decode.types.snapshot import Snapshot
from pytracer.report.job import ExceptionReport, PythonFrame

_FRESH = 60  # seconds since it was changed
_FRAMES = 8
_MOST_INPUTS = 64
_OF_PROCESS = Pattern(r"rank|environ|getenv|pid|hostname|argv|uuid|current_process|worker", re.IGNORECASE)
_ASKS = ("exists", "isfile", "is_file")


class UnfinishedFile(msgspec.Struct, frozen=True):
    """The writer, as the explanation of an exception. `lines`: that open it, and that take it for finished."""

    subject: str
    advice: str
    lines: tuple[LineWords, ...]

    @property
    def behind(self) -> Behind:
        """These lines."""
        return Behind.of([], *self.lines)


class _Writing(msgspec.Struct, frozen=True):
    """`opens` makes the file, and the process was at `at` then, in its block or call.

    `sure`: the source has the whole path, which is that of the file.
    """

    view: ProcessView
    opens: LineWords
    at: LineWords
    sure: bool


def unfinished_file(
    job: JobView, view: ProcessView, snapshot: Snapshot, exception: ExceptionReport | None, stack: Sequence[PythonFrame]
) -> UnfinishedFile | None:
    """None where the file is old, or no other process was at a line that writes it.

    `view` is the process that ended; `snapshot` with exception and stack the one that read, such as its worker.
    """
    at, raised = failing_line(snapshot, exception, stack), view.process.exception_mono_ns
    file = opened(at.values) if at is not None else None
    if at is None or raised is None or file is None or not _is_fresh(file) or broken_file(at) is None:
        return None
    found = [item for other in _alive(job, view, snapshot, raised) for item in _writing(at, file, other)]
    if len({item.view.index for item in found}) != 1:
        return None
    first = found[0]
    state = "is empty (0 bytes)" if file.kind == "empty" else f"is incomplete ({size_words(file.size or 0)})"
    name, who = file.name, name_words([first.view])
    opens = f"{first.opens} opens it" + (f", {first.at} fills it" if first.at != first.opens else "")
    takes = _takes(at, file)
    asks = f"{capital(takes)} takes a file that is there for a finished one. " if takes is not None else ""
    wrote = "was probably still writing it" if first.sure else "may still have been writing it"
    return UnfinishedFile(
        f"{name} {state}: {who} {wrote} ({opens})",
        f"{asks}Let {first.opens} write under another name, and os.replace() it to {name} when it is whole; or let one "
        f"process write the file before a barrier. Delete {name} before the next start, unless it is whole by then.",
        tuple(item for item in (takes, first.opens, first.at) if item is not None),
    )


def _is_fresh(file: OpenedFile) -> bool:
    return file.kind not in ("absent", "folder", "lfs", "html") and (file.age_seconds or 0) < _FRESH


def _alive(job: JobView, view: ProcessView, reader: Snapshot, raised_ns: int) -> Iterator[ProcessView]:
    """Other processes of the machine that still ran when it was read, with a stack of soon after that."""
    for item in job.views:
        own = item.process.snapshot
        if own.path == reader.path or not on_one_machine(item, view) or own.created_mono_ns > raised_ns:
            continue
        seen = _seen_ns(item)
        if seen is not None and raised_ns <= seen <= raised_ns + _FRESH * 1_000_000_000:
            yield item


def _seen_ns(view: ProcessView) -> int | None:
    """When its stack was taken, at its end."""
    crash = view.crash or view.process.snapshot.ending
    if crash is not None:
        return crash.mono_ns
    return view.process.exception_mono_ns if view.raised else view.process.ended_mono_ns


def _writing(at: FailingLine, file: OpenedFile, writer: ProcessView) -> Iterator[_Writing]:
    """Lines of its stack that were in a call or block that writes that file."""
    held = failing_line(writer.process.snapshot, ExceptionReport(), writer.python_stack or writer.exception_stack)
    for depth, frame in enumerate(held.frames[:_FRAMES]) if held is not None else ():
        spot = held.slice.spot(depth) if held is not None else None
        if held is None or spot is None or frame.line is None:
            continue
        blocks = [part.context_expr for item in withs_around(spot.tree, frame.line) for part in item.items]
        for call, paths in writers(spot.tree):
            runs = spans(call, frame.line) or any(call is item for item in blocks)
            same = [path for path in paths if runs and _is_same(at, file, held, path, spot)]
            if same:
                opens, sure = at.in_file(spot.file, call.lineno), any(_is_known(held, item, spot) for item in same)
                yield _Writing(writer, opens, at.in_file(spot.file, frame.line), sure)


def _is_same(at: FailingLine, file: OpenedFile, held: FailingLine, path: ast.expr, spot: Spot) -> bool:
    """Whether it can be the path that was read: by the name of the file, or as both lines make it.

    Not one in another folder, or that is made of what each process has of its own.
    """
    known = [*takewhile(lambda part: "{" not in part, path_parts(held.slice, path, spot)[::-1])][::-1]
    parts = tuple(part for part in file.path.split("/") if part)
    if tuple(known) != parts[len(parts) - len(known) :] or _is_of_process(held, path, spot):
        return False
    if _is_known(held, path, spot):
        return True
    hit = names_file(texts_of(spot.tree, spot.line, [path])[0], file.path)
    if hit is not None and hit[1] is None:
        return True
    name = ast.unparse(path)
    if file.path == at.values.get(f"file of {name}") and (at.frame.file, at.frame.function) == _function(held, spot):
        return True
    own = at.slice.spot(0)
    written = path_parts(held.slice, path, spot)
    return own is not None and any(
        written and written[-1:] == path_parts(at.slice, ast.parse(read, mode="eval").body, own)[-1:]
        for read in _read_names(at, file)
        if "{" not in written[-1]
    )


def _is_known(held: FailingLine, path: ast.expr, spot: Spot) -> bool:
    """Whether the source has all of it."""
    parts = path_parts(held.slice, path, spot)
    return bool(parts) and not any("{" in part for part in parts)


def _is_of_process(held: FailingLine, path: ast.expr, spot: Spot) -> bool:
    """Whether a rank, the environment or the like is part of the path: another process has another one."""
    waiting: list[tuple[ast.AST, Spot]] = [(path, spot)]
    seen = 0
    while waiting and seen < _MOST_INPUTS:
        seen += 1
        made = held.slice.made(*waiting.pop(), calls=False)
        named = made.node.value if isinstance(made.node, ast.Subscript) else made.node
        if isinstance(named, (ast.Name, ast.Attribute)) and _OF_PROCESS.search(ast.unparse(named)):
            return True
        waiting += [(part, made.spot) for part in _inputs(made.node)]
    return bool(waiting)


def _inputs(node: ast.AST) -> Iterator[ast.AST]:
    """Of an item of a list its place alone; not the test of what other ranks have None of: these are sent it."""
    match node:
        case ast.IfExp(body=body, orelse=ast.Constant(value=None)):
            yield body
        case ast.Subscript(value=ast.Name() | ast.Attribute(value=ast.Name(id="self")), slice=index):
            yield index
        case _:
            for item in ast.iter_child_nodes(node):
                yield item.value if isinstance(item, ast.keyword) else item


def _function(held: FailingLine, spot: Spot) -> tuple[str | None, str | None]:
    frame = held.frames[spot.depth] if spot.depth is not None else None
    return (frame.file, frame.function) if frame is not None else (None, None)


def _read_names(at: FailingLine, file: OpenedFile) -> list[str]:
    """The variables of the line's function that have its path."""
    begin = "file of "
    return [
        name.removeprefix(begin) for name, value in at.values.items() if name.startswith(begin) and value == file.path
    ]


def _takes(at: FailingLine, file: OpenedFile) -> LineWords | None:
    """`if os.path.exists(path):` around the line that reads, or that leaves before it."""
    names = _read_names(at, file)
    for item, _ in deciding_ifs(at.tree, at.line):
        text = source(item.test)
        if any(f"{ask}(" in text for ask in _ASKS) and any(name in text for name in names):
            return at.here(item.lineno)
    return None
