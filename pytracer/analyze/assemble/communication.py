"""Job -> the report about communication: last collectives, DDP buckets, process groups."""

from __future__ import annotations

from pytracer._text import hex_addr
from pytracer.analyze.assemble.timeline import build_waits, collective_state
from pytracer.analyze.collectives.description import call_words, place_of, value_of
from pytracer.analyze.collectives.matching import GroupMatch, Mismatch
from pytracer.analyze.tensors.uses import Buffer, StorageUses
from pytracer.analyze.view import JobView
from pytracer.decode.types.snapshot import Collective, Job, Process
from pytracer.report import job as r


def build_collectives(job: JobView) -> r.Collectives:
    """Process groups, where each rank was in them, the first collective on which ranks disagree, and who waits."""
    return r.Collectives(
        groups=[_group(match) for match in job.matches.groups],
        waits=build_waits(job),
        cycles=[list(cycle) for cycle in job.waiting.cycles],
    )


def _group(match: GroupMatch) -> r.Group:
    missing = match.missing()
    return r.Group(
        name=match.name,
        description=match.description,
        backend=match.backend,
        ranks=list(match.ranks),
        last={str(rank): match.last.get(rank) for rank in match.ranks},
        mismatch=_mismatch(match, match.mismatch) if match.mismatch is not None else None,
        missing_ranks=list(missing[1]) if missing is not None else [],
        missing_sequence_nr=missing[0] if missing is not None else None,
        unknown_ranks=list(match.unknown),
    )


def _mismatch(match: GroupMatch, found: Mismatch) -> r.Mismatch:
    values = [(rank, value_of(item.call, found.field, match)) for item in found.variants for rank in item.ranks]
    return r.Mismatch(
        sequence_nr=found.sequence_nr,
        field=found.field,
        by_rank={str(rank): value for rank, value in sorted(values)},
        variants=[
            r.MismatchVariant(
                ranks=list(item.ranks),
                call=call_words(item.call, match),
                state=item.call.state,
                python=place_of(item.call),
            )
            for item in found.variants
        ],
        odd_ranks=list(found.odd) if found.odd is not None else None,
        silent=found.succeeded,
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


def recent_collectives(process: Process, uses: StorageUses) -> list[r.LastCollective]:
    """The last collective of each op, newest first: a broadcast of bucket indices must not hide the last all-reduce."""
    last = {item.op: item for item in process.snapshot.collectives}
    return [_collective(process, item, uses) for item in sorted(last.values(), key=_when, reverse=True)]


def _when(item: Collective) -> tuple[int, int]:
    """The order of calls; those from dumps have a time only."""
    return item.scheduled_ns or item.started_ns or 0, item.number


def _collective(process: Process, last: Collective, uses: StorageUses) -> r.LastCollective:
    """One collective, and what it worked on."""
    until = last.completed_ns or process.ended_mono_ns
    waited = (
        not last.progress_unknown and until is not None and last.scheduled_ns is not None and until >= last.scheduled_ns
    )
    return r.LastCollective(
        group=last.group,
        op=last.op,
        sequence_nr=last.sequence_nr,
        state=collective_state(process, last),
        sizes=list(last.sizes),
        dtypes=[last.dtype] if last.dtype else None,
        root=last.root,
        reduce_op=last.reduce_op,
        peer=last.peer,
        tag=last.tag,
        buffer=_buffer(uses.buffer_of(last)) or r.CollectiveBuffer(names=[]),
        output=_buffer(uses.buffer_of(last, output=True)),
        python=place_of(last),
        stream=hex_addr(last.stream) if last.stream is not None else None,
        cuda_graph=last.cuda_graph,
        waited_ns=until - last.scheduled_ns if waited and until is not None and last.scheduled_ns is not None else None,
    )


def _buffer(found: Buffer | None) -> r.CollectiveBuffer | None:
    if found is None:
        return None
    return r.CollectiveBuffer(
        addr=hex_addr(found.addr), names=list(found.names), bucket_index=found.bucket_index, what=found.what
    )


def fsdp_units(uses: StorageUses) -> list[r.FsdpUnit]:
    """Every FSDP unit in its last state."""
    return [
        r.FsdpUnit(
            module=unit.module,
            unit=unit.fqn,
            wrapper=unit.wrapper,
            state=state,
            world_size=unit.world_size,
            shard_rank=unit.shard_rank,
            replicas=unit.replicas or None,
            shard_addr=hex_addr(unit.shard_addr) if unit.shard_addr else None,
            parameters=[
                r.FsdpParameter(
                    fqn=item.fqn,
                    numel=item.numel,
                    shard_numel=item.shard_numel or None,
                    shard_addr=hex_addr(item.addr) if item.addr else None,
                )
                for item in unit.parameters
            ],
        )
        for unit, state in uses.fsdp.states()
    ]


def ddp_modules(uses: StorageUses) -> list[r.Ddp]:
    """The last bucket layout of each DDP module."""
    return [
        r.Ddp(
            module=layout.module,
            buckets=[
                r.DdpBucket(
                    index=bucket.index,
                    addr=hex_addr(bucket.addr),
                    nbytes=bucket.nbytes,
                    generation=layout.generation,
                    parameters=[item.fqn for item in bucket.parameters],
                )
                for bucket in layout.buckets
            ],
            has_rebuilt=layout.has_rebuilt,
            hook=uses.hooks.hooks.get(layout.module),
        )
        for layout in uses.ddp.last_layouts()
    ]
