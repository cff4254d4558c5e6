"""Parts that are installed when the program first uses what they watch, on stand-ins of torch's functions."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import pytest

from pytracer.blackbox.note_codes import NoteCode
from pytracer.record.bootstrap.lazy import LazyInstaller
from pytracer.record.bootstrap.patches import Patches


class Box:
    """The error of a part that cannot be installed."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.lib = types.SimpleNamespace(pytracer_count_hook_error=lambda: None)

    def note(self, code: NoteCode, text: str) -> None:
        assert code == NoteCode.PART
        self.notes.append(text)


@pytest.fixture
def owner() -> Any:
    """A module with two functions that return their names."""
    return types.SimpleNamespace(first=lambda *given: ["first", *given], second=lambda: ["second"])


def part_of(owner: Any, box: Box, log: list[str]) -> tuple[LazyInstaller, Patches]:
    """A part that puts its own function around each of the owner's, waiting for their first call."""
    patches = Patches()

    def around(function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *given: ["recorded", *function(*given)]

    def install() -> None:
        log.append("installed")
        for name in ("first", "second"):
            patches.replace(owner, name, around(getattr(owner, name)))

    return LazyInstaller(box, install).at_call(owner, "first", "second", "of_another_torch"), patches  # type: ignore[arg-type]


def test_first_call_is_recorded_already(owner: Any) -> None:
    """It installs the part, and calls the part's own function; at the second call the entrance is gone."""
    log: list[str] = []
    part_of(owner, Box(), log)
    assert log == []
    assert owner.first(1) == ["recorded", "first", 1]
    assert owner.first(2) == ["recorded", "first", 2]
    assert owner.second() == ["recorded", "second"]
    assert log == ["installed"]


def test_kept_entrance_leads_to_the_part(owner: Any) -> None:
    """`from torch.distributed import init_process_group`, before anybody has called it."""
    part_of(owner, Box(), [])
    kept = owner.first
    owner.second()
    assert kept(1) == ["recorded", "first", 1]


def test_wrapper_around_a_kept_entrance_does_not_go_round(owner: Any) -> None:
    """Saved before the part was installed, restored after it: each function runs once."""
    part_of(owner, Box(), [])
    kept = owner.first
    owner.second()
    owner.first = lambda *given: ["theirs", *kept(*given)]
    assert owner.first(1) == ["theirs", "recorded", "first", 1]


def test_function_that_somebody_put_around_the_entrance_stays(owner: Any) -> None:
    """Lightning replaces DataLoader.__init__ temporarily, and restores what it found: recorded then and later."""
    part_of(owner, Box(), [])
    entrance = owner.first
    owner.first = lambda *given: ["theirs", *entrance(*given)]
    assert owner.first(1) == ["theirs", "recorded", "first", 1]
    assert owner.first(2) == ["theirs", "recorded", "first", 2]
    owner.first = entrance
    assert owner.first(3) == ["recorded", "first", 3]


def test_forgotten_part_is_never_installed(owner: Any) -> None:
    """disable() before any call: torch's own functions are restored, also for code that saved an entrance."""
    log: list[str] = []
    plain = owner.first
    part, _ = part_of(owner, Box(), log)
    kept = owner.first
    part.forget()
    assert owner.first is plain
    assert (kept(1), log) == (["first", 1], [])


def test_part_that_fails_costs_itself_only(owner: Any) -> None:
    """The program's call is made, and a note names what is missing."""
    box = Box()

    def fail() -> None:
        raise ImportError("gone")

    LazyInstaller(box, fail).at_call(owner, "first")  # type: ignore[arg-type]
    assert owner.first(1) == ["first", 1]
    assert box.notes == ["a part of the recording is not installed: ImportError: gone"]
