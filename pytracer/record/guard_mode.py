"""Guard mode: the options of `--guard`, `enable(guard=...)` and PYTRACER_GUARD, and how they are applied.

    all | sample:N   [,min-bytes:SIZE] [,align:4|16|64] [,side:overrun|underrun] [,bytes:SIZE] [,mappings:N] [,mprotect]

Does not import torch: the launcher checks the options before the job starts.
"""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pytracer._errors import UsageError
from pytracer.blackbox.note_codes import NoteCode
from pytracer.record.config import guard_words

if TYPE_CHECKING:
    from pytracer.record.core import Core

VARIABLE = "PYTRACER_GUARD"
ALL = "all"
EXAMPLES = "write for example all, sample:1000, or all,min-bytes:64K,side:underrun"
ALIGNMENTS = (64, 16, 4)
# Records include the quarantine: 8 MiB of the recording when everything is guarded, 2 MiB for samples.
RECORDS_OF_ALL, RECORDS_OF_SAMPLES = 65536, 16384
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_DEFAULT_MAP_COUNT = 65530


@dataclass(frozen=True)
class Guard:
    """What to guard, and limits. `text` is the same as given to `--guard`; None: chosen when guard mode starts."""

    text: str
    every: int = 1
    min_bytes: int = 0
    alignment: int = 64
    underrun: bool = False
    budget_bytes: int | None = None
    budget_mappings: int | None = None
    protection_only: bool = False

    @property
    def warning(self) -> str | None:
        """A caveat about the results of the run."""
        if self.alignment == ALIGNMENTS[0]:
            return None
        return (
            f"guarded storages are aligned to {self.alignment} bytes instead of {ALIGNMENTS[0]}: vectorized code may "
            "take other paths, and results may differ in their last bits"
        )


def parse_guard(text: str) -> Guard:
    """The settings of a `--guard` value.

    Raises:
        UsageError: an unknown word or number.
    """
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words:
        raise UsageError("guard mode needs a value", EXAMPLES)
    values: dict[str, int | bool] = {}
    for word in words:
        name, _, value = word.partition(":")
        reader = _WORDS.get(name)
        found = reader(value) if reader else None
        if found is None:
            raise UsageError(f"guard mode does not know {word!r}", EXAMPLES)
        field, number = found
        if field in values:
            raise UsageError(f"guard mode has two values of {field.replace('_', ' ')}, in {text!r}", EXAMPLES)
        values[field] = number
    return Guard(text=",".join(words), **values)  # type: ignore[arg-type]


def guard_from_environment(box: Core) -> Guard | None:
    """PYTRACER_GUARD; None if it is unset or invalid, which is recorded as a note."""
    try:
        words = guard_words()
        return parse_guard(words) if words else None
    except UsageError as error:
        box.note(NoteCode.GUARD, f"guard mode is off: {VARIABLE}: {error}")
        return None


class Settings(ctypes.Structure):
    """struct pytracer_guard_settings of csrc/core/core.h."""

    _fields_ = (
        ("every", ctypes.c_uint64),
        ("min_bytes", ctypes.c_uint64),
        ("budget_bytes", ctypes.c_uint64),
        ("budget_mappings", ctypes.c_uint64),
        ("alignment", ctypes.c_uint32),
        ("underrun", ctypes.c_uint32),
        ("records", ctypes.c_uint32),
        ("protection_only", ctypes.c_uint32),
    )


def arm(box: Core, guard: Guard | None) -> None:
    """Starts or stops guarding new storages. System errors are recorded as notes."""
    if guard is None:
        box.lib.pytracer_guard_pause()
        return
    settings = Settings(
        every=guard.every,
        min_bytes=guard.min_bytes,
        budget_bytes=guard.budget_bytes if guard.budget_bytes is not None else memory_bytes() // 2,
        budget_mappings=guard.budget_mappings if guard.budget_mappings is not None else map_count() // 4,
        alignment=guard.alignment,
        underrun=guard.underrun,
        records=RECORDS_OF_ALL if guard.every == 1 else RECORDS_OF_SAMPLES,
        protection_only=guard.protection_only,
    )
    problem = ctypes.create_string_buffer(256)
    error = box.lib.pytracer_guard_open(ctypes.byref(settings), problem, ctypes.c_size_t(len(problem)))
    if error:
        box.note(NoteCode.GUARD, f"guard mode is off: {problem.value.decode()}: {os.strerror(error)}")
    elif guard.warning:
        box.note(NoteCode.GUARD, f"guard mode: {guard.warning}")


def memory_bytes(cgroup: Path = Path("/sys/fs/cgroup/memory.max")) -> int:
    """The memory that this process may use: the machine's, or a cgroup's limit (v2)."""
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min(total, _number_in(cgroup) or total)


def map_count(path: Path = Path("/proc/sys/vm/max_map_count")) -> int:
    """The limit of mappings of a process: beyond it every other mmap of the program fails."""
    return _number_in(path) or _DEFAULT_MAP_COUNT


def _number_in(path: Path) -> int | None:
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


def _size(field: str) -> Callable[[str], tuple[str, int] | None]:
    def read(value: str) -> tuple[str, int] | None:
        match = re.fullmatch(r"(\d+)([KMGT]?)(?:i?B)?", value, re.IGNORECASE)
        return (field, int(match[1]) * _UNITS[match[2].upper()]) if match else None

    return read


def _one_of(field: str, choices: dict[str, int]) -> Callable[[str], tuple[str, int] | None]:
    return lambda value: (field, choices[value]) if value in choices else None


def _sample(value: str) -> tuple[str, int] | None:
    return ("every", int(value)) if re.fullmatch(r"[1-9]\d{0,11}", value) else None


_WORDS: dict[str, Callable[[str], tuple[str, int] | None]] = {
    ALL: _one_of("every", {"": 1}),
    "sample": _sample,
    "min-bytes": _size("min_bytes"),
    "align": _one_of("alignment", {str(number): number for number in ALIGNMENTS}),
    "side": _one_of("underrun", {"overrun": False, "underrun": True}),
    "bytes": _size("budget_bytes"),
    "mappings": _size("budget_mappings"),
    "mprotect": _one_of("protection_only", {"": True}),
}
