"""What an address was, as plain data: the answer of `lookup.py`, `regions.py` and `neighbors.py`."""

from __future__ import annotations

import msgspec

from pytracer._text import list_words
from pytracer.decode.types.devices import DeviceSegment
from pytracer.decode.types.snapshot import Holder, LoadedImage, Mapping, Storage


class BucketLife(msgspec.Struct, frozen=True):
    """A DDP bucket that lived in a storage.

    `parameters` are the fully qualified names; `rebuilt`: a newer generation was recorded later.
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


class UnitLife(msgspec.Struct, frozen=True):
    """What an FSDP unit used a storage for. `what` is one of report_parts.Fsdp.what.

    `parameter` is at the address; `shard_of_rank` is the owner of the shard, where several ranks' shards lie side by
    side. `state`: whether the unit was sharded or unsharded at the end. `module` is None if several roots have such a
    unit.
    """

    module: str | None
    unit: str
    wrapper: str | None
    what: str
    nbytes: int
    offset_bytes: int
    parameters: tuple[str, ...]
    parameter: str | None = None
    parameter_offset_bytes: int | None = None
    shard_of_rank: int | None = None
    state: str | None = None

    @property
    def name(self) -> str:
        """E.g. `unsharded parameter layers.0.weight of FSDP unit layers.0`."""
        return f"{WHAT_WORDS[self.what].format(self.parameter or '?')} of {self.unit_words}"

    @property
    def is_of_one(self) -> bool:
        """Whether the storage belongs to one parameter, by its name."""
        return self.what in _OF_ONE

    @property
    def unit_words(self) -> str:
        """`FSDP unit layers.0`, `the root FSDP unit`."""
        return f"FSDP unit {self.unit}" if self.unit else "the root FSDP unit"


_OF_ONE = ("unsharded-parameter", "unsharded-gradient", "local-shard")
WHAT_WORDS = {
    "unsharded-parameter": "unsharded parameter {}",
    "unsharded-flat-parameter": "unsharded flat parameter",
    "unsharded-gradient": "unsharded gradient of {}",
    "local-shard": "local shard of parameter {}",
    "local-flat-shard": "local shard of the flat parameter",
    "all-gather-input": "all-gather input",
    "all-gather-output": "all-gather output",
    "reduce-scatter-input": "reduce-scatter input",
    "reduce-scatter-output": "reduce-scatter output",
    "all-reduce-buffer": "all-reduce buffer",
}


class Region(msgspec.Struct, frozen=True):
    """The part of the address space at an address, storages aside.

    `kind` is one of report.Region.kind; `words` describe it: "the stack of thread pt_autograd_0 (4711)". `start` and
    `end` bound it. `tid`: of the thread whose stack it is. `offset`: in the file, or the ELF address in an image.
    `is_code`: the image is executable there. `beside`: what lies next to unmapped memory.
    """

    kind: str
    words: str
    start: int | None = None
    end: int | None = None
    permissions: str | None = None
    path: str | None = None
    offset: int | None = None
    tid: int | None = None
    image: LoadedImage | None = None
    beside: str = ""

    @property
    def is_code(self) -> bool:
        """Whether it may be executed."""
        return "x" in (self.permissions or "")


class Neighbor(msgspec.Struct, frozen=True):
    """The storage that ends or begins next to an address, on one side of it.

    `distance_bytes`: from the address to its first byte, or from its last byte to the address; 1 is right beside it.
    """

    side: str  # "below" | "above"
    distance_bytes: int
    storage: Storage
    names: tuple[str, ...] = ()


class Formation(msgspec.Struct, frozen=True):
    """How an address was computed: `storage.base + within_bytes + scale * index`, modulo 2**64.

    `pointer` and `index_at` are registers or words of the stack; `index_at` is None when the index was found in memory
    only, `pointer` when it was overwritten. `index_storage` is the live storage whose memory holds the index. `exact`:
    what `pointer` held was the other part of the sum, not only some place in the same storage. `twin`: another live
    storage, into which a pointer led as far from its first byte, and which has room for it.
    """

    storage: Storage
    pointer: str | None
    index: int
    scale: int
    within_bytes: int
    index_at: str | None
    index_storage: Storage | None
    exact: bool
    twin: Storage | None = None

    @property
    def room(self) -> int:
        """How many elements of `scale` bytes the storage has."""
        return self.storage.nbytes // self.scale


class Overrun(msgspec.Struct, frozen=True):
    """An access that ran on without a gap: `span_bytes` from `start` to the fault, above it or below.

    `storage` began at `start`, or the variables `holders` had a tensor there whose record is gone. `register`, or that
    word of the stack, pointed into it. `left_bytes`: what a string instruction had not done yet. `through_recording`:
    the process's own recording lay on the way. `sole`: no register pointed into another storage on the way; `majority`:
    at least two into this one. `stride_bytes`: the access went in steps of so many, from `start` on to the fault.
    `of_line`: no register pointed into it; it is the closest tensor before the write that the program's line holds.
    """

    start: int
    span_bytes: int
    downwards: bool
    register: str
    storage: Storage | None
    holders: tuple[Holder, ...]
    left_bytes: int | None
    through_recording: bool
    sole: bool
    majority: bool
    stride_bytes: int | None = None
    of_line: bool = False


class Place(msgspec.Struct, frozen=True):
    """What an address was. `kind` is one of report.Fault.kind; `distance_bytes` is 0 inside the storage.

    `found` is "exact" when the crash handler itself found the storage or `register` of the faulting instruction pointed
    into it, "guessed" when it was looked up later. `earlier` are the names of older lives at the same address, the
    latest first: a stale pointer may be older than the last owner of the memory. `segment`: of a device's allocator.
    `formation` and `overrun`: by what the storage is known that an address outside of all storages was meant for; then
    `found` is "computed". `rivals`: other living storages of the same address that may have been meant just as well;
    `names` are then those of all.
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
    register: str | None = None
    segment: DeviceSegment | None = None
    unit: UnitLife | None = None
    formation: Formation | None = None
    overrun: Overrun | None = None
    rivals: tuple[Storage, ...] = ()

    @property
    def name(self) -> str | None:
        """The first name; where several have the address and any may be meant, `one of a.weight and b.weight`."""
        if not self.rivals:
            return next(iter(self.names), None)
        if len(self.names) <= len(self.rivals):
            return f"one of {len(self.rivals) + 1} tensors"
        return f"one of {list_words(self.names)}"
