"""The cells of the crash matrix, and the expected result of each, as data.

A cell is a kind of death, a place (the thread that dies), a state of the process, and a way to record it.
"""

from __future__ import annotations

import itertools
import signal
from collections.abc import Iterator
from dataclasses import dataclass

KINDS = (
    "null", "near-null", "wild", "non-canonical", "freed-storage", "past-end", "before-begin", "read-only-write",
    "jump-to-data", "truncated-file", "stack-overflow", "smashed-return", "int3", "ud2", "abort", "terminate",
    "sent-signal", "heap-corruption",
)  # fmt: skip
PLACES = ("main", "python-thread", "openmp-worker", "autograd-thread", "dataloader-worker", "raw-thread")
WAYS = ("preload", "enable")

STORAGE_KINDS = ("freed-storage", "past-end", "before-begin")
TORCH_PLACES = ("autograd-thread", "dataloader-worker")
UNKNOWN_PLACES = ("openmp-worker", "raw-thread")  # their threads neither are Python's nor make or free a tensor

# State -> the kinds that die in it, on the main thread.
STATES: dict[str, tuple[str, ...]] = {
    "inside malloc": ("wild", "heap-corruption"),
    "inside dlopen": ("null", "abort", "terminate", "stack-overflow"),
    "GIL held": ("null", "abort", "stack-overflow", "sent-signal"),
    "GIL released": ("null", "abort"),
    "during import": ("null", "abort", "jump-to-data"),
    "at exit, Python": ("null", "abort", "heap-corruption"),
    "at exit, C": ("null", "abort", "stack-overflow"),
    "after fork": ("null", "stack-overflow", "abort", "freed-storage"),
    "inside a signal handler": ("null", "abort", "stack-overflow", "int3"),
    "cwd deleted": ("null", "terminate"),
    "stdio closed": ("null", "abort", "terminate", "heap-corruption"),
    "RLIMIT_CORE 0": ("null", "abort"),
    "RLIMIT_CORE unlimited": KINDS,
    "no space left": ("null", "abort", "smashed-return", "past-end"),
    "fd limit reached": ("null", "abort", "heap-corruption"),
    "ptrace forbidden": ("null", "abort", "stack-overflow"),
    "below the launcher": ("null", "abort", "stack-overflow", "freed-storage", "sent-signal"),
}
ONLY_PRELOAD = ("below the launcher",)
CORE_OF_ENABLE = ("null", "abort", "truncated-file", "sent-signal")  # the dump does not depend on the way

S = signal.Signals
SIGNAL = dict.fromkeys(KINDS, S.SIGSEGV) | {
    "truncated-file": S.SIGBUS, "int3": S.SIGTRAP, "ud2": S.SIGILL, "abort": S.SIGABRT, "terminate": S.SIGABRT,
    "heap-corruption": S.SIGABRT,
}  # fmt: skip

# The class of the verdict: docs/reference/rules.md.
CLASS = {
    "null": "null-dereference",
    "near-null": "null-dereference",
    "wild": "wild-pointer",
    "non-canonical": "wild-pointer",
    "freed-storage": "use-after-free",
    "past-end": "out-of-bounds",
    "before-begin": "out-of-bounds",
    "read-only-write": "read-only-write",
    "jump-to-data": "wild-pointer",  # a function pointer to data
    "truncated-file": "truncated-mapping",
    "stack-overflow": "stack-overflow",
    "smashed-return": "wild-pointer",  # the overwritten return address is the target of the jump
    "int3": "trap",
    "ud2": "illegal-instruction",
    "abort": "abort",
    "terminate": "abort",
    "sent-signal": "external-kill",
    "heap-corruption": "heap-corruption",
}
CLASS_IN_STATE = {("inside malloc", "wild"): "heap-corruption"}  # inside malloc the wild pointer is malloc's own

THREAD_KIND = {
    "main": "main",
    "python-thread": "python",
    "openmp-worker": "openmp",
    "autograd-thread": "autograd",
    "dataloader-worker": "main",  # of its own process
    "raw-thread": "native",
}

# How the stacks of the other threads are taken, in states that start one.
THREADS_HOW = {"below the launcher": "helper", "ptrace forbidden": "signal"}

# Places whose process has a thread that blocks all signals and so does not answer the request for its stack:
# multiprocessing's resource sharer. The helper's ptrace would reach it.
SILENT_THREADS = {"dataloader-worker"}

# Steps in which a fault is survived: libgcc follows a smashed stack.
FAULTED_STEPS = {"smashed-return": {"NATIVE_STACK"}}

# Kinds whose fault address is the one that the victim announced.
TRUE_ADDRESS = (
    "null", "near-null", "wild", "freed-storage", "past-end", "before-begin", "read-only-write", "jump-to-data",
    "truncated-file",
)  # fmt: skip


@dataclass(frozen=True)
class Cell:
    """One death."""

    kind: str
    place: str
    way: str
    state: str = ""

    def __str__(self) -> str:
        words = (self.state, self.kind, self.place, self.way)
        return "-".join(word.replace(" ", "_").replace(",", "") for word in words if word)

    @property
    def verdict(self) -> str:
        """The expected class of the verdict."""
        return CLASS_IN_STATE.get((self.state, self.kind), CLASS[self.kind])

    @property
    def needs_torch(self) -> bool:
        return self.kind in STORAGE_KINDS or self.place in TORCH_PLACES

    @property
    def in_worker(self) -> bool:
        """Whether a child dies, and its parent exits afterwards."""
        return self.place == "dataloader-worker" or self.state == "after fork"

    @property
    def leaves_core(self) -> bool:
        """Whether a core dump is allowed, and compared."""
        return self.state == "RLIMIT_CORE unlimited"

    @property
    def below_launcher(self) -> bool:
        """Whether `pytracer run` starts the victim, with its helper; otherwise the preloaded core has no helper."""
        return self.way == "preload" and self.state in ("below the launcher", "ptrace forbidden")

    @property
    def why_no_report(self) -> str | None:
        """The documented reason why this death leaves only a status and no report (docs/reference/crash-safety.md)."""
        if self.way == "enable" and self.kind == "stack-overflow" and self.place in UNKNOWN_PLACES:
            return "without preload a thread that is not Python's has no alternate stack before its first record"
        if self.way == "enable" and self.state == "inside a signal handler" and self.kind != "abort":
            return "without preload a handler's mask is not seen: the kernel kills for a fault whose signal is blocked"
        return None


def all_cells() -> list[Cell]:
    """Kinds x places x ways, then the states."""
    cells = [Cell(kind, place, way) for kind, place, way in itertools.product(KINDS, PLACES, WAYS)]
    for state, kinds in STATES.items():
        for way in WAYS if state not in ONLY_PRELOAD else ("preload",):
            few = state == "RLIMIT_CORE unlimited" and way == "enable"
            cells += [Cell(kind, "main", way, state) for kind in (CORE_OF_ENABLE if few else kinds)]
    return cells


def covering(cells: list[Cell]) -> frozenset[Cell]:
    """The fast subset: every kind, place, way and state, and the cheap ones of their pairs.

    Without torch a cell takes a fifth of a second: all kinds x places are there, and on the main thread x ways. With
    torch it takes seconds: so few that each such place and each kind about storages is there.
    """
    return frozenset(_cheap(cells)) | frozenset(_with_torch(cells))


def _cheap(cells: list[Cell]) -> Iterator[Cell]:
    seen: set[tuple[str, str]] = set()
    for cell in cells:
        if cell.needs_torch:
            continue
        if cell.state:
            new = (cell.state, cell.way) not in seen
            seen.add((cell.state, cell.way))
        else:
            new = cell.place == "main" or cell.way == WAYS[(KINDS.index(cell.kind) + PLACES.index(cell.place)) % 2]
        if new:
            yield cell


def _with_torch(cells: list[Cell]) -> Iterator[Cell]:
    chosen = (
        ("freed-storage", "main", "preload"),
        ("past-end", "openmp-worker", "enable"),
        ("before-begin", "autograd-thread", "preload"),
        ("abort", "autograd-thread", "enable"),
        ("truncated-file", "dataloader-worker", "preload"),
        ("null", "dataloader-worker", "enable"),
    )
    return (cell for cell in cells if not cell.state and (cell.kind, cell.place, cell.way) in chosen)
