"""The cycle of frames that repeats on a stack."""

from __future__ import annotations

import pytest

from pytracer.analyze.evidence.native.recursion import find_cycle


@pytest.mark.parametrize(
    ("stack", "expected"),
    [
        ("aaaaaa", ("a", 0, 6)),
        ("xyabababab", ("ab", 2, 4)),
        ("abcabcabcz", ("abc", 0, 3)),
        ("xaabaabaab", ("aab", 1, 3)),
        ("abcdefgh", None),
        ("abab", None),
        ("", None),
        ("a", None),
    ],
)
def test_cycle_has_its_shortest_period(stack: str, expected: tuple[str, int, int] | None) -> None:
    """Frames, where it begins, how often; nothing below three times."""
    cycle = find_cycle(stack, list(stack))
    assert (cycle and ("".join(cycle.frames), cycle.start, cycle.repeats)) == expected


def test_cycle_that_covers_most_wins() -> None:
    """A short repetition at the top does not hide the recursion below."""
    stack = "zzz" + "abcd" * 20
    cycle = find_cycle(stack, list(stack))
    assert cycle is not None and "".join(cycle.frames) == "abcd"


def test_frames_are_compared_by_their_keys() -> None:
    """Two call sites of one function are the same frame."""
    cycle = find_cycle(["f+1", "f+9", "f+1"], ["f", "f", "f"])
    assert cycle is not None and cycle.frames == ("f+1",)
