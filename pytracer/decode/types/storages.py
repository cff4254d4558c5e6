"""Storages and their call sites: the part of a snapshot that may have millions of entries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

StorageState = Literal["live", "freed"]
Pool = tuple[int, int]  # torch's pool id: (0, 0) is the default pool, (n, 0) a CUDA graph's, (0, n) a MemPool's
DEFAULT_POOL: Pool = (0, 0)


@dataclass(frozen=True, slots=True)
class PythonFrame:
    """One Python frame; `line` is None when its table could not be read."""

    function: str
    file: str
    line: int | None = None


@dataclass(frozen=True)
class CallSite:
    """The code that allocated or freed a storage.

    `python` is the innermost Python frame, `caller` the first one outside torch (large storages only), `node` the
    autograd node that ran, `node_sequence_nr` its sequence number. `stack`: of guarded storages, innermost first.
    """

    python: PythonFrame | None = None
    caller: PythonFrame | None = None
    node: str | None = None
    node_sequence_nr: int | None = None
    stack: tuple[PythonFrame, ...] = ()

    @property
    def place(self) -> PythonFrame | None:
        """The line to name: the first outside torch, else the innermost."""
        return self.caller or self.python


@dataclass(frozen=True)
class Moment:
    """Coarse time: when its epoch began, in ns since the host booted, and the step; when the next one did, if known."""

    epoch: int
    mono_ns: int | None
    step: int | None
    ended_ns: int | None = None


@dataclass(frozen=True)
class Storage:
    """One allocation lifetime of a storage. `freed*` are None while it is live. `thread` values are kernel thread ids.

    On a device it is a block of the caching allocator, for a `stream` and from a `pool`. `awaited`: the program has
    freed it, at `freed*`, but it stays live until other CUDA streams have used it.

    `origin` is the name of a `schema.Origin`, None for one of a newer recorder. `file` is the mapped file or the name
    of the shared memory, `file_offset` where in it the storage begins. `older`: allocated before recording started;
    `allocated` is then when it was found.
    """

    base: int
    nbytes: int
    state: StorageState
    allocated: Moment
    allocated_by: CallSite
    allocated_thread: int | None
    freed: Moment | None = None
    freed_by: CallSite | None = None
    freed_thread: int | None = None
    order: tuple[int, int] = (0, 0)  # (epoch, sequence) of the last change, for "most recent"
    device: str = "cpu"  # e.g. "cuda:0"
    stream: int | None = None
    pool: Pool = DEFAULT_POOL
    awaited: bool = False
    origin: str | None = "CPU_ALLOCATOR"
    file: str | None = None
    file_offset: int | None = None
    older: bool = False
    foreign: bool = False  # in memory that torch's CPU allocators did not hand out
