"""The report as text, for one screen: what died, where, why, what next. Long lists are cut with a count.

Everything here is in the JSON as well; what is omitted for brevity is shown with `everything`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile

from rich.console import Group, RenderableType
from rich.text import Text

from pytracer._library_files import counted_as_program, installed_package, is_library_file
from pytracer._printable import printable, shell_command
from pytracer._text import count_words, first_sentences, list_words, span_words, time_words
from pytracer.render.alternatives import refused_explanations
from pytracer.render.details import process_details
from pytracer.render.flight_recorder import flight_lines
from pytracer.render.frames import short_file
from pytracer.render.groups import calls_in_tables, mismatch_tables
from pytracer.render.history import seen_words
from pytracer.render.printing import LABEL_WIDTH, Hanging, printed, rows_table
from pytracer.render.processes import failed_ns, process_table, without_details
from pytracer.render.style import DEFAULT_WIDTH, Style
from pytracer.render.subject import code_row, subject_rows, why_row
from pytracer.report import job as r
from pytracer.report.of_verdict import finding_of, program_packages_of, subject_of

_OTHER_FINDINGS = 3
_ADVICE_ROOM = (8, DEFAULT_WIDTH - LABEL_WIDTH - 1)  # lines and columns
_NOTES = 2
_DEEP = 3  # frames of a package below the program's line: a framework, not a function that is called
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
    with counted_as_program(program_packages_of(report)):
        return _rendered(report, style or Style(), everything, explain, checked, processes)


def _rendered(
    report: r.Report,
    style: Style,
    everything: bool,
    explain: bool,
    checked: bool,
    processes: Sequence[r.ProcessReport] | None,
) -> str:
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
        yield from why_row(verdict, None, calls_in_tables(report))
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
    packages = program_packages_of(report)
    if packages and everything:
        yield (
            "program",
            Text(f"the installed {list_words(packages)}: its lines count as the program's own", style="dim"),
        )
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
        package = _package_between(subject)
        also = f"; --program {package} tells its lines like yours" if package is not None else ""
        yield "more", Text(f"{command} --all (every process, full stacks), or --json{also}")


def _package_between(subject: r.ProcessReport | None) -> str | None:
    """The installed package that went on from the program's innermost line, deep enough to have reasons of its own."""
    stack = (subject.python_stack or (subject.exception or r.ExceptionReport()).python_stack) if subject else None
    inside = list(takewhile(lambda frame: is_library_file(frame.file), stack or ()))
    packages = Counter(name for frame in inside if (name := installed_package(frame.file)) is not None)
    name, frames = next(iter(packages.most_common(1)), (None, 0))
    return name if frames >= _DEEP else None


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
