"""What an address was, as plain data: the answer of `address.py`."""

from __future__ import annotations

from dataclasses import dataclass

from pytracer.decode.snapshot import Mapping, Storage


@dataclass(frozen=True)
class BucketLife:
    """A DDP bucket that lived in a storage.

    `parameters` are the fully qualified names; `rebuilt` says that a newer generation was recorded later.
    """

    module: str
    index: int
    generation: int
    nbytes: int
    parameters: tuple[str, ...]
    offset_bytes: int
    parameter: str | None
    rebuilt: bool
    rebuilt_mono_ns: int | None

    @property
    def name(self) -> str:
        """E.g. `DDP bucket 0 of model (generation 0)`."""
        return f"DDP bucket {self.index} of {self.module} (generation {self.generation})"


@dataclass(frozen=True)
class Place:
    """What an address was. `kind` is one of report.Fault.kind; `distance_bytes` is 0 inside the storage.

    `earlier` are the names of older lives at the same address, the latest first: a stale pointer may be older than the
    last owner of the memory.
    """

    addr: int
    kind: str
    storage: Storage | None = None
    offset_bytes: int | None = None
    distance_bytes: int | None = None
    found: str | None = None
    bucket: BucketLife | None = None
    names: tuple[str, ...] = ()
    mapping: Mapping | None = None
    earlier: tuple[str, ...] = ()
