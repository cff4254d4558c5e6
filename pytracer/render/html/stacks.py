"""Threads with both stacks, equal ones grouped, and the machine's state at the crash."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from pytracer._library_files import is_library_file
from pytracer._text import count_words, function_words
from pytracer.render.details import hex_lines, state_words, thread_title
from pytracer.render.frames import numbered_lines, position_words
from pytracer.render.processes import names_words, status_words
from pytracer.render.wrappers import bucket_lines, buffer_lines, unit_lines
from pytracer.report import job as r

PROCESSES = 8
THREAD_GROUPS = 40
FRAMES = 100  # of a stack
SHORT_RUN = 3  # frames of the interpreter that are not worth folding
FEW_FRAMES = 20  # of a crashed thread's stack when the page is full
MOST_CHARACTERS = 400_000  # of all stacks of the page
_MARKUP_CHARACTERS = 110  # of one frame
_LINE = re.compile(r"^(?P<number>#\d+)? +(?P<function>.*?)(?P<place>  .*)?$")
_INTERPRETER = re.compile(
    r"(?:^|\s)(?:libpython3|python3?(?:\.\d+)?\b|libffi|_ctypes|libc\.so)[^ ]*(?: \+ 0x[0-9a-f]+)?$"
)


@dataclass(frozen=True)
class Frame:
    """One frame; `library`: not of the program, or of the interpreter. `number`: of a native one, as in the text."""

    function: str
    place: str
    library: bool
    number: str = ""


@dataclass(frozen=True)
class ThreadGroup:
    """Threads that are at the same place."""

    title: str
    crashed: bool
    python: tuple[Frame, ...]
    native: tuple[Frame, ...]

    @property
    def native_runs(self) -> list[tuple[bool, list[Frame]]]:
        """The native frames, and which runs of them are the interpreter's and long enough to be folded."""
        runs = [(inside, list(frames)) for inside, frames in groupby(self.native, key=lambda frame: frame.library)]
        return [(inside and len(frames) > SHORT_RUN, frames) for inside, frames in runs]


@dataclass(frozen=True)
class ProcessView:
    """One process with its threads, and what else is known of it."""

    title: str
    is_subject: bool
    threads: tuple[ThreadGroup, ...]
    left_out: str
    registers: tuple[tuple[str, str], ...]
    pointers: tuple[tuple[str, str, str], ...]
    sections: tuple[tuple[str, tuple[str, ...]], ...]


def process_views(report: r.Report, subject: r.ProcessReport | None) -> tuple[list[ProcessView], int]:
    """The process of the verdict, then other causes, then the rest; and how many were left out."""
    found = [item for item in report.processes or [] if _is_worth_a_look(item)]
    found.sort(
        key=lambda item: (item is not subject, not item.primary, item.rank if item.rank is not None else 1 << 30)
    )
    views, room = [], MOST_CHARACTERS
    for item in found[:PROCESSES]:
        view = _view(item, item is subject, room)
        views.append(view)
        room -= sum(map(_characters, view.threads))
    return views, max(0, len(found) - PROCESSES)


def _characters(group: ThreadGroup) -> int:
    return sum(len(item.function) + len(item.place) + _MARKUP_CHARACTERS for item in (*group.python, *group.native))


def _shortened(group: ThreadGroup) -> ThreadGroup:
    more = (Frame("... more frames in --json", "", True),)
    python = group.python[:FEW_FRAMES] + more * (len(group.python) > FEW_FRAMES)
    native = group.native[:FEW_FRAMES] + more * (len(group.native) > FEW_FRAMES)
    return replace(group, python=python, native=native)


def _is_worth_a_look(item: r.ProcessReport) -> bool:
    stack = item.exception.python_stack if item.exception else None
    return bool(item.python_stack or item.native_stack or any(map(_has_stack, item.threads or [])) or stack)


def _has_stack(thread: r.ThreadReport) -> bool:
    return bool(thread.python_stack or thread.native_stack)


def _view(process: r.ProcessReport, is_subject: bool, room: int) -> ProcessView:
    """`room`: how many characters its stacks may have; the crashed thread is shown in any case."""
    groups = _groups(process)
    shown = []
    for group in groups[:THREAD_GROUPS]:
        fits = _characters(group) <= room
        if fits or group.crashed:
            shown.append(group if fits else _shortened(group))
            room -= _characters(shown[-1])
    more = len(groups) - len(shown)
    pid = f", pid {process.pid}" if process.role == "rank" else ""
    host = f" on {process.host}" if process.host else ""
    return ProcessView(
        title=f"{names_words([process])}{pid}{host}: {status_words(process)}",
        is_subject=is_subject,
        threads=tuple(shown),
        left_out=f"{count_words(more, 'more group')} of threads in --json" if more > 0 else "",
        registers=tuple((process.registers or {}).items()),
        pointers=tuple((item.register or "", item.addr or "", item.says or "") for item in process.pointers or []),
        sections=tuple((title, tuple(lines)) for title, lines in _sections(process) if lines),
    )


def _groups(process: r.ProcessReport) -> list[ThreadGroup]:
    """The crashed thread first; without threads, the one stack that the process has."""
    same: dict[tuple[object, ...], list[r.ThreadReport]] = {}
    silent: list[r.ThreadReport] = []
    for thread in process.threads or []:
        if not _has_stack(thread):
            silent.append(thread)
            continue
        python, native = _stacks(thread, process.stack_cycle)
        key = (bool(thread.crashed), thread.kind, state_words(thread), python, native)
        same.setdefault(key, []).append(thread)
    groups = [_group(threads, state, python, native) for (_, _, state, python, native), threads in same.items()]  # type: ignore[arg-type]
    if not any(item.crashed for item in groups):
        groups[:0] = _only_stack(process)
    if silent:
        names = (f"{item.name or '?'} ({item.kind}, {item.tid}){state_words(item)}" for item in silent[:FRAMES])
        listed = tuple(Frame(name, "", True) for name in names)
        groups.append(ThreadGroup(f"{count_words(len(silent), 'thread')} without a stack", False, (), listed))
    return sorted(groups, key=lambda item: not item.crashed)


def _group(
    threads: Sequence[r.ThreadReport], state: str, python: tuple[Frame, ...], native: tuple[Frame, ...]
) -> ThreadGroup:
    return ThreadGroup(thread_title(threads) + state, bool(threads[0].crashed), python, native)


def _only_stack(process: r.ProcessReport) -> Iterator[ThreadGroup]:
    """Of an exception, of an exit, or of a crash of which no threads were read."""
    exception = process.exception
    if exception is not None and exception.python_stack:
        title = f"where {exception.type or 'the exception'} was raised"
        yield ThreadGroup(title, True, _python(exception.python_stack), ())
    elif process.python_stack or process.native_stack:
        thread = r.ThreadReport(native_stack=process.native_stack)
        name = f"thread {process.thread.name} ({process.thread.tid})" if process.thread else "the thread that ended it"
        native = _native(list(numbered_lines(thread, process.stack_cycle)))
        yield ThreadGroup(name, True, _python(process.python_stack or []), native)


def _stacks(thread: r.ThreadReport, cycle: r.StackCycle | None) -> tuple[tuple[Frame, ...], tuple[Frame, ...]]:
    native = list(numbered_lines(thread, cycle if thread.crashed else None))
    return _python(thread.python_stack or []), _native(native)


def _python(stack: Sequence[r.PythonFrame]) -> tuple[Frame, ...]:
    frames = [Frame(item.function or "?", position_words(item), is_library_file(item.file)) for item in stack[:FRAMES]]
    if len(stack) > FRAMES:
        frames.append(Frame(f"... {count_words(len(stack) - FRAMES, 'more frame')}", "", True))
    return tuple(frames)


def _native(lines: list[str]) -> tuple[Frame, ...]:
    """Lines of the text as frames; functions inlined into one of the interpreter's belong to it, too."""
    frames: list[Frame] = []
    inlined: list[Frame] = []
    for line in lines[:FRAMES]:
        found = _LINE.match(line)
        if found is None:
            frames.append(Frame(line, "", True))
        elif not found["number"]:
            inlined.append(Frame(found["function"], (found["place"] or "").strip(), False))
        else:
            own = Frame(
                found["function"], (found["place"] or "").strip(), bool(_INTERPRETER.search(line)), found["number"]
            )
            frames += [*(replace(item, library=own.library) for item in inlined), own]
            inlined = []
    if len(lines) > FRAMES:
        frames.append(Frame(f"... {count_words(len(lines) - FRAMES, 'more frame')}", "", True))
    return (*frames, *inlined)


def _sections(process: r.ProcessReport) -> Iterator[tuple[str, Sequence[str]]]:
    """What the text shows with --all, beside threads, registers and pointers."""
    if process.stack_cycle is not None:
        names = [function_words(frame.function) for frame in process.stack_cycle.frames or [] if frame.function]
        yield "recursion", [f"{', '.join(names)}: {count_words(process.stack_cycle.repeats or 0, 'time')}"]
    blocks = [(f"{item.register} = {item.value}", *hex_lines(item), "") for item in process.memory_blocks or []]
    yield "memory near registers", [line for lines in blocks for line in lines]
    yield "last collectives", list(buffer_lines(process))
    yield "DDP buckets", list(bucket_lines(process))
    yield "FSDP units", list(unit_lines(process))
    yield "CUDA graphs", [_graph(item) for item in process.cuda_graphs or []]
    yield "CUDA streams", [f"{item.device} {item.stream}: {item.state}" for item in process.cuda_streams or []]
    yield "notes of the recorder", process.notes or []
    yield "environment", [f"{name}={value}" for name, value in (process.environment or {}).items()]


def _graph(graph: r.CudaGraph) -> str:
    captured = f", captured at {position_words(graph.captured_by)}" if graph.captured_by is not None else ""
    broken = f"; {count_words(graph.broken_replays, 'time')} after an input was freed" if graph.broken_replays else ""
    inputs = "".join(f"; freed: {words}" for words in graph.broken_inputs or [])
    name = f" of {graph.name}" if graph.name else ""
    replays = f", replayed {count_words(graph.replays or 0, 'time')}"
    return f"{graph.id}{name} on {graph.device}{captured}{replays}{broken}{inputs}"
