"""Codes of notes: written by today's recorder, and found for the sentences of older ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytracer.blackbox.note_codes import NoteCode, coded
from pytracer.blackbox.schema import CoreNote
from pytracer.decode.recording.notes import note_of
from pytracer.decode.recording.reader import read_box
from pytracer.decode.types.journal import Note
from tests.support.synth import Box


@pytest.mark.parametrize("code", CoreNote)
def test_a_note_of_the_core_gets_a_code_and_a_sentence(code: CoreNote, tmp_path: Path) -> None:
    """The core writes a number and data; a sentence that it wrote before has the same code."""
    snapshot = read_box(Box().core_note(code, addr=0x7F00, value=7).write(tmp_path / "a.blackbox"))
    (note,) = snapshot.notes
    assert (note.addr, note.value) == (0x7F00, 7)
    assert note.code != NoteCode.OTHER and note_of(note.text) == Note(note.text, note.code)
    assert snapshot.damage == ()


def test_a_note_of_a_newer_core_is_other(tmp_path: Path) -> None:
    """It is shown with its number."""
    (note,) = read_box(Box().core_note(77).write(tmp_path / "a.blackbox")).notes
    assert note.code == NoteCode.OTHER and "77" in note.text


@pytest.mark.parametrize("subject", ["", "DDP's buckets"])
@pytest.mark.parametrize("code", NoteCode)
def test_a_note_is_read_as_it_was_written(code: NoteCode, subject: str) -> None:
    """Code, subject and sentence, with any sentence."""
    text = "it [said] so]: on\ntwo lines"
    assert note_of(coded(code, text, subject)) == Note(text, code, subject or None)


def test_code_of_a_newer_version_is_other() -> None:
    """Its sentence is still shown."""
    assert note_of("[weather] it rains") == Note("it rains", NoteCode.OTHER)


@pytest.mark.parametrize(
    ("sentence", "code", "subject"),
    [
        ("the torch hooks are not installed: torch 2.9 is here", NoteCode.TORCH_HOOKS, None),
        ("the hook collectives is not installed: no dispatcher", NoteCode.HOOK, "collectives"),
        ("DDP's buckets could not be noted: AttributeError: x", NoteCode.WRAPPER, "DDP's buckets"),
        ("a DataLoader could not be noted: TypeError: x", NoteCode.LOADER, None),
        ("guard mode is off: PYTRACER_GUARD: bad", NoteCode.GUARD, None),
        ("the table of live storages cannot grow: new ones are dropped", NoteCode.STORAGE_TABLE, None),
        ("memory of CUDA devices is not followed: no", NoteCode.CUDA, None),
        ("hooks installed", NoteCode.OTHER, None),
        ("[not closed", NoteCode.OTHER, None),
    ],
)
def test_sentence_without_a_code_gets_it(sentence: str, code: NoteCode, subject: str | None) -> None:
    """Of minor version 0, and of the core below minor version 3."""
    assert note_of(sentence) == Note(sentence, code, subject)


@pytest.mark.parametrize(
    ("payload", "lacks"),
    [
        (coded(NoteCode.TORCH_HOOKS, "in any words"), True),
        (coded(NoteCode.HOOK, "in any words", "collectives"), True),
        (coded(NoteCode.HOOK, "in any words", "storages"), False),
        (coded(NoteCode.WRAPPER, "the hook collectives is not installed", "DDP's buckets"), False),
        ("the hook collectives is not installed: no dispatcher", True),
    ],
)
def test_collectives_are_missed_by_the_code_of_a_note(payload: str, lacks: bool, tmp_path: Path) -> None:
    """An edited sentence changes nothing."""
    assert read_box(Box().note(payload).write(tmp_path / "a.blackbox")).lacks_collectives is lacks
