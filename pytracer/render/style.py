"""Colour and width, decided once per output. Colour is never the only carrier of meaning."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TextIO

COLOR_CHOICES = ("auto", "always", "never")
DEFAULT_WIDTH = 100
NARROWEST, WIDEST = 60, 140
LONGEST_WISH = 1000  # columns, of COLUMNS


@dataclass(frozen=True)
class Style:
    """How to print: with colour or without, and how wide in columns."""

    color: bool = False
    width: int = DEFAULT_WIDTH


def decide_style(choice: str, stream: TextIO, environ: Mapping[str, str]) -> Style:
    """Colour and width for one stream.

    Args:
        choice: "auto", "always" or "never". "auto" means a terminal, no NO_COLOR, and a TERM other than "dumb".
        stream: Where the report goes: a terminal, a file or a pipe.
        environ: The process's environment.
    """
    terminal = _is_terminal(stream)
    plain = bool(environ.get("NO_COLOR")) or environ.get("TERM") == "dumb"
    color = choice == "always" or (choice == "auto" and terminal and not plain)
    return Style(color, decide_width(terminal, environ))


def decide_width(terminal: bool, environ: Mapping[str, str]) -> int:
    """COLUMNS if it is set, as the user's wish; else of a terminal its own width within limits; else that of a file."""
    wish = environ.get("COLUMNS", "")
    if wish.isascii() and wish.isdigit() and int(wish):
        return min(max(int(wish), NARROWEST), LONGEST_WISH)
    width = shutil.get_terminal_size((DEFAULT_WIDTH, 24)).columns if terminal else DEFAULT_WIDTH
    return min(max(width, NARROWEST), WIDEST)


def _is_terminal(stream: TextIO) -> bool:
    try:
        return stream.isatty()
    except (AttributeError, ValueError):  # closed, or not a real file
        return False
