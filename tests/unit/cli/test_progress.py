"""The progress bar: on a terminal, after a second, and gone at the end."""

from __future__ import annotations

import io
import time
from types import SimpleNamespace

import pytest

from pytracer.cli import progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    screen = Terminal()
    monkeypatch.setattr(progress, "sys", SimpleNamespace(stderr=screen))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    return screen


def test_nobody_sees_a_bar_where_nobody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """stderr is a file, or the product is JSON."""
    monkeypatch.setattr(progress, "sys", SimpleNamespace(stderr=io.StringIO()))
    with progress.progress_bar("Reading") as show:
        assert show is None


def test_json_has_no_bar(terminal: Terminal) -> None:
    """Not even on a terminal."""
    with progress.progress_bar("Reading", wanted=False) as show:
        assert show is None
    assert terminal.getvalue() == ""


def test_quick_work_shows_nothing(terminal: Terminal) -> None:
    """Most runs are read within a second."""
    with progress.progress_bar("Reading") as show:
        assert show is not None
        show(1, 2)
        show(2, 2)
    assert terminal.getvalue() == ""


def test_long_work_shows_how_far_it_is(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    """With what is done."""
    monkeypatch.setattr(progress, "PATIENCE_SECONDS", 0.0)
    with progress.progress_bar("Reading black boxes") as show:
        assert show is not None
        show(1, 4)
        show(3, 4)
    assert "Reading black boxes" in terminal.getvalue()


def test_work_that_reports_nothing_shows_that_it_goes_on(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rules of a large job take longer than its files."""
    monkeypatch.setattr(progress, "PATIENCE_SECONDS", 0.0)
    with progress.progress_bar("Reading black boxes"):
        deadline = time.monotonic() + 20
        while "Reading black boxes" not in terminal.getvalue():
            assert time.monotonic() < deadline
            time.sleep(0.01)
