"""The report as text, for one screen: what died, where, why, what next. Long lists are cut with a count.

Everything here is in the JSON as well; what is omitted for brevity is shown with `everything`.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import zip_longest

from rich.console import Group, RenderableType
from rich.text import Text

from pytracer._printable import printable, shell_command
from pytracer._text import count_words, first_sentences, span_words, time_words
from pytracer.render.address import memory_text
from pytracer.render.alternatives import refused_explanations
from pytracer.render.code import code_lines, snippet_lines
from pytracer.render.details import process_details
from pytracer.render.flight_recorder import flight_lines
from pytracer.render.frames import native_lines, python_lines, short_file
from pytracer.render.groups import Call, calls_in_tables, mismatch_tables
from pytracer.render.history import seen_words
from pytracer.render.printing import LABEL_WIDTH, Hanging, printed, rows_table
from pytracer.render.processes import failed_ns, process_table, without_details
from pytracer.render.style import DEFAULT_WIDTH, Style
from pytracer.report import job as r
from pytracer.report.of_verdict import finding_of, subject_of

_OTHER_FINDINGS = 3
_ADVICE_ROOM = (8, DEFAULT_WIDTH - LABEL_WIDTH - 1)  # lines and columns
_MESSAGE_LINES = 3
_NOTES = 2
_POINTERS = 3
_COMMAND_WIDTH = 160
_UNREAD = 2
PARAGRAPHS = ("message", "abort_text", "notes")  # the first lines are shown, each on a line of its own
_REMOVED = {
    "secrets": "secret", "credentials": "URL credential", "hosts": "host name", "users": "user name", "paths": "path",
    "memory_blocks": "memory block",
}  # fmt: skip
_IN_TABLE = ("first-death", "connection-lost")  # shown in the table of ranks


def render_text(
    report: r.Report,
    style: Style | None = None,
    *,
    everything: bool = False,
    explain: bool = False,
    checked: bool = False,
    processes: Sequence[r.ProcessReport] | None = None,
) -> str:
    """The report as text, ending with a newline.

    Args:
        report: What to show.
        style: Colour and width; plain and 100 columns when not given.
        everything: Also every process with its full stacks.
        explain: Also why other explanations were refused.
        checked: Also every rule that did not fire.
        processes: The only ones in the table and in the details; the verdict stays that of the whole job.
    """
    style = style or Style()
    directories = _directories(report)
    more = shell_command("pytracer", "inspect", *map(short_file, directories)) if directories else None
    shown = printable(report if everything else without_details(report, subject_of(report)), PARAGRAPHS)
    part = printable(list(processes), PARAGRAPHS) if processes is not None else None
    blocks = [*_blocks(shown, more, everything, style.width, part)]
    blocks += refused_explanations(shown) if explain else ()
    blocks += _checked(shown) if checked else ()
    return printed(Group(*blocks), style)


def _blocks(
    report: r.Report, more: str | None, everything: bool, width: int, part: list[r.ProcessReport] | None
) -> Iterator[RenderableType]:
    """`more`: the command that shows more, with the unmodified path, because its printable form is another path."""
    verdict = report.verdict or r.Verdict()
    subject = subject_of(report)
    style = {"clean": "bold", "recovered": "bold yellow"}.get(verdict.class_ or "", "bold red")
    yield Hanging(Text(verdict.summary or "No verdict.", style=style))
    if verdict.class_ != "clean":
        yield Hanging(Text(headline_words(verdict, subject), style="dim"))
        yield Text()
    yield rows_table(rows_of(report, verdict, subject, more, everything, width, part))
    if everything:
        for process in (report.processes or []) if part is None else part:
            yield Text()
            yield process_details(process)


def _checked(report: r.Report) -> Iterator[RenderableType]:
    """One line for each rule that did not fire."""
    if report.checked:
        yield Text()
        yield Text("Checked, and not found:")
    for item in report.checked or []:
        undecided = "cannot decide: " if item.result == "cannot-decide" else ""
        yield Hanging(Text(f"{item.id}: {undecided}{item.why}"), 2)


def _directories(report: r.Report) -> list[str]:
    """All run directories of the job."""
    run = report.run or r.Run()
    return run.directories or ([run.directory] if run.directory else [])


def headline_words(verdict: r.Verdict, subject: r.ProcessReport | None) -> str:
    """`null-dereference (certain): rank 1, pid 102 on node3, 3.2 s into the run, step 6`."""
    words = verdict.class_ or "unknown"
    if verdict.confidence and verdict.class_ != "unknown":
        words += f" ({verdict.confidence})"
    if subject is not None:
        who = f"rank {subject.rank}, " if subject.rank is not None else ""
        words += f": {who}pid {subject.pid}"
        words += f" on {subject.host}" if subject.host else ""
        failed = failed_ns(subject)
        words += f", {time_words(failed)} into the run" if failed is not None else ""
        words += f", step {subject.step}" if subject.step is not None else ""
    return words


def rows_of(
    report: r.Report,
    verdict: r.Verdict,
    subject: r.ProcessReport | None,
    more: str | None,
    everything: bool,
    width: int,
    part: list[r.ProcessReport] | None = None,
) -> Iterator[tuple[str, RenderableType]]:
    """Label and content of each row below the headline."""
    for calls in mismatch_tables(report):
        yield "calls", calls
    if subject is not None:
        yield from subject_rows(subject, verdict, everything, calls_in_tables(report), report.sources or ())
    elif verdict.class_ != "clean":
        yield from _why_row(verdict, None, calls_in_tables(report))
        yield from code_row(verdict)
    table = process_table(report, width, everything) if part is None else process_table(report, width, True, part)
    if table is not None:
        yield "ranks" if any(item.rank is not None for item in report.processes or []) else "died", table
    yield from _finding_rows(report, verdict)
    if report.seen is not None:
        yield "before", Text(seen_words(report.seen))
    if verdict.advice:
        kept = verdict.advice if everything else first_sentences(verdict.advice, *_ADVICE_ROOM)
        rest = " ... (--all has the rest)" if len(kept.split()) < len(verdict.advice.split()) else ""
        yield "next", Text(f"{kept}{rest}", style="bold")
    yield from _run_rows(report, verdict, more)
    if report.run is not None and report.run.digests is not None:
        yield "digests", Text(digests_words(report.run.digests), style="dim")
    if report.removed is not None:
        yield "redacted", Text(removed_words(report.removed), style="dim")


def digests_words(digests: r.Digests) -> str:
    """`from 1,280 digests; ranks 8-15 are in none; recordings that would tell more: node3:/runs/x.blackbox`."""
    words = f"from {count_words(digests.count or 0, 'digest')}"
    if digests.missing_ranks:
        missing = digests.missing_ranks
        words += f"; {span_words(missing)} {'is' if len(missing) == 1 else 'are'} in none"
    running = digests.running or []
    if running:
        where = running[0] if len(running) == 1 else f"{len(running)} hosts"
        words += f"; the job still ran on {where} when its digest was written, {digests.as_of}"
    unread = digests.unread or []
    if unread:
        more = f" and {len(unread) - _UNREAD} more" if len(unread) > _UNREAD else ""
        words += (
            f". Only the recordings have memory, threads and operators of the suspects; they were not read: "
            f"{', '.join(unread[:_UNREAD])}{more}. Copy them here and add --recordings DIR"
        )
    return words


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
    memory = memory_text(subject, verdict.class_)
    if memory is not None:
        yield "memory", memory
    else:
        yield from _why_row(verdict, subject, calls)
    pointers = _pointers(subject)
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
        yield "python", Text("\n".join([*note, *python_lines(stack, everything and not in_details)]))
    yield from code_row(verdict)
    if snippet := snippet_lines(subject, sources):
        yield "source", Text("\n".join(snippet))
    if subject.native_stack:
        yield "native", Text("\n".join(native_lines(subject.native_stack, subject.stack_cycle)))


def code_row(verdict: r.Verdict) -> Iterator[tuple[str, RenderableType]]:
    """The lines behind the one that failed, if they are known."""
    if verdict.code:
        yield "code", Text("\n".join(code_lines(verdict.code)))


def _why_row(
    verdict: r.Verdict, subject: r.ProcessReport | None, calls: Collection[Call]
) -> Iterator[tuple[str, RenderableType]]:
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
        yield "python", Text("\n".join(python_lines(exception.python_stack, everything)))
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


def _pointers(subject: r.ProcessReport) -> list[str]:
    """Registers that point into storages, one line per storage, named ones first; without the storage of the fault."""
    fault = subject.fault.storage if subject.fault else None
    found: dict[str | None, list[r.Pointer]] = {}
    for pointer in subject.pointers or []:
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


def _finding_rows(report: r.Report, verdict: r.Verdict) -> Iterator[tuple[str, RenderableType]]:
    findings = report.findings or []
    mine = finding_of(report)
    others = [item for item in findings if item is not mine and item.id not in _IN_TABLE and not item.same_fault]
    for item in others[:_OTHER_FINDINGS]:
        yield "also", Text(item.summary or "")
    if len(others) > _OTHER_FINDINGS:
        yield "", Text(f"... {count_words(len(others) - _OTHER_FINDINGS, 'more finding')}", style="dim")
    if mine is not None and mine.missing:
        yield "missing", Text("; ".join(mine.missing))


def _run_rows(report: r.Report, verdict: r.Verdict, command: str | None) -> Iterator[tuple[str, RenderableType]]:
    subject = subject_of(report)
    guard = _guard(subject.guard) if subject and subject.guard else None
    if guard:
        yield "guard", Text(guard, style="dim")
    for note in (subject.notes or [])[:_NOTES] if subject else []:
        yield "note", Text(note.strip().splitlines()[0] if note.strip() else "", style="dim")
    damage = report.damage or []
    if damage:
        first = damage[0]
        more = f"; {len(damage) - 1} more in --json" if len(damage) > 1 else ""
        yield "damage", Text(f"{(first.file or '').rsplit('/', 1)[-1]}: {first.what}{more}")
    if report.flight_recorder:
        yield "dumps", Text("\n".join(flight_lines(report.flight_recorder)))
    for attempt in report.attempts or []:
        said = attempt.verdict.summary if attempt.verdict else None
        later = (attempt.attempt or 0) > (verdict.attempt or 0) and verdict.attempt is not None
        yield "later" if later else "earlier", Text(f"attempt {attempt.attempt}: {said or 'no verdict'}")
    directories = _directories(report)
    if directories and verdict.class_ != "clean":
        yield "run", Text(", ".join(map(short_file, directories)))
        yield "more", Text(f"{command} --all (every process, full stacks), or --json")


def removed_words(removed: Mapping[str, int]) -> str:
    """What `--redact` has replaced: "2 secrets, 1 host name"."""
    parts = [count_words(removed[kind], word) for kind, word in _REMOVED.items() if removed.get(kind)]
    return ", ".join(parts) or "nothing was found"


def _guard(guard: r.GuardReport) -> str:
    """What guard mode guarded, and what it did not."""
    which = "all storages" if guard.every == 1 else f"one storage in {guard.every}"
    words = f"{which}: {guard.guarded} guarded, {guard.quarantined} of them freed since"
    left_out = sum((guard.unguarded or {}).values())
    return words + (f"; {count_words(left_out, 'storage')} went unguarded" if left_out else "")


def _shortened(command: str) -> str:
    return command if len(command) <= _COMMAND_WIDTH else f"{command[: _COMMAND_WIDTH - 3]}..."
