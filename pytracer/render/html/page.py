"""The report as one page, complete without JavaScript.

Everything that the job or its recording chose is made printable before it is laid out; `document` escapes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rich.text import Text

from pytracer._library_files import counted_as_program, is_library_file
from pytracer._printable import printable, shell_command
from pytracer._text import count_words, ranks_words
from pytracer.render.frames import place_words, short_file
from pytracer.render.groups import calls_in_tables
from pytracer.render.html.document import document
from pytracer.render.html.memory import memory_view
from pytracer.render.html.ranks import group_rows, rank_rows, ranks_figure, wait_sentences
from pytracer.render.html.stacks import process_views
from pytracer.render.processes import names_words, process_rows, why_words
from pytracer.render.subject import code_row, subject_rows
from pytracer.render.text import PARAGRAPHS, headline_words, removed_words
from pytracer.report import job as r
from pytracer.report.of_verdict import finding_of, program_packages_of, subject_of

RANK_ROWS = 32
GROUP_ROWS = 64
FINDINGS = 64
EVIDENCE = 24
MEMORIES = 2
_QUIET = ("clean", "recovered")


@dataclass(frozen=True)
class Finding:
    """One finding with everything that it rests on."""

    id: str
    summary: str
    confidence: str
    ranks: str
    evidence: Sequence[str]
    missing: Sequence[str]
    advice: str
    leads: bool


def render_html(report: r.Report) -> str:
    """The page of a report.

    Raises:
        ModuleNotFoundError: jinja2 is not installed (extra `html`).
    """
    with counted_as_program(program_packages_of(report)):
        content = _content(printable(report, PARAGRAPHS), _more(report))
        return document("page.html", styles=("style.css",), script="page.js", **content)


def _content(report: r.Report, more: str | None) -> dict[str, Any]:
    """What the template shows. `more`: the command that shows all, with the unmodified path."""
    verdict = report.verdict or r.Verdict()
    subject = subject_of(report)
    shown = subject_rows(subject, verdict, True, calls_in_tables(report), report.sources or ()) if subject else None
    rows = dict(_lines(shown if shown is not None else code_row(verdict)))
    touched = rows.pop("memory", None) or _touched(subject) or rows.pop("why", None) or list(verdict.evidence or [])
    processes, processes_left_out = process_views(report, subject)
    table = process_rows(report)
    groups = group_rows(report)
    checked = report.checked or []
    several = len(report.processes or []) > 1
    return {
        "verdict": verdict,
        "quiet": verdict.class_ in _QUIET,
        "headline": headline_words(verdict, subject),
        "who": _who(subject),
        "who_title": ("Died first" if several else "Who died") if subject is not None and subject.primary else "Who",
        "ranks_title": "Ranks" if any(item.role == "rank" for item in report.processes or []) else "Processes",
        "touched": touched,
        "touched_title": "What it touched" if subject is not None and subject.fault is not None else "Why",
        "rows": rows,
        "memories": [
            (names_words([item]), view)
            for number, item in enumerate(_with_memory(report, subject))
            if (view := memory_view(item, f"memory{number}")) is not None
        ],
        "ranks": ranks_figure(report),
        "waits": wait_sentences(report),
        "rank_rows": rank_rows(table[:RANK_ROWS], verdict.rank),
        "rank_rows_left_out": max(0, len(table) - RANK_ROWS),
        "groups": groups[:GROUP_ROWS],
        "groups_left_out": max(0, len(groups) - GROUP_ROWS),
        "mismatches": list(_mismatches(report)),
        "processes": processes,
        "processes_left_out": processes_left_out,
        "findings": list(_findings(report)),
        "alternatives": [item for item in report.alternatives or [] if item.close],
        "not_found": [item for item in checked if item.result == "not-found"],
        "cannot_decide": [item for item in checked if item.result != "not-found"],
        "run": list(_run(report)),
        "attempts": report.attempts or [],
        "damage": report.damage or [],
        "more": more,
    }


def _lines(rows: Iterator[tuple[str, Any]]) -> Iterator[tuple[str, list[str]]]:
    """Rows of the text report as lines; its tables have tables of their own here."""
    for label, content in rows:
        if isinstance(content, Text):
            yield label, content.plain.split("\n")


def _who(subject: r.ProcessReport | None) -> list[str]:
    if subject is None:
        return ["No single process."]
    pid = f", pid {subject.pid}" if subject.rank is not None else ""
    lines = [f"{names_words([subject])}{pid}" + (f" on {subject.host}" if subject.host else "")]
    if subject.thread is not None:
        lines.append(f"{subject.thread.kind} thread {subject.thread.name} ({subject.thread.tid})")
    if subject.python_stack:
        own = next((item for item in subject.python_stack if not is_library_file(item.file)), None)
        lines.append(f"at {place_words(own or subject.python_stack[0])}")
    if subject.primary is False and subject.why:
        lines.append(why_words(subject))
    return lines


def _touched(subject: r.ProcessReport | None) -> list[str]:
    """An address at which no storage and no mapping lay."""
    fault = subject.fault if subject is not None else None
    return [f"{fault.addr} {fault.says}"] if fault is not None and fault.addr and fault.says else []


def _with_memory(report: r.Report, subject: r.ProcessReport | None) -> list[r.ProcessReport]:
    """The process of the verdict and other causes."""
    found = [item for item in report.processes or [] if item.neighborhood is not None]
    found.sort(key=lambda item: (item is not subject, not item.primary))
    return [item for item in found if item is subject or item.primary is not False][:MEMORIES]


def _mismatches(report: r.Report) -> Iterator[tuple[str, list[tuple[str, str, str, bool]]]]:
    """Collectives on which ranks disagree: the title, and who called what from where."""
    for group in (report.collectives.groups if report.collectives else None) or []:
        found = group.mismatch
        if found is not None:
            odd = set(found.odd_ranks or ())
            rows = [
                (
                    ranks_words(item.ranks or []) if item.ranks else "no rank",
                    item.call or "",
                    place_words(item.python) if item.python is not None else "",
                    bool(item.ranks) and set(item.ranks or ()) <= odd,
                )
                for item in (found.variants or [])[:GROUP_ROWS]
            ]
            yield f"Collective {found.sequence_nr} of group {group.name}: ranks disagree on {found.field}", rows


def _findings(report: r.Report) -> Iterator[Finding]:
    findings = report.findings or []
    leading = finding_of(report)
    for item in findings[:FINDINGS]:
        yield Finding(
            id=item.id or "?",
            summary=item.summary or "",
            confidence=item.confidence or "unknown",
            ranks=ranks_words(item.ranks) if item.ranks else "",
            evidence=_cut_list(item.evidence or []),
            missing=item.missing or [],
            advice=item.advice or "",
            leads=item is leading,
        )


def _cut_list(lines: Sequence[str]) -> list[str]:
    """A large job has a line for each rank."""
    more = [f"... {len(lines) - EVIDENCE} more in --json"] if len(lines) > EVIDENCE else []
    return [*lines[:EVIDENCE], *more]


def _run(report: r.Report) -> Iterator[tuple[str, str]]:
    run, counts = report.run or r.Run(), report.counts or {}
    yield "run", ", ".join(run.directories or ([run.directory] if run.directory else []))
    yield "started", run.started or ""
    yield "command", shell_command(*run.command) if run.command else ""
    yield "launcher", run.launcher or ""
    yield "world size", str(run.world_size) if run.world_size is not None else ""
    yield "hosts", ", ".join((run.hosts or [])[:8]) + (" ..." if len(run.hosts or []) > 8 else "")
    yield "versions", ", ".join(f"{name} {value}" for name, value in (
        ("Python", run.python), ("torch", run.torch), ("CUDA", run.cuda)) if value)  # fmt: skip
    yield "processes", str(len(report.processes or []))
    yield "redacted", removed_words(report.removed) if report.removed is not None else ""
    dropped = counts.get("dropped")
    yield "records", f"{counts.get('records', 0)}" + (f", {count_words(dropped, 'record')} dropped" if dropped else "")


def _more(report: r.Report) -> str | None:
    run = report.run or r.Run()
    directories = run.directories or ([run.directory] if run.directory else [])
    return shell_command("pytracer", "inspect", *map(short_file, directories), "--json") if directories else None
