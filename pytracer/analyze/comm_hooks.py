"""What DDP sends that is not a bucket: what a communication hook makes of one, and zeros of a rank that has joined."""

from __future__ import annotations

from pytracer.analyze.buckets import bucket_named
from pytracer.analyze.facts import lived_at
from pytracer.analyze.scopes import hook_call, joined_module
from pytracer.decode.snapshot import Collective, Snapshot, Storage


def sent_for(snapshot: Snapshot, item: Collective) -> tuple[tuple[str, ...], int | None]:
    """Names of what a collective sends in place of a bucket, and the index of that bucket."""
    module = joined_module(item.scope)
    if module is not None:
        return (f"zeros in place of a bucket of {module}: this rank has joined",), None
    call = hook_call(item.scope)
    if call is None:
        return (), None
    bucket = bucket_named(snapshot, call.module, call.index, item.scheduled_ns)
    name = bucket.name if bucket else f"DDP bucket {call.index} of {call.module}"
    return (f"tensor of communication hook {call.hook} for {name}", name), call.index


def sent_from_storage(snapshot: Snapshot, storage: Storage) -> str | None:
    """The name of what a collective sent from one life of a storage, when that was not the bucket itself."""
    for item in reversed(snapshot.collectives):
        start = item.buffer_addr
        if start is None or item.epoch is None or not storage.base <= start < storage.base + max(storage.nbytes, 1):
            continue
        names, _ = sent_for(snapshot, item)
        if names and lived_at(storage, item.epoch):
            return names[0]
    return None
