"""Rows of labels and content, and how they become text."""

from __future__ import annotations

import io
from collections.abc import Iterable

from rich.console import Console, RenderableType
from rich.table import Table

from pytracer.render.style import Style

LABEL_WIDTH = 8


def rows_table(rows: Iterable[tuple[str, RenderableType]]) -> Table:
    """Labels on the left, content on the right."""
    grid = Table.grid(padding=(0, 1))
    grid.add_column(width=LABEL_WIDTH, no_wrap=True, style="cyan")
    grid.add_column(overflow="fold")
    for label, content in rows:
        grid.add_row(label, content)
    return grid


def printed(content: RenderableType, style: Style) -> str:
    """The text of something that rich can print, without blanks at the ends of lines, ending with a newline."""
    out = io.StringIO()
    console = Console(
        file=out,
        width=style.width,
        force_terminal=style.color,
        color_system="standard" if style.color else None,
        no_color=not style.color,
        legacy_windows=False,
        highlight=False,
        markup=False,
        emoji=False,
        _environ={},
    )
    console.print(content, end="")
    return "\n".join(line.rstrip() for line in out.getvalue().rstrip("\n").split("\n")) + "\n"
