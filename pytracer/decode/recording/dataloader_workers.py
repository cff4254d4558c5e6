"""DataLoader workers: which one a process is, and the last batch that it began to load."""

from __future__ import annotations

import re
from collections.abc import Iterable

from pytracer.decode.types.journal import AnyFact, LoaderWorker, select
from pytracer.decode.types.snapshot import Event, Worker

_BATCH = re.compile(r"(\d{1,9}) (.*)", re.DOTALL)


def worker_of(facts: Iterable[AnyFact], events: Iterable[Event], since_ns: int) -> Worker | None:
    """The WORKER entry and the last SAMPLE record of this process itself; None when it is no worker.

    Args:
        facts: entries of the journal.
        events: records, oldest first.
        since_ns: what is older was copied by fork().
    """
    own = [fact for fact in select(facts, LoaderWorker) if fact.mono_ns >= since_ns]
    if not own:
        return None
    data = own[-1].data
    begun, loading = None, False
    for event in events:
        if event.kind == "SAMPLE" and event.mono_ns >= since_ns:
            loading = bool(event.data["text"])
            begun = event if loading else begun
    match = _BATCH.match(begun.data["text"]) if begun is not None else None
    return Worker(
        worker_id=data.worker_id,
        num_workers=data.num_workers,
        seed=data.seed,
        dataset=data.dataset,
        batch_count=int(match[1]) if match else None,
        batch_indices=match[2] or None if match else None,
        batch_mono_ns=begun.mono_ns if begun else None,
        loading=loading,
    )
