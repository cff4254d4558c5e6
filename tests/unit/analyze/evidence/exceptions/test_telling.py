"""Messages of many lines, as libraries write them, and the line of the headline that is made of each."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from pytracer.analyze.evidence.exceptions.telling import telling_words

MESSAGES = msgspec.toml.decode((Path(__file__).parent / "messages.toml").read_bytes())["message"]


@pytest.mark.parametrize("case", MESSAGES, ids=lambda case: str(case["words"])[:40])
def test_the_statement_with_the_reason_follows_the_first(case: dict[str, str]) -> None:
    """The first one stays: it is what a reader searches for."""
    assert telling_words(case["text"]) == case["words"]


@pytest.mark.parametrize("message", ["", None, "\n\n"])
def test_no_message_has_no_words(message: str | None) -> None:
    """The type stands alone then."""
    assert telling_words(message) == ""
