"""The report as Markdown for an issue: verdict, versions, stacks in a fold, what was checked; at most 60 lines.

Sentences and names that the job chose are escaped, or stand in fences, so that they are neither markup nor mentions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from pytracer._library_files import counted_as_program
from pytracer._printable import printable
from pytracer._text import count_words
from pytracer._version import __version__
from pytracer.render.printing import printed, rows_table
from pytracer.render.processes import without_details
from pytracer.render.style import Style
from pytracer.render.text import PARAGRAPHS, headline_words, removed_words, rows_of
from pytracer.report import job as r
from pytracer.report.of_verdict import program_packages_of, subject_of

MOST_LINES = 60
WIDTH = 100
_ROW_LINES = 20
_UNDECIDED = 3
_LONGEST = 300  # characters of a line outside fences
_STACKS = ("python", "source", "native")
# Rows that stand below, name files of this machine, or show more of the program than an issue may have.
_ELSEWHERE = (*_STACKS, "code", "run", "more", "redacted")


def render_markdown(report: r.Report) -> str:
    """The report for an issue, ending with a newline.

    Args:
        report: redacted already (`analyze/redaction`): issues are public.
    """
    with counted_as_program(program_packages_of(report)):
        return _rendered(report)


def _rendered(report: r.Report) -> str:
    shown = printable(without_details(report, subject_of(report)), PARAGRAPHS)
    verdict = shown.verdict or r.Verdict()
    subject = subject_of(shown)
    rows = list(rows_of(shown, verdict, subject, None, False, WIDTH))
    head = [f"**{_escaped(verdict.summary or 'No verdict.')}**", ""]
    if verdict.class_ != "clean":
        head += [_escaped(headline_words(verdict, subject)), ""]
    head += [*_versions(shown), ""]
    head += _fenced(_laid_out((row for row in rows if row[0] not in _ELSEWHERE), _ROW_LINES))
    tail: list[str] = []
    if shown.checked:
        title = f"{count_words(len(shown.checked), 'other explanation')} checked"
        tail += ["", f"<details><summary>{title}</summary>", "", *_checked(shown.checked), "", "</details>"]
    if shown.removed is not None:
        tail += ["", f"Redacted by pytracer {__version__}: {removed_words(shown.removed)}."]
    left = MOST_LINES - len(head) - len(tail) - len(_fold([]))
    stacks = _laid_out((row for row in rows if row[0] in _STACKS), left)
    return "\n".join([*head, *(_fold(stacks) if stacks else ()), *tail]) + "\n"


def _fold(stacks: Sequence[str]) -> list[str]:
    return ["", "<details><summary>Stacks</summary>", "", *_fenced(stacks), "", "</details>"]


def _versions(report: r.Report) -> Iterator[str]:
    """One table of one row."""
    run = report.run or r.Run()
    known = {
        "torch": run.torch,
        "CUDA": run.cuda,
        "Python": run.python,
        "launcher": run.launcher,
        "world size": None if run.world_size is None else str(run.world_size),
        "hosts": str(len(run.hosts)) if run.hosts else None,
        "run": run.started,
    }
    cells = {name: _escaped(value) for name, value in known.items() if value}
    if cells:
        yield f"| {' | '.join(cells)} |"
        yield "|" + " --- |" * len(cells)
        yield f"| {' | '.join(cells.values())} |"


def _laid_out(rows: Iterable[tuple[str, object]], most: int) -> list[str]:
    """Rows as in the text report; what is too long is cut with a count."""
    given = list(rows)
    if not given:
        return []
    lines = printed(rows_table(given), Style(width=WIDTH)).rstrip("\n").split("\n")  # type: ignore[arg-type]
    return lines if len(lines) <= most else [*lines[: most - 1], f"... {len(lines) - most + 1} more lines"]


def _fenced(lines: Sequence[str]) -> list[str]:
    """In a fence that is longer than any run of backticks inside."""
    longest = max((len(run) for line in lines for run in re.findall("`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    return [f"{fence}text", *lines, fence]


def _checked(checked: Sequence[r.Checked]) -> Iterator[str]:
    absent = [item.id or "?" for item in checked if item.result != "cannot-decide"]
    undecided = [item for item in checked if item.result == "cannot-decide"]
    if absent:
        yield f"Not found: {_escaped(', '.join(absent), 2000)}."
    if undecided:
        yield ""
    for item in undecided[:_UNDECIDED]:
        yield f"- {_escaped(f'{item.id}: cannot decide: {item.why}')}"
    if len(undecided) > _UNDECIDED:
        yield f"- cannot decide: {_escaped(', '.join(item.id or '?' for item in undecided[_UNDECIDED:]), 2000)}"


def _escaped(text: str, longest: int = _LONGEST) -> str:
    """`text` without a meaning in Markdown or HTML; an `@` mentions nobody."""
    text = text if len(text) <= longest else text[: longest - 3] + "..."
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    text = re.sub(r"([\\`*_{}\[\]#~!|])", r"\\\1", text)
    return text.replace("@", "`@`")
