"""Colour, width and layout, decided once per output. Colour is never the only carrier of meaning."""

from __future__ import annotations

import io
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TextIO

from rich.console import Console, RenderableType
from rich.table import Table

COLOR_CHOICES = ("auto", "always", "never")
DEFAULT_WIDTH = 100
LABEL_WIDTH = 8
NARROWEST, WIDEST = 60, 140


@dataclass(frozen=True)
class Style:
    """How to print: with colour or without, and how wide in columns."""

    color: bool = False
    width: int = DEFAULT_WIDTH


def decide_style(choice: str, stream: TextIO, environ: Mapping[str, str]) -> Style:
    """Colour and width for one stream.

    Args:
        choice: "auto", "always" or "never". "auto" means a terminal, no NO_COLOR, and a TERM other than "dumb".
        stream: Where the report goes.
        environ: The process's environment.
    """
    terminal = _is_terminal(stream)
    plain = bool(environ.get("NO_COLOR")) or environ.get("TERM") == "dumb"
    color = choice == "always" or (choice == "auto" and terminal and not plain)
    width = shutil.get_terminal_size((DEFAULT_WIDTH, 24)).columns if terminal else DEFAULT_WIDTH
    return Style(color, min(max(width, NARROWEST), WIDEST))


def _is_terminal(stream: TextIO) -> bool:
    try:
        return stream.isatty()
    except (AttributeError, ValueError):  # closed, or not a real file
        return False


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
