"""Rows of labels and content, and how they become text."""

from __future__ import annotations

import io
from collections.abc import Iterable

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.padding import Padding
from rich.segment import Segment, Segments
from rich.table import Table
from rich.text import Text

from pytracer._printable import neutral
from pytracer.render.style import Style

LABEL_WIDTH = 8
_HANG = 4


class Hanging:
    """Text whose further lines are indented: its contents cannot begin a line where a row or a title begins."""

    def __init__(self, text: Text, columns: int = 0) -> None:
        self._text, self._columns = text, columns

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        room = options.max_width - self._columns
        first = next(iter(self._text.wrap(console, room, overflow="fold")), Text())
        yield Padding(first, (0, 0, 0, self._columns))
        rest = self._text[len(first.plain) :]
        rest = rest[len(rest.plain) - len(rest.plain.lstrip()) :]
        if rest.plain:
            for line in rest.wrap(console, room - _HANG, overflow="fold"):
                yield Padding(line, (0, 0, 0, self._columns + _HANG))


def rows_table(rows: Iterable[tuple[str, RenderableType]]) -> Table:
    """Labels on the left, content on the right."""
    grid = Table.grid(padding=(0, 1))
    grid.add_column(width=LABEL_WIDTH, no_wrap=True, style="cyan")
    grid.add_column(overflow="fold")
    for label, content in rows:
        grid.add_row(label, content)
    return grid


def padded(text: str, columns: int) -> str:
    """`text` padded to a number of terminal columns, of which some characters take two or none."""
    return text + " " * (columns - cell_len(text))


def printed(content: RenderableType, style: Style) -> str:
    """The text of something that rich can print, without trailing blanks, ending with a newline.

    Reports are made printable before they are laid out (`printable`); anything missed is escaped here.
    """
    out = io.StringIO()
    console = Console(
        file=out,
        width=style.width,
        force_terminal=style.color,
        force_jupyter=False,  # in a kernel, rich would display the text and return nothing
        color_system="standard" if style.color else None,
        no_color=not style.color,
        legacy_windows=False,
        highlight=False,
        markup=False,
        emoji=False,
        _environ={},
    )
    segments = (Segment(neutral(item.text), item.style) for item in console.render(content) if not item.control)
    console.print(Segments(segments), end="")
    return "\n".join(line.rstrip() for line in out.getvalue().rstrip("\n").split("\n")) + "\n"
