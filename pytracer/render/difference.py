"""How two runs differ, as text."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from pytracer._printable import printable
from pytracer._text import ranks_words
from pytracer.render.frames import short_file
from pytracer.render.printing import Hanging, printed
from pytracer.render.style import Style
from pytracer.report import difference as d

_ABSENT = "-"
_MOST = 12  # of a topic


def render_difference(report: d.DiffReport, style: Style | None = None) -> str:
    """Both runs, a table of the differences, and what was the same."""
    style = style or Style()
    return printed(Group(*_blocks(printable(report))), style)


def _blocks(report: d.DiffReport) -> Iterator[RenderableType]:
    for letter, run in (("A", report.a), ("B", report.b)):
        shown = run or d.ComparedRun()
        said = shown.summary or shown.verdict or "?"
        yield Hanging(Text(f"{letter}  {short_file(shown.directory)}: {said}", style="bold"))
    yield Text()
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True, style="cyan")
    for ratio in (3, 3, 3):
        table.add_column(overflow="fold", ratio=ratio)
    table.add_row("", "", Text("A", style="bold"), Text("B", style="bold"))
    for topic, items in groupby(report.differences or (), key=lambda item: item.topic or ""):
        group = list(items)
        for number, item in enumerate(group[:_MOST]):
            ranks = f" ({ranks_words(item.ranks)})" if item.ranks else ""
            table.add_row("" if number else topic, f"{item.name}{ranks}", item.a or _ABSENT, item.b or _ABSENT)
        if len(group) > _MOST:
            table.add_row("", Text(f"... {len(group) - _MOST} more in --json", style="dim"))
    if report.differences:
        yield table
        yield Text()
    else:
        yield Text("No difference was found.")
    same = report.same or {}
    topics = ", ".join(f"{topic} {count}" for topic, count in same.items())
    yield Hanging(Text(f"The same: {topics or 'nothing that could be compared'}.", style="dim"))
