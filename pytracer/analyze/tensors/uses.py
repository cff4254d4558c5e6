"""What storages were used for, with names: DDP buckets, FSDP's tensors, named tensors, buffers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from pytracer._text import size_words
from pytracer.analyze.address_space.address_info import BucketLife
from pytracer.analyze.tensors.comm_hooks import CalledTensor, CommHooks
from pytracer.analyze.tensors.ddp import DdpBuckets
from pytracer.analyze.tensors.fsdp import FsdpUses
from pytracer.analyze.tensors.journal import ByAddress, Lives, lived_at
from pytracer.analyze.tensors.names import TensorNames
from pytracer.decode.types.journal import Buckets, Module
from pytracer.decode.types.snapshot import Collective, Snapshot, Storage

_BARRIERS = ("barrier", "monitored_barrier")  # what the backend passes may lie where a bucket had been


class Buffer(msgspec.Struct, frozen=True):
    """One buffer of a collective. `what` is the best description, `names` are all that are known, the best first."""

    addr: int
    what: str | None = None
    names: tuple[str, ...] = ()
    bucket_index: int | None = None


class StorageUses:
    """The uses of one process's storages, by what it recorded about each of its tensor libraries.

    `called`: the tensors of its collectives.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._lives = Lives(snapshot.storages)
        self.called = ByAddress(_tensors(snapshot.collectives))
        self.ddp = DdpBuckets(snapshot.recorded(Buckets), self._lives)
        self.fsdp = FsdpUses(snapshot, self._lives, self.called)
        self.hooks = CommHooks(snapshot, self.ddp, self.called)
        self.named = TensorNames(snapshot)
        self._registered = ByAddress(
            (tensor.addr or 0, (fact, tensor)) for fact in snapshot.recorded(Module) for tensor in fact.data.tensors
        )

    def names_of(self, storage: Storage, addr: int) -> tuple[BucketLife | None, tuple[str, ...]]:
        """The names of a storage: its DDP bucket; all names: bucket, the tensor at `addr`, the rest."""
        bucket = self.ddp.of_storage(storage, addr)
        unit = self.fsdp.of_storage(storage, addr)
        sent = None if bucket else self.hooks.sent_from_storage(storage)
        first = (bucket.name if bucket else None, unit.name if unit else None, sent)
        at_addr: dict[str, None] = {name: None for name in first if name}
        others: dict[str, None] = {}
        for fact, tensor in self._registered.within(storage):
            if self._lives.include(storage, fact.epoch):
                start, nbytes = tensor.addr or 0, tensor.nbytes or 0
                name = f"{tensor.role or 'tensor'} {tensor.fqn}"
                (at_addr if start <= addr < start + max(nbytes, 1) else others).setdefault(name)
        here, there = self.named.of_storage(storage, addr)
        at_addr.update(dict.fromkeys(item.name for item in here))
        others.update(dict.fromkeys(item.name for item in there))
        return bucket, tuple({**at_addr, **others})

    def buffer_of(self, item: Collective, *, output: bool = False) -> Buffer | None:
        """The first input of a collective, or the first output if that is another tensor; else None."""
        addr = item.output_addr if output else item.buffer_addr
        if addr is None or (output and addr == item.buffer_addr):
            return None
        life = self.fsdp.of_buffer(item, output=output)
        bucket = self.ddp.at(addr, item.scheduled_ns or item.started_ns) if item.op not in _BARRIERS else None
        names = [life.name] if life else []
        index = None
        if bucket is not None:
            names.append(bucket.name)
            index = bucket.index
        else:
            sent, index = self.hooks.sent_for(item)
            names += sent
        storage = self._at_call(addr, item.epoch)
        names += self.names_of(storage, addr)[1] if storage else ()
        names = list(dict.fromkeys(names))
        return Buffer(addr, names[0] if names else _plain(storage), tuple(names), index)

    def _at_call(self, addr: int, epoch: int | None) -> Storage | None:
        """The storage at that address when the collective was called."""
        if epoch is None:
            return None
        around = self._snapshot.storages.around(addr)
        holding = (item for item in around if item.base <= addr < item.base + max(item.nbytes, 1))
        return next((item for item in holding if lived_at(item, epoch)), None)


def _tensors(collectives: Iterable[Collective]) -> Iterator[tuple[int, CalledTensor]]:
    """The first input and the first output of each collective, by address."""
    for item in collectives:
        for addr, is_output in ((item.buffer_addr, False), (item.output_addr, True)):
            if addr is not None:
                yield addr, (item, is_output)


def _plain(storage: Storage | None) -> str | None:
    """A storage without a name: its allocation site."""
    if storage is None:
        return None
    who = storage.allocated_by
    frame = who.place
    if frame is not None:
        where = f" allocated at {frame.file.rpartition('/')[2]}:{frame.line} in {frame.function}"
    else:
        where = f" allocated by autograd node {who.node}" if who.node else ""
    return f"storage of {size_words(storage.nbytes)}{where}"
