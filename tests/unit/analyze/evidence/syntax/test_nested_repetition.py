"""Patterns that try all splits of a text, and those that look like them."""

from __future__ import annotations

import re

import pytest

from pytracer.analyze.evidence.syntax.nested_repetition import nested_repetition


@pytest.mark.parametrize(
    ("pattern", "part"),
    [
        (r"^(\s*([\w-]+\s*)+:)?\s*(.*)$", r"([\w-]+\s*)+"),
        (r"(a+)+b", "(a+)+"),
        (r"^(?:\w+\s?)*;", r"(?:\w+\s?)*"),
        (r"^([a-z0-9_.]+)+@[a-z]+$", "([a-z0-9_.]+)+"),
        (r"((?:x+|y))*z", "((?:x+|y))*"),
        (r"x(([a-z])+.)+[A-Z]([a-z])+$", None),  # the dot is no part that may be empty
        (r"(a*)*b", "(a*)*"),
        (r"(?P<w>\d{2,})+\Z", r"(?P<w>\d{2,})+"),
    ],
)
def test_repetition_of_a_repetition_is_found(pattern: str, part: str | None) -> None:
    """With the part of the pattern that is it."""
    assert nested_repetition(pattern) == part


@pytest.mark.parametrize(
    "pattern",
    [
        r"^(\w+,)*\w+$",  # a separator
        r"(a+)+",  # nothing behind it can fail
        r"(a+)+.*",
        r"(\w+\b)+!",  # \b allows one way
        r"(\d{1,3}\.)+x",
        r"([a+]+)?b",
        r"\(a+\)+b",  # signs, no group
        r"(ab)+c",
        r"[(a+)+]b",
        r"(a+",  # no pattern
    ],
)
def test_other_patterns_are_silent(pattern: str) -> None:
    """The look-alikes."""
    assert nested_repetition(pattern) is None


def test_fullmatch_has_the_end_of_the_text_behind_it() -> None:
    """`re.fullmatch("(a+)+", text)` fails at the first other character."""
    assert nested_repetition("(a+)+", whole=True) == "(a+)+"


def test_verbose_patterns_are_read_without_their_comments() -> None:
    """By the flags of the call."""
    assert nested_repetition("( a+ )+  # words\n b", re.VERBOSE) == "( a+ )+"
