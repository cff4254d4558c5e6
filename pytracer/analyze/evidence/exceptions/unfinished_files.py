"""A file that was read while another process of the job was still writing it: opened, and not yet filled.

open(path, "w") makes an empty file at once. What then computes its content leaves it so for as long, and another
process that only asks whether it is there takes it for finished. The reader recorded who had it open for writing; or
the writer's stack at its own end shows that it was in such a block: which file that was is known by the path that both
lines name.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

import msgspec

from pytracer._patterns import Pattern
from pytracer._text import capital, size_words
from pytracer.analyze.evidence.exceptions.line_reasons import LineReason
from pytracer.analyze.evidence.exceptions.recorded_writers import recorded_writer, writing_lines
from pytracer.analyze.evidence.exceptions.same_files import is_known, is_same, read_names
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine, failing_line
from pytracer.analyze.evidence.failing.stored.opened import OpenedFile, broken_file, opened
from pytracer.analyze.evidence.lifetime.file_writers import writers
from pytracer.analyze.evidence.syntax.calls import argument_at, called_name
from pytracer.analyze.evidence.syntax.loops import LOOPS, deciding_ifs
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.path_questions import ASKS_OF_PATH
from pytracer.analyze.evidence.syntax.scopes import own_nodes, spans, withs_around
from pytracer.analyze.kin import on_one_machine
from pytracer.analyze.naming import LineWords, name_words
from pytracer.analyze.view import JobView, ProcessView
from pytracer.decode.types.snapshot import Snapshot
from pytracer.report.job import ExceptionReport, PythonFrame

_FRESH = 60  # seconds since it was changed
_FRAMES = 8
_CHARACTER = Pattern(r"\(char (\d+)\)$")
_ASKS = ("exists", "isfile", "is_file")
# Of files that end too early, beside what is known of their kind.
_CUT = Pattern(
    r"^EOFError|Ran out of input|truncated|zip archive|BadZip|MetadataIncomplete|HeaderToo|InvalidHeader"
    r"|cannot reshape array|No data left in file|[Uu]nexpected EOF|read all data|invalid load key"
    r"|mmap length is greater than file size"
)


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
) -> LineReason | None:
    """None where the file is old, or no other process was at a line that writes it.

    `view` is the process that ended; `snapshot` with exception and stack the one that read, such as its worker.
    """
    at, raised = failing_line(snapshot, exception, stack), view.process.exception_mono_ns
    file = opened(at.values) if at is not None else None
    if at is None or raised is None or file is None or not _is_fresh(file):
        return None
    broken = broken_file(at) is not None
    cut = broken or _is_cut(at, file)
    if cut and snapshot.pid in file.writer_pids and _only_reads(at, file):
        return _of_itself(at, file)
    writer = recorded_writer(job, snapshot, view, file)
    if not broken and (writer is None or not cut):
        return None
    found = [item for other in _alive(job, view, snapshot, raised) for item in _writing(at, file, other)]
    first = found[0] if len({item.view.index for item in found}) == 1 else None
    if writer is not None and (first is None or first.view.index != writer.index):
        return _recorded(at, file, view, writer)
    if first is None:
        return None
    fills = first.at if first.at != first.opens else None
    wrote = "was probably still writing it" if first.sure else "may still have been writing it"
    wrote = wrote if writer is None else "still had it open for writing"
    return _told(at, file, f"{name_words([first.view])} {wrote}", (first.opens, fills), (view, first.view))


def _of_itself(at: FailingLine, file: OpenedFile) -> LineReason:
    """Of a reader that had the file open for writing, too: another thread of it, or a line that has not closed it."""
    lines = writing_lines(at, file)
    opens = lines.opens if lines is not None else None
    by = f" ({opens} opens it)" if opens is not None else ""
    what = f"what {opens} opens" if opens is not None else "what was opened for writing"
    return LineReason(
        f"{file.name} {_state(file)}: this process itself still had it open for writing{by}",
        f"Before line {at.line} reads {file.name}, {what} must be closed: join() the thread that writes it, or leave "
        "its `with` (or close() it) first. Or write under another name, and os.replace() it when it is whole.",
        (opens,) if opens is not None else (),
    )


def _only_reads(at: FailingLine, file: OpenedFile) -> bool:
    """Whether what is read was not itself opened for writing, too: `open(path, "a+")` reads at its end."""
    if file.holder is None:
        return True
    made = at.made(file.holder)
    if made is None or not isinstance(made.node, ast.Call):
        return False
    mode = argument_at(made.node, 1, "mode")
    return mode is None or (isinstance(mode, ast.Constant) and not {*str(mode.value)} & {*"+wax"})


def _is_cut(at: FailingLine, file: OpenedFile) -> bool:
    """By the error. JSON that is wrong before its end, such as one value to a line, is so when it is whole, too."""
    if at.kind == "JSONDecodeError":
        found = _CHARACTER.search(at.message)
        return "Unterminated" in at.message or (found is not None and int(found[1]) >= (file.size or 0))
    return _CUT.search(f"{at.kind}: {at.message}") is not None


def _recorded(at: FailingLine, file: OpenedFile, view: ProcessView, writer: ProcessView) -> LineReason:
    """Of a process that had it open; with the lines that write it, where these are known."""
    lines = writing_lines(at, file)
    named = (lines.opens, lines.fills) if lines is not None else (None, None)
    return _told(at, file, f"{name_words([writer])} still had it open for writing", named, (view, writer))


def _told(
    at: FailingLine,
    file: OpenedFile,
    wrote: str,
    lines: tuple[LineWords | None, LineWords | None],
    pair: tuple[ProcessView, ProcessView],
) -> LineReason:
    """`lines`: that open it, and fill it; `pair`: reader and writer."""
    name, (opens, fills) = file.name, lines
    by = f" ({opens} opens it{f', {fills} fills it' if fills is not None else ''})" if opens is not None else ""
    takes, polls = _takes(at, file), _polls(at, file)
    writes = opens if opens is not None else "what writes it"
    aside = f"write under another name, and os.replace() it to {name} when it is whole"
    if takes is None and polls is not None:
        ranks = {view.process.role for view in pair} == {"rank"}
        wait = "Let all ranks call dist.barrier() behind the writing" if ranks else "Wait for what the writer does last"
        advice = (
            f"{capital(polls)} waits only until the file is there, not until it is whole. {wait} in its place; or let "
            f"{writes} {aside}."
        )
    else:
        asks = f"{capital(takes)} takes a file that is there for a finished one. " if takes is not None else ""
        advice = (
            f"{asks}Let {writes} {aside}; or let one process write the file before a barrier. Delete {name} before the "
            "next start, unless it is whole by then."
        )
    named = tuple(item for item in (takes or polls, opens, fills) if item is not None)
    return LineReason(f"{name} {_state(file)}: {wrote}{by}", advice, named)


def _state(file: OpenedFile) -> str:
    return "is empty (0 bytes)" if file.kind == "empty" else f"is incomplete ({size_words(file.size or 0)})"


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
            same = [path for path in paths if runs and is_same(at, file, held, path, spot)]
            if same:
                opens, sure = at.in_file(spot.file, call.lineno), any(is_known(held, item, spot) for item in same)
                yield _Writing(writer, opens, at.in_file(spot.file, frame.line), sure)


def _takes(at: FailingLine, file: OpenedFile) -> LineWords | None:
    """`if os.path.exists(path):` around the line that reads, or that leaves before it."""
    names = read_names(at, file)
    for item, _ in deciding_ifs(at.tree, at.line):
        text = source(item.test)
        if any(f"{ask}(" in text for ask in _ASKS) and any(name in text for name in names):
            return at.here(item.lineno)
    return None


def _polls(at: FailingLine, file: OpenedFile) -> LineWords | None:
    """`while not os.path.exists(path):` above the line that reads; or a call of a function that loops so."""
    names, spot = read_names(at, file), at.slice.spot(0)
    for item in own_nodes(spot.scope) if spot is not None else ():
        if getattr(item, "lineno", at.line) >= at.line or spot is None:
            continue
        if isinstance(item, LOOPS) and _asks(item, names):
            return at.here(item.lineno)
        if isinstance(item, ast.Call) and any(name in {*map(source, item.args)} for name in names):
            found = at.slice.function(item, spot)
            for loop in own_nodes(found[0]) if found is not None else ():
                if isinstance(loop, LOOPS) and _asks(loop, [part.arg for part in found[0].args.args]):  # type: ignore[index]
                    return at.here(item.lineno)
    return None


def _asks(loop: ast.AST, names: Sequence[str]) -> bool:
    """Whether it goes by whether such a path is there."""
    tests = [item.test for item in nodes_of(loop) if isinstance(item, (ast.While, ast.If))]
    calls = (part for test in tests for part in nodes_of(test) if isinstance(part, ast.Call))
    return any(
        called_name(call) in ASKS_OF_PATH and any(name in source(call) for name in names if name != "self")
        for call in calls
    )
