"""DataLoader workers: which one a process is, and the last batch that it began to load."""

from __future__ import annotations

import re
from collections.abc import Iterable

from pytracer.decode.types.journal import AnyFact, LoaderWorker, select
from pytracer.decode.types.records import Text
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
    begun: tuple[int, str] | None = None
    loading = False
    for event in events:
        if event.kind == "SAMPLE" and isinstance(event.data, Text) and event.mono_ns >= since_ns:
            loading = bool(event.data.text)
            begun = (event.mono_ns, event.data.text) if loading else begun
    match = _BATCH.match(begun[1]) if begun is not None else None
    return Worker(
        worker_id=data.worker_id,
        num_workers=data.num_workers,
        seed=data.seed,
        dataset=data.dataset,
        batch_count=int(match[1]) if match else None,
        batch_indices=match[2] or None if match else None,
        batch_mono_ns=begun[0] if begun else None,
        loading=loading,
    )
