"""One module makes untrusted text printable: what it passes, what it escapes."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.cells import cell_len

from pytracer._printable import ascii_json, neutral, one_line, paragraph, printable, shell_command, shell_word
from pytracer._text import message_words
from tests.support.hostile import TEXT, assert_harmless

ANYTHING = st.text(st.characters(codec=None), max_size=40) | st.text(st.sampled_from(sorted(set(TEXT))), max_size=40)
BYTES = st.binary(min_size=1, max_size=30).map(lambda data: data.replace(b"\0", b"\x01"))


@given(ANYTHING)
@example(TEXT)
def test_one_line_is_harmless_for_every_text(text: str) -> None:
    """For any text; a second pass changes nothing."""
    line = one_line(text)
    assert "\n" not in line
    assert_harmless(line, least_indent=0)
    assert one_line(line) == line
    assert neutral(line) == line


@given(ANYTHING)
@example(TEXT)
def test_nothing_unseen_passes_the_last_net(text: str) -> None:
    """U+FFFD replaces what should have been escaped before; line breaks are kept."""
    safe = neutral(text)
    assert safe.count("\n") == text.count("\n")
    assert len(safe) == len(text)
    for char in safe:
        assert char == "\n" or unicodedata.category(char)[0] != "C"


@pytest.mark.parametrize(
    "text",
    [
        "train.py:12 in main",
        "Größe",
        "\u6f22\u5b57.py",
        "na\u0308iv",
        "a\u0301",
        "\U0001f600",
        "x = [1, 2]",
        "C:\\n",
        "",
    ],
)
def test_visible_text_stays_as_it_is(text: str) -> None:
    """Letters of all scripts, emoji, combining marks on a letter."""
    assert one_line(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\nb\r\tc", r"a\nb\r\tc"),
        ("\x1b[31m\x07\x7f\x9b", r"\x1b[31m\x07\x7f\x9b"),
        ("\u202efdp.exe", r"\u202efdp.exe"),
        ("\u200b\ufeff\u2028", r"\u200b\ufeff\u2028"),
        ("\ud800\udcff", r"\ud800\udcff"),
        ("\U000e0041", r"\U000e0041"),
        ("\u0301x", r"\u0301x"),  # combines with the preceding output
        ("a" + "\u0301" * 5, "a\u0301\u0301\u0301" + r"\u0301\u0301"),
        ("\u3164\u2800", r"\u3164\u2800"),
    ],
)
def test_invisible_text_is_shown_as_an_escape(text: str, shown: str) -> None:
    """As Python escapes it."""
    assert one_line(text) == shown


def test_paragraph_keeps_line_breaks_only() -> None:
    """Those of Windows, too; a lone carriage return would go back to the start of the line."""
    assert paragraph("a\r\nb\rc\nd\x1b") == "a\nb\\rc\nd\\x1b"


def test_printable_walks_all_data_and_leaves_the_original() -> None:
    """Structs are covered by the tests of the views."""

    @dataclasses.dataclass(frozen=True)
    class Part:
        name: str
        message: str
        more: dict[str, list[str]]
        number: int = 1

    part = Part("a\n", "b\nc\x07", {"\x1b": ["\n", "ok"]})
    assert printable(part, ("message",)) == Part("a\\n", "b\nc\\x07", {"\\x1b": ["\\n", "ok"]})
    assert part.name == "a\n"
    assert printable(("x\n", 1, None)) == ("x\\n", 1, None)


@given(BYTES)
@example(b"a b\n\x1b[31m'\\\xff$(rm)`x`")
@example(b"-rf")
def test_bash_reads_a_word_back_as_the_bytes_it_was(name: bytes) -> None:
    """For any name of a file or a job, the command in an advice refers to it, on one visible line."""
    word = shell_word(os.fsdecode(name))
    assert word.isascii() or word.isprintable()
    assert "\n" not in word
    done = subprocess.run(["bash", "-c", f"printf %s {word}"] if not name.startswith(b"-") else
                          ["bash", "-c", f"printf -- %s {word}"], capture_output=True, check=True)  # fmt: skip
    assert done.stdout == name


def test_command_is_quoted_word_by_word() -> None:
    """As SLURM_JOB_ID and paths are put into advice."""
    assert shell_command("sacct", "-j", "1; rm -rf ~") == "sacct -j '1; rm -rf ~'"


@given(st.recursive(ANYTHING | st.integers(), lambda inner: st.lists(inner, max_size=3)))
def test_json_stays_the_same_data(value: object) -> None:
    """In printable ASCII."""
    text = ascii_json(json.dumps(value, ensure_ascii=False, indent=1))
    assert all(char == "\n" or " " <= char <= "~" for char in text)
    assert json.loads(text) == json.loads(json.dumps(value))


def test_width_of_shown_text_is_known() -> None:
    """Nothing that is shown takes columns that rich does not count."""
    assert cell_len(one_line("\u200b\x1b[31m")) == len(one_line("\u200b\x1b[31m"))


def test_message_loses_its_colours_and_tabs() -> None:
    """Of whole sequences only: what they leave is still escaped."""
    assert paragraph("you have \x1b[1mtwo\x1b[0m options:\n\t(1) this") == "you have two options:\n    (1) this"
    assert paragraph("\x1b[\x1b[1m1m \x1b]0;title\x07") == "\\x1b[1m \\x1b]0;title\\x07"
    assert message_words("\x1b[31mno\tway\x1b[0m.") == "no way"
