"""What the buffers of a collective are: DDP buckets, what a communication hook sends, FSDP's, named storages."""

from __future__ import annotations

from dataclasses import dataclass

from pytracer._text import size_words
from pytracer.analyze.tensors.comm_hooks import sent_for
from pytracer.analyze.tensors.ddp import bucket_at
from pytracer.analyze.tensors.fsdp import unit_of_buffer
from pytracer.analyze.tensors.journal import lived_at
from pytracer.analyze.tensors.lifetime_names import names_of_storage
from pytracer.decode.types.snapshot import Collective, Snapshot, Storage


@dataclass(frozen=True)
class Buffer:
    """One buffer of a collective. `what` is the best description, `names` are all that are known, the best first."""

    addr: int
    what: str | None = None
    names: tuple[str, ...] = ()
    bucket_index: int | None = None


def buffer_of(snapshot: Snapshot, item: Collective, *, output: bool = False) -> Buffer | None:
    """The first input, or the first output where that is another tensor. None when there is none."""
    addr = item.output_addr if output else item.buffer_addr
    if addr is None or (output and addr == item.buffer_addr):
        return None
    life = unit_of_buffer(snapshot, item, output=output)
    bucket = bucket_at(snapshot, addr, item.scheduled_ns or item.started_ns)
    names = [life.name] if life else []
    index = None
    if bucket is not None:
        names.append(bucket.name)
        index = bucket.index
    else:
        sent, index = sent_for(snapshot, item)
        names += sent
    storage = _storage(snapshot, addr, item.epoch)
    names += names_of_storage(snapshot, storage, addr)[1] if storage else ()
    names = list(dict.fromkeys(names))
    return Buffer(addr, names[0] if names else _plain(storage), tuple(names), index)


def _storage(snapshot: Snapshot, addr: int, epoch: int | None) -> Storage | None:
    """The storage that lay there when the collective was called."""
    if epoch is None:
        return None
    around = [item for item in snapshot.storages.around(addr) if item.base <= addr < item.base + max(item.nbytes, 1)]
    return next((item for item in around if lived_at(item, epoch)), None)


def _plain(storage: Storage | None) -> str | None:
    """A storage without a name: where it was allocated."""
    if storage is None:
        return None
    who = storage.allocated_by
    frame = who.caller or who.python
    if frame is not None:
        where = f" allocated at {frame.file.rpartition('/')[2]}:{frame.line} in {frame.function}"
    else:
        where = f" allocated by autograd node {who.node}" if who.node else ""
    return f"storage of {size_words(storage.nbytes)}{where}"
