"""Records of the rings: what a thread did, decoded; `Event.data`."""

from __future__ import annotations

import msgspec

from pytracer.decode.types.storages import CallSite


class Text(msgspec.Struct, frozen=True):
    """MARK: text of pytracer.mark(). SAMPLE: the batch of a DataLoader worker, empty when it is done."""

    text: str


class Step(msgspec.Struct, frozen=True):
    """STEP. `source` is "pytracer.step" or "optimizer steps"."""

    step: int
    source: str | None


class Node(msgspec.Struct, frozen=True):
    """NODE, OP, RANGE_BEGIN, RANGE_END. `device` and `stream` are None in a process that does not use CUDA.

    `site`: where an operator was called, in a process that uses CUDA; `storages` are then those of device memory, and
    `kernel` is the mangled name of the last one that it launched, `host_storages` are those of the CPU, to which the
    first operand may belong; `asynchronous`: a copy between a device and pinned memory, for which the host does not
    wait. `without_memory`: operands on a device that have elements, but whose storage has been resized to 0.
    """

    name: str
    sequence_nr: int | None
    input_count: int
    stream: int | None
    storages: tuple[int, ...]
    device: int | None
    site: CallSite | None = None
    kernel: str | None = None
    host_storages: tuple[int, ...] = ()
    first_on_host: bool = False
    asynchronous: bool = False
    without_memory: int = 0


class Stream(msgspec.Struct, frozen=True):
    """STREAM: streams wait for each other, or the host for them."""

    action: int
    device: int
    stream: int
    event: int
    other_stream: int


Record = Text | Step | Node | Stream
