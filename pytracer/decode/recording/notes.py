"""NOTE and CORE_NOTE entries: a code and a sentence, which for the core is made here.

A NOTE of an older recording has a sentence only: then its code is that of a known one.

This is the one place that knows sentences of recorders.
"""

from __future__ import annotations

import re

from pytracer.blackbox.note_codes import NoteCode
from pytracer.blackbox.schema import CoreNote
from pytracer.blackbox.structures import CoreNoteEntry
from pytracer.decode.types.journal import Note

_CORE: dict[int, tuple[NoteCode, str]] = {
    CoreNote.STORAGE_TABLE_FULL: (
        NoteCode.STORAGE_TABLE,
        "the table of live storages cannot grow: new storages that find no slot are counted as dropped",
    ),
    CoreNote.SANDBOXED: (
        NoteCode.SANDBOX,
        "the program confines itself by seccomp: from here on nothing is recorded",
    ),
    CoreNote.GUARD_WRONG_FREE: (
        NoteCode.GUARD,
        "guard mode: a guarded storage was freed a second time, or by an address inside of it; nothing was done",
    ),
    CoreNote.GUARD_PROTECTION: (
        NoteCode.GUARD,
        "guard mode: the kernel refuses MADV_GUARD_INSTALL from now on; pages are protected with mprotect instead",
    ),
}
_CODED = re.compile(r"\[(?P<code>[a-z-]{1,32})(?: (?P<subject>[^\]\n]{1,64}))?\] (?P<text>.*)", re.DOTALL)
_CODES = {code.value: code for code in NoteCode}
_SENTENCES = (
    (r"the torch hooks are not installed", NoteCode.TORCH_HOOKS),
    (r"the Python half of recording did not start", NoteCode.PYTHON_HALF),
    (r"the hook (?P<subject>\w+) is not installed", NoteCode.HOOK),
    (r"a part of the recording is not installed", NoteCode.PART),
    (r"the (?:frames|objects) of this CPython are laid out differently", NoteCode.PYTHON_LAYOUT),
    (r"torch\.compile may compile functions of pytracer", NoteCode.COMPILER),
    (r"the rank could not be noted", NoteCode.RANK),
    (r"a process group could not be noted", NoteCode.GROUP),
    (r"(?:the|a) DataLoader (?:worker )?could not be noted", NoteCode.LOADER),
    (r"a CUDA graph could not be noted", NoteCode.CUDA),
    (r"torchrun's table was not completed", NoteCode.ELASTIC),
    (r"(?:some )?tensors are not named|there is no room for more names", NoteCode.NAMES),
    (r"\d+ storages are older than the recording", NoteCode.PREEXISTING),
    (r"(?:memory of )?CUDA devices are not followed|memory of CUDA devices is not followed", NoteCode.CUDA),
    (r"CUDA graphs of compiled functions get no names|it is not recorded ", NoteCode.CUDA),
    (r"guard mode(?: is off)?:", NoteCode.GUARD),
    (r"the table of live storages cannot grow", NoteCode.STORAGE_TABLE),
    (r"the program confines itself by seccomp", NoteCode.SANDBOX),
    (r"(?P<subject>.{1,64}?) could not be noted: ", NoteCode.WRAPPER),  # after the more specific ones
)
_PATTERNS = tuple((re.compile(pattern), code) for pattern, code in _SENTENCES)


def core_note(entry: CoreNoteEntry) -> Note:
    """A note of the core; OTHER for codes of newer versions."""
    code, text = _CORE.get(
        entry.code, (NoteCode.OTHER, f"a note of the core that this version does not know ({entry.code})")
    )
    return Note(text, code, addr=entry.addr or None, value=entry.value)


def note_of(payload: str) -> Note:
    """A note with its code; OTHER for codes of newer versions."""
    match = _CODED.fullmatch(payload)
    if match is not None:
        return Note(match["text"], _CODES.get(match["code"], NoteCode.OTHER), match["subject"])
    for pattern, code in _PATTERNS:
        match = pattern.match(payload)
        if match is not None:
            return Note(payload, code, match.groupdict().get("subject"))
    return Note(payload)
