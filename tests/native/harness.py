"""Runs code in recorded children, and checks allocation lifetimes written by csrc/testing.

The base address and size of a lifetime determine its call sites, so that a lifetime mixed from parts of two is
detected. The arithmetic is that of csrc/testing/storages.cpp.
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
        """The recording of a child that must exit normally."""
        done = self.child(code)
        assert done.status == 0, f"status {done.status}: {done.stderr}"
        return done.box

    def start(self, code: str) -> subprocess.Popen[bytes]:
        """Starts a child; its standard output is a pipe."""
        return subprocess.Popen(self.command(code), env=self.env(), stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)


def mix(base: int, nbytes: int) -> int:
    """Call site that allocates (base, nbytes); `mix(base, nbytes + 1)` is the one that frees it."""
    return ((base >> 6) * 2654435761 ^ nbytes * 40503) & 0x7FFFFFFF


def base_of(thread: int, slot: int, large: bool) -> int:
    """Where `thread` allocates in its `slot`."""
    return (0x100 + thread) << 32 | large << 31 | slot << 6


def size_of(thread: int, life: int, large: bool) -> int:
    """How large the `life`-th storage of `thread` is."""
    return 1 << 40 | life << 4 | thread % 16 if large else 1 + life % 8000 * 16 + thread % 16


def thread_of(storage: Storage) -> int:
    """The thread of csrc/testing that a storage belongs to, by its address."""
    return (storage.base >> 32) - 0x100


def life_of(storage: Storage) -> int:
    """The number of the storage on its thread; of small ones, modulo 8000."""
    large = storage.nbytes >> 40
    return (storage.nbytes & (1 << 40) - 1) >> 4 if large else (storage.nbytes - 1) >> 4


def inconsistent(storages: Iterable[Storage]) -> list[Storage]:
    """Storages that no thread allocated: mixed from parts of different lifetimes."""
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
