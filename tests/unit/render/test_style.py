"""Colour and width are decided once, by the option, the stream and the environment."""

from __future__ import annotations

import io

import pytest

from pytracer.render.style import decide_style


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("choice", "stream", "environ", "color"),
    [
        ("auto", Terminal(), {"TERM": "xterm"}, True),
        ("auto", io.StringIO(), {"TERM": "xterm"}, False),
        ("auto", Terminal(), {"TERM": "xterm", "NO_COLOR": "1"}, False),
        ("auto", Terminal(), {"TERM": "xterm", "NO_COLOR": ""}, True),
        ("auto", Terminal(), {"TERM": "dumb"}, False),
        ("always", io.StringIO(), {"NO_COLOR": "1"}, True),
        ("never", Terminal(), {"TERM": "xterm"}, False),
    ],
)
def test_colour_follows_option_terminal_and_environment(
    choice: str, stream: io.StringIO, environ: dict[str, str], color: bool
) -> None:
    """`auto` means a terminal, no NO_COLOR (https://no-color.org: empty counts as unset), TERM not dumb."""
    assert decide_style(choice, stream, environ).color is color


def test_width_of_a_file_is_fixed() -> None:
    """A report in a file or a pipe does not depend on the terminal in which it was created."""
    assert decide_style("auto", io.StringIO(), {}).width == 100


@pytest.mark.parametrize(
    ("columns", "width"),
    [("72", 72), ("200", 200), ("20", 60), ("99999", 1000), ("0", 100), ("wide", 100), ("-5", 100)],
)
def test_columns_is_the_width_that_the_user_wishes(columns: str, width: int) -> None:
    """Into a pipe as well, within what a report can be laid out in; what is no number counts as unset."""
    assert decide_style("auto", io.StringIO(), {"COLUMNS": columns}).width == width
