"""The process of the verdict, as rows of the report: what it died of, and where it was."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator, Sequence
from itertools import zip_longest

from rich.console import RenderableType
from rich.text import Text

from pytracer._text import count_words
from pytracer.render.address import memory_text
from pytracer.render.code import code_lines, snippet_lines
from pytracer.render.frames import exception_lines, native_lines, python_lines
from pytracer.render.groups import Call
from pytracer.report import job as r

_MESSAGE_LINES = 3
_POINTERS = 3
_COMMAND_WIDTH = 160


def subject_rows(
    subject: r.ProcessReport,
    verdict: r.Verdict,
    everything: bool,
    calls: Collection[Call],
    sources: Sequence[r.SourceSnippet],
) -> Iterator[tuple[str, RenderableType]]:
    """What is known about the process of the verdict, with a label for each piece."""
    if subject.exception is not None and subject.signal is not None and verdict.class_ == "python-exception":
        yield from _raised_rows(subject, subject.exception, subject.signal, everything)
        return
    if subject.fault is not None:
        yield "fault", _fault(subject)
    elif subject.signal is not None:
        yield "signal", _signal(subject.signal, subject.pid)
    if subject.doing is not None:
        yield subject.doing.kind or "doing", Text(subject.doing.text or "")
    yield from _word_rows(subject, verdict)
    memory = memory_text(subject, verdict)
    if memory is not None:
        yield "memory", memory
    else:
        yield from why_row(verdict, subject, calls)
    pointers = _pointers(subject, freed=verdict.class_ != "abort")
    if pointers:
        yield "pointers", Text("\n".join(pointers))
    if subject.operator is not None and subject.operator.says:
        yield "operator", Text(subject.operator.says)
    thread = _thread(subject, everything)
    if thread:
        yield "thread", Text(thread)
    note, stack = _python_stack(subject)
    if stack:
        in_details = subject.registers is not None  # with all other threads
        full, exception = everything and not in_details, subject.exception
        of_it = exception is not None and stack == exception.python_stack
        lines = exception_lines(exception, full) if exception and of_it else python_lines(stack, full)
        yield "python", Text("\n".join([*note, *lines]))
    yield from code_row(verdict)
    if snippet := snippet_lines(subject, sources):
        yield "source", Text("\n".join(snippet))
    if subject.native_stack:
        yield "native", Text("\n".join(native_lines(subject.native_stack, subject.stack_cycle)))


def code_row(verdict: r.Verdict) -> Iterator[tuple[str, RenderableType]]:
    """The lines behind the one that failed, if they are known."""
    if verdict.code:
        yield "code", Text("\n".join(code_lines(verdict.code)))


def why_row(
    verdict: r.Verdict, subject: r.ProcessReport | None, calls: Collection[Call]
) -> Iterator[tuple[str, RenderableType]]:
    """The evidence that no other row has."""
    shown = [sentence for sentence, fact in _evidence(verdict) if fact is None or not _has_row(fact, subject, calls)]
    if shown:
        yield "why", Text("\n".join(shown))


def _evidence(verdict: r.Verdict) -> list[tuple[str, r.Fact | None]]:
    """Each sentence and what it is about, which reports of older versions lack."""
    return list(zip_longest(verdict.evidence or (), (verdict.facts or ())[: len(verdict.evidence or ())]))


def _has_row(fact: r.Fact, subject: r.ProcessReport | None, calls: Collection[Call]) -> bool:
    """Whether a fact is shown in a row of its own."""
    if fact.kind == "collective-call":
        return (tuple(fact.ranks or ()), fact.call or "") in calls
    if fact.kind in ("signal", "access"):
        return subject is not None and subject.signal is not None
    return subject is not None and fact.kind in ("python-line", "sender-command")


def _word_rows(subject: r.ProcessReport, verdict: r.Verdict) -> Iterator[tuple[str, RenderableType]]:
    """The program's own messages: an exception, the C library's last text; nothing that is in the verdict."""
    exception, status = subject.exception, subject.status
    raised = status is not None and status.kind == "exception"
    if exception is not None and not verdict.quotes_exception and (raised or exception.language == "C++"):
        yield "error", _exception(exception)
    if subject.abort_text and not any(item.kind == "printed" for item in verdict.facts or []):
        yield "printed", Text(_cut_lines(subject.abort_text))


def _raised_rows(
    subject: r.ProcessReport, exception: r.ExceptionReport, signal: r.Signal, everything: bool
) -> Iterator[tuple[str, RenderableType]]:
    """An exception, and the signal of which the process died while shutting down, without the stacks of that time."""
    yield "error", _exception(exception)
    if exception.python_stack:
        yield "python", Text("\n".join(exception_lines(exception, everything)))
    yield "later", Text(f"{signal.name} ended the process while it was shutting down")


def _fault(subject: r.ProcessReport) -> Text:
    fault = subject.fault or r.Fault()
    text = _signal(subject.signal, subject.pid) if subject.signal else Text("fault")
    verb = {"read": "reading", "write": "writing", "execute": "executing"}.get(fault.access or "", "touching")
    size = f" {count_words(fault.size, 'byte')} at" if fault.size else ""
    text.append(f" {verb}{size} ")
    text.append(fault.addr or "an address that the processor does not report", style="bold")
    if fault.instruction:
        text.append(f"; {fault.instruction}", style="dim")
    elif fault.expression and fault.expression_found == "guessed":
        text.append(f"; perhaps {fault.expression}", style="dim")
    return text


def _signal(signal: r.Signal, own_pid: int | None) -> Text:
    text = Text().append(signal.name or f"signal {signal.number}", style="bold")
    if signal.code:
        text.append(f" ({signal.code})")
    if signal.sender_pid is not None and signal.sender_pid == own_pid:
        text.append(", sent by the process itself")
    elif signal.sender_pid:
        text.append(f", sent by process {signal.sender_pid}")
        if signal.sender_command:
            # A process that wrote a title over its arguments leaves empty ones behind it.
            count = max(at for at, word in enumerate(signal.sender_command, 1) if word or at == 1)
            text.append(f": {_shortened(shlex.join(signal.sender_command[:count]))}")
    return text


def _exception(exception: r.ExceptionReport) -> Text:
    text = Text().append(exception.type or "an exception", style="bold")
    message = _cut_lines(exception.message or "")
    return text.append(f": {message}") if message else text


def _cut_lines(message: str) -> str:
    """Of one that holds a traceback, what is above it and its last line, which has the reason."""
    lines = message.strip().splitlines()
    begin = next((n for n, line in enumerate(lines) if line.startswith("Traceback (most recent call last):")), 0)
    kept = lines[: min(begin, _MESSAGE_LINES - 2)]
    if kept and len(lines) > _MESSAGE_LINES:
        cut = len(lines) - len(kept) - 1
        return "\n".join([*kept, f"... {count_words(cut, 'more line')}", lines[-1]])
    more = [f"... {count_words(len(lines) - _MESSAGE_LINES, 'more line')}"] if len(lines) > _MESSAGE_LINES else []
    return "\n".join([*lines[:_MESSAGE_LINES], *more])


def _pointers(subject: r.ProcessReport, *, freed: bool) -> list[str]:
    """Registers that point into storages, one line per storage, named ones first; without the storage of the fault.

    `freed`: also into freed ones. A process that ended itself by abort() has used none of these.
    """
    fault = subject.fault.storage if subject.fault else None
    found: dict[str | None, list[r.Pointer]] = {}
    for pointer in subject.pointers or []:
        if pointer.storage is not None and not freed and pointer.storage.state == "freed":
            continue
        if pointer.storage is not None and (fault is None or pointer.storage.base != fault.base):
            found.setdefault(pointer.storage.base, []).append(pointer)
    first = sorted((items[0] for items in found.values()), key=_by_interest)
    return [f"{item.register} {item.says}" for item in first[:_POINTERS]]


def _by_interest(pointer: r.Pointer) -> tuple[bool, bool, int]:
    nbytes = pointer.storage.nbytes if pointer.storage else None
    return not pointer.names, pointer.kind != "in-storage", -(nbytes or 0)


def _thread(subject: r.ProcessReport, everything: bool) -> str:
    thread, node = subject.thread, subject.autograd_node
    parts = []
    if thread is not None:
        parts.append(f"{thread.kind} thread {thread.name} ({thread.tid})")
    if node is not None:
        number = f" (sequence number {node.sequence_nr})" if node.sequence_nr is not None else ""
        parts.append(f"running autograd node {node.name}{number}")
    opener = subject.parallel_region_opener
    if opener is not None and opener.kind not in ("main", "python"):
        parts.append(f"in a parallel region opened by {opener.kind} thread {opener.name} ({opener.tid})")
    stream = subject.current_stream
    if stream is not None and stream.crashed_thread:
        name = "the default stream" if stream.stream == "0x0" else f"stream {stream.stream}"
        parts.append(f"on {name} of {stream.device}")
    others = subject.threads_total or 0
    crashed = f", {len(subject.also_crashed)} of them crashed as well" if subject.also_crashed else ""
    if others:
        parts.append(f"{count_words(others, 'other thread')}{crashed}: see {'below' if everything else '--all'}")
    return ", ".join(parts)


def _python_stack(subject: r.ProcessReport) -> tuple[list[str], list[r.PythonFrame]]:
    """The stack to show and a note: if the crashed thread runs no Python, of the one that opened its parallel region,
    else of the main thread.
    """
    if subject.python_stack:
        return [], subject.python_stack
    opener = subject.parallel_region_opener
    for thread in subject.threads or []:
        if opener is not None and thread.tid == opener.tid and thread.python_stack:
            return [f"this thread runs no Python; {_opener(opener)} was at"], thread.python_stack
    for thread in subject.threads or []:
        if thread.kind == "main" and thread.python_stack and not thread.crashed:
            return ["this thread runs no Python; the main thread was at"], thread.python_stack
    return [], []


def _opener(thread: r.Thread) -> str:
    who = "the main thread" if thread.kind == "main" else f"{thread.kind} thread {thread.name} ({thread.tid})"
    return f"{who}, which opened the parallel region,"


def _shortened(command: str) -> str:
    return command if len(command) <= _COMMAND_WIDTH else f"{command[: _COMMAND_WIDTH - 3]}..."
