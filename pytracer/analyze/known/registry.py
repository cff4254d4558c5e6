"""The registry of known crashes: one file of `crashes/` per crash, read once, when the first death asks for it.

An entry is data: the facts that a recording must hold for it, and what is then known. A misspelt key is an error, so
that no fact is silently not asked for.
"""

from __future__ import annotations

import functools
from pathlib import Path

import msgspec

from pytracer.report.job import Confidence, VerdictClass

FOLDER = Path(__file__).resolve().parent / "crashes"


class Raised(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A Python or C++ exception: `message` is a regular expression to search for, `type` names without modules."""

    message: str
    type: tuple[str, ...] = ()


class Facts(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What must hold, all of it. A group of names holds when one of them is part of a function's or an image's name."""

    signal: str | None = None
    exception: Raised | None = None
    abort_text: str | None = None  # regular expression: what the C library printed
    innermost: str | None = None  # the innermost native function
    stack: tuple[tuple[str, ...], ...] = ()  # groups on the native stack of the crashed thread
    not_on_stack: tuple[str, ...] = ()
    threads: tuple[tuple[str, ...], ...] = ()  # groups among names and stacks of the other threads
    python: tuple[tuple[str, str], ...] = ()  # (end of a file's path, function), somewhere on the Python stack
    images: tuple[str, ...] = ()  # regular expressions, each for the path of a loaded library
    environment: dict[str, str] = {}  # regular expressions by variable
    torch: str | None = None  # a range of versions, as ">=2.10,<2.11"
    python_version: str | None = None
    cuda: str | None = None
    architecture: str | None = None
    role: str | None = None
    world_size: int | None = None  # at least
    process_group: str | None = None  # "present" | "left" | "none"
    forked: bool | None = None  # a child of fork(), without an exec() since
    finalizing: bool | None = None  # the interpreter was shutting down
    kernel_assertion: bool | None = None  # the words of a kernel's assertion were recorded
    not_finite: bool | None = None  # a tensor that the running operator was given has NaN or infinite elements
    gradients_off: bool | None = None  # torch.is_grad_enabled() was False when the exception was recorded


class Example(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What matched in a real report, for the documentation and for the entry's test."""

    message: str | None = None
    abort_text: str | None = None
    images: tuple[str, ...] = ()
    environment: dict[str, str] = {}
    torch: str | None = None


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One known crash.

    `classes`: the verdicts that it may explain. `what`: half a sentence for the headline of an abort. `says`: the
    evidence. `sources`: public issues as `owner/repo#1`, or how the crash was made here. `confidence`: "certain" only
    where the facts admit nothing else. `not_finite_advice`: in place of `advice`, where lines that can make NaN or
    infinity are known, of a crash that these numbers lead to. `lists_causes`: `says` lists what the cause may be, which
    is left out where it is known.
    """

    id: str
    title: str
    classes: tuple[VerdictClass, ...]
    confidence: Confidence
    what: str
    says: str
    advice: str
    sources: tuple[str, ...]
    facts: Facts
    example: Example = Example()
    not_finite_advice: str | None = None
    lists_causes: bool = False


@functools.cache
def entries() -> tuple[Entry, ...]:
    """All entries, by name of their files."""
    return tuple(read_entry(path) for path in sorted(FOLDER.glob("*.toml")))


def read_entry(path: Path) -> Entry:
    """One file.

    Raises:
        msgspec.ValidationError: The file is no entry.
    """
    return msgspec.toml.decode(path.read_bytes(), type=Entry)
