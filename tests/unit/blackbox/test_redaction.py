"""Secrets in command lines: what is replaced, what stays, and that the time to look stays linear."""

from __future__ import annotations

import time

import pytest

from pytracer.blackbox import secret_words
from pytracer.blackbox.environment_names import ENVIRONMENT_NAMES
from pytracer.blackbox.redaction import redact_text, redact_words
from tests.support.secrets import HIDDEN, PLAIN, PROGRAMS


@pytest.mark.parametrize(("given", "kept"), HIDDEN)
def test_secret_is_replaced_and_nothing_else(given: tuple[str, ...], kept: tuple[str, ...]) -> None:
    """And counted; what was replaced once stays as it is."""
    found, count = redact_words(["python", *given])
    assert found == ["python", *kept]
    assert count == sum(old != new for old, new in zip(given, kept, strict=True))
    assert redact_words(found) == (found, 0)


@pytest.mark.parametrize(("given", "kept"), PROGRAMS)
def test_short_option_counts_for_its_program_only(given: tuple[str, ...], kept: tuple[str, ...]) -> None:
    """`-p` is a port elsewhere."""
    assert redact_words(given)[0] == list(kept)


@pytest.mark.parametrize("given", PLAIN)
def test_what_only_looks_like_a_secret_stays(given: tuple[str, ...]) -> None:
    """Models have tokens and keys; paths and addresses are needed to understand a death."""
    assert redact_words(["python", *given]) == (["python", *given], 0)


def test_bytes_that_are_no_text_come_through() -> None:
    """Arguments are bytes."""
    assert redact_words(["a\udcff", "--token=\udcfe\udcff1"]) == (["a\udcff", "--token=***"], 1)


@pytest.mark.parametrize(
    "unit", [b"sk-", b"eyJ-", b"key=", b"://a:b", b"password ", b'"token":', b"bearer ", b"a://b@"]
)
def test_time_is_linear_in_the_length(unit: bytes) -> None:
    """A command line has up to 2 MiB, and every process scans its own: ten times the length takes under 40 times."""

    def seconds(nbytes: int) -> float:
        text = unit * (nbytes // len(unit))
        began = time.process_time()
        redact_text(text)
        return time.process_time() - began

    assert seconds(20_000) < 40 * max(seconds(2_000), 0.001)


def test_tables_hold_what_both_sides_understand() -> None:
    """Lower case, ASCII, known kinds."""
    tables = (secret_words.SECRET_WORDS, secret_words.SECRET_ENDS, secret_words.PLAIN_TOKENS, secret_words.SWITCHES)
    for words in (*tables, secret_words.SECRET_KEYS, secret_words.SECRET_PASSES, secret_words.SCHEMES):
        assert all(word.isascii() and word.isalnum() and word == word.lower() for word in words)
        assert len(set(words)) == len(words)
    assert {kind for _, kind, _ in secret_words.TOKEN_SHAPES} <= set("AWSJXU")


def test_no_recorded_variable_names_a_secret() -> None:
    """The list is exact, so that SLURM_JWT and PMIX_SECURITY_... cannot slip in by their prefix."""
    assert "SLURM_JOB_ID" in ENVIRONMENT_NAMES
    for name in ENVIRONMENT_NAMES:
        assert redact_words([f"{name}=value12345"]) == ([f"{name}=value12345"], 0)
        assert not {"JWT", "TOKEN", "SECRET", "PASSWORD", "CREDENTIAL"} & set(name.split("_")), name
