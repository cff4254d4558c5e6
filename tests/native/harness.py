"""Runs code in recorded children, and says what a life of testing.cpp must look like.

A life there is known by its base address and size: who allocated and who freed it follow from both, so that parts of
two lives that were mixed up are noticed. The arithmetic is that of csrc/testing/testing.cpp.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from pytracer.decode.types.snapshot import Snapshot, Storage
from tests.support.cli import ROOT
from tests.support.crash import CORE, Ended, ended, environment

CSRC = ROOT / "csrc"
PACKAGE = ROOT / "pytracer"
PROLOGUE = """
import ctypes, os, sys
t = ctypes.CDLL({library!r})
core = ctypes.CDLL({core!r})
U64 = ctypes.c_uint64
t.testing_begin()
"""


@dataclass
class Native:
    """Recorded children in which `t` is libpytracer_testing and `core` is libpytracer_core."""

    built: Path
    run: Path
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def watch(self) -> str:
        """A library to preload: it ends the process with status 99 when the handler allocates or locks."""
        return str(self.built / "libwatch.so")

    def command(self, code: str) -> list[str]:
        """The command of a child that runs `code`."""
        prologue = PROLOGUE.format(library=str(self.built / "libpytracer_testing.so"), core=str(CORE))
        return [sys.executable, "-S", "-c", prologue + code]

    def env(self, *preload: str) -> dict[str, str]:
        """Its environment: the core preloaded behind `preload`."""
        words = {"LD_PRELOAD": ":".join([*preload, str(CORE)]), "PYTRACER_DIR": str(self.run), "PYTRACER_LAUNCHER": "1"}
        return environment(**words, **self.environment)

    def child(self, code: str, *preload: str) -> Ended:
        """Runs `code` to its end."""
        self.run.parent.mkdir(parents=True, exist_ok=True)
        return ended(self.command(code), self.env(*preload), self.run)

    def box(self, code: str) -> Snapshot:
        """The box of a child that must end well."""
        done = self.child(code)
        assert done.status == 0, f"status {done.status}: {done.stderr}"
        return done.box

    def start(self, code: str) -> subprocess.Popen[bytes]:
        """Starts a child; its standard output is a pipe."""
        return subprocess.Popen(self.command(code), env=self.env(), stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)


def mix(base: int, nbytes: int) -> int:
    """Who allocated the life (base, nbytes); `mix(base, nbytes + 1)` freed it."""
    return ((base >> 6) * 2654435761 ^ nbytes * 40503) & 0x7FFFFFFF


def base_of(thread: int, slot: int, large: bool) -> int:
    """Where `thread` allocates in its `slot`."""
    return (0x100 + thread) << 32 | large << 31 | slot << 6


def size_of(thread: int, life: int, large: bool) -> int:
    """How large the `life`-th storage of `thread` is."""
    return 1 << 40 | life << 4 | thread % 16 if large else 1 + life % 8000 * 16 + thread % 16


def thread_of(storage: Storage) -> int:
    """Which thread of testing.cpp a storage belongs to, by its address."""
    return (storage.base >> 32) - 0x100


def life_of(storage: Storage) -> int:
    """Which life of its thread a storage is; of small ones, modulo 8000."""
    large = storage.nbytes >> 40
    return (storage.nbytes & (1 << 40) - 1) >> 4 if large else (storage.nbytes - 1) >> 4


def inconsistent(storages: Iterable[Storage]) -> list[Storage]:
    """Storages that no thread of testing.cpp ever had: parts of different lives."""
    return [s for s in storages if not _consistent(s)]


def _consistent(s: Storage) -> bool:
    large = s.nbytes >> 40
    if bool(large) != bool(s.base >> 31 & 1):
        return False
    thread = s.nbytes & 15 if large else (s.nbytes - 1) & 15
    right = thread == thread_of(s) % 16 and s.allocated_by.node_sequence_nr == mix(s.base, s.nbytes)
    if s.state == "live":
        return right
    return (
        right
        and s.freed_by is not None
        and s.freed_by.node_sequence_nr == mix(s.base, s.nbytes + 1)
        and s.freed is not None
        and s.freed.epoch >= s.allocated.epoch
    )
