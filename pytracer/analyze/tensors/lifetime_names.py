"""What one life of a storage was called: DDP bucket, parameters, gradients, buffers, optimizer state."""

from __future__ import annotations

from pytracer.analyze.address_space.address_info import BucketLife
from pytracer.analyze.tensors.comm_hooks import sent_from_storage
from pytracer.analyze.tensors.ddp import bucket_of_storage
from pytracer.analyze.tensors.fsdp import unit_of_storage
from pytracer.analyze.tensors.journal import facts_of_life
from pytracer.analyze.tensors.names import named_tensors
from pytracer.decode.types.journal import Module
from pytracer.decode.types.snapshot import Snapshot, Storage


def names_of_storage(snapshot: Snapshot, storage: Storage, addr: int) -> tuple[BucketLife | None, tuple[str, ...]]:
    """What one life of a storage was called: its DDP bucket, and all names: bucket, what lies at `addr`, the rest."""
    bucket = bucket_of_storage(snapshot, storage, addr)
    unit = unit_of_storage(snapshot, storage, addr)
    sent = None if bucket else sent_from_storage(snapshot, storage)
    first = (bucket.name if bucket else None, unit.name if unit else None, sent)
    at_addr: dict[str, None] = {name: None for name in first if name}
    others: dict[str, None] = {}
    for fact in facts_of_life(snapshot, Module, storage):
        for tensor in fact.data.tensors:
            start, nbytes = tensor.addr or 0, tensor.nbytes or 0
            if not storage.base <= start < storage.base + max(storage.nbytes, 1):
                continue
            name = f"{tensor.role or 'tensor'} {tensor.fqn}"
            (at_addr if start <= addr < start + max(nbytes, 1) else others).setdefault(name)
    here, there = named_tensors(snapshot, storage, addr)
    at_addr.update(dict.fromkeys(item.name for item in here))
    others.update(dict.fromkeys(item.name for item in there))
    return bucket, tuple({**at_addr, **others})
