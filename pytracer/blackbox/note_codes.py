"""Codes of NOTE entries: what a note is about, beside the sentence that people read.

Since minor version 1 a note is `[code] sentence` or `[code subject] sentence`. Older readers show that as it is; a note
without a code is of an older recording. Notes of the core are CORE_NOTE entries since minor version 3: a number of
`schema.CoreNote` with data, to which the reader gives one of these codes and the sentence.
"""

from __future__ import annotations

from enum import Enum


class NoteCode(str, Enum):
    """The subject of a note. `subject`, if there is one, is in the brackets, too."""

    OTHER = "other"
    TORCH_HOOKS = "torch-hooks"  # none is installed: torch's half of the recording is missing
    PYTHON_HALF = "python-half"  # it did not start; boot.py writes it with nothing imported
    HOOK = "hook"  # [hook's name] not installed
    PART = "part"  # a part that waits for its module is not installed
    PYTHON_LAYOUT = "python-layout"  # this CPython is laid out differently: no Python stacks, or no holders
    COMPILER = "compiler"  # torch.compile may compile our functions
    WRAPPER = "wrapper"  # [DDP's buckets] something of torch's private parts could not be read
    RANK = "rank"
    GROUP = "group"
    LOADER = "loader"
    ELASTIC = "elastic"
    RELAYED = "relayed"  # no line about the death of another process was printed
    NAMES = "names"  # some or all tensors have no names
    PREEXISTING = "preexisting"  # storages that were allocated before recording started
    CUDA = "cuda"  # devices, or a part of what they do, are not followed
    GUARD = "guard"  # guard mode is off, or limited
    STORAGE_TABLE = "storage-table"  # the table of live storages is full
    SANDBOX = "sandbox"  # seccomp: nothing is recorded from here on


COLLECTIVES_HOOK = "collectives"  # the subject of HOOK where collectives are not recorded


def coded(code: NoteCode, text: str, subject: str = "") -> str:
    """The payload of a NOTE."""
    return f"[{code.value} {subject}] {text}" if subject else f"[{code.value}] {text}"
