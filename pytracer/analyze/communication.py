"""Job -> what the report says about communication: last collectives, DDP buckets, process groups."""

from __future__ import annotations

from pytracer._words import hex_addr
from pytracer.analyze import report as r
from pytracer.analyze.address import bucket_at, objects_in
from pytracer.decode.snapshot import Collective, Job, Snapshot


def build_collectives(job: Job) -> r.Collectives:
    """Process groups as far as known.

    Sequence numbers count per process, so `last` is given for a single group only.
    """
    groups: dict[str, list[int]] = {}
    for process in job.ranks:
        for fact in process.snapshot.facts:
            if fact.kind == "GROUP" and isinstance(fact.data, dict):
                ranks = fact.data.get("ranks")
                groups[str(fact.data.get("name"))] = (
                    [rank for rank in ranks if isinstance(rank, int)] if isinstance(ranks, list) else []
                )
    last: dict[str, int | None] = {
        str(process.rank): process.snapshot.collectives[-1].sequence_nr if process.snapshot.collectives else None
        for process in job.ranks
    }
    if not groups and any(last.values()):
        ranks = [process.rank for process in job.ranks if process.rank is not None]
        return r.Collectives(groups=[r.Group(ranks=ranks, last=last)])
    single = len(groups) == 1
    return r.Collectives(
        groups=[r.Group(name=name, ranks=ranks, last=last if single else None) for name, ranks in groups.items()]
    )


def build_flight_recorder(job: Job) -> list[r.FlightRecorderDump]:
    """What became of the dumps of torch's Flight Recorder."""
    return [
        r.FlightRecorderDump(
            file=use.path,
            rank=use.rank,
            pid=use.pid,
            entries=use.entries,
            known=use.known,
            added=use.added,
            last=use.last,
            notes=list(use.notes),
        )
        for use in job.flight
    ]


def recent_collectives(snapshot: Snapshot) -> list[r.LastCollective]:
    """The last collective of each op, newest first: a broadcast of bucket indices must not hide the last all-reduce."""
    last = {item.op: item for item in snapshot.collectives}
    return [_collective(snapshot, item) for item in sorted(last.values(), key=lambda item: -item.sequence_nr)]


def _collective(snapshot: Snapshot, last: Collective) -> r.LastCollective:
    """One collective, and the DDP bucket that it worked on."""
    groups = {
        str(fact.data.get("name"))
        for fact in snapshot.facts
        if fact.kind == "GROUP" and isinstance(fact.data, dict) and fact.data.get("name") is not None
    }
    addr = last.buffer_addr
    bucket = bucket_at(snapshot, addr, last.started_ns) if addr else None
    return r.LastCollective(
        group=groups.pop() if len(groups) == 1 else None,
        op=last.op,
        sequence_nr=last.sequence_nr,
        state=last.state,
        sizes=list(last.sizes),
        dtypes=[last.dtype] if last.dtype else None,
        buffer=r.CollectiveBuffer(
            addr=hex_addr(addr) if addr else None,
            names=[bucket.name] if bucket else [],
            bucket_index=bucket.index if bucket else None,
        ),
    )


def ddp_modules(snapshot: Snapshot) -> list[r.Ddp]:
    """The last bucket layout of each DDP module."""
    last: dict[str, r.Ddp] = {}
    for fact in snapshot.facts:
        if fact.kind != "BUCKETS" or not isinstance(fact.data, dict):
            continue
        module, generation = str(fact.data.get("module") or "?"), fact.data.get("generation")
        buckets = [
            r.DdpBucket(
                index=bucket.get("index"),
                addr=hex_addr(bucket["addr"]) if isinstance(bucket.get("addr"), int) else None,
                nbytes=bucket.get("nbytes"),
                generation=generation,
                parameters=[str(item.get("fqn")) for item in objects_in(bucket, "parameters")],
            )
            for bucket in objects_in(fact.data, "buckets")
        ]
        last[module] = r.Ddp(module=module, buckets=buckets, has_rebuilt=fact.data.get("has_rebuilt"))
    return list(last.values())
