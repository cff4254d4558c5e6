"""What DDP or FSDP used a storage for, and the collectives of a process with their buffers, as lines of text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.text import Text

from pytracer._text import count_words, size_words
from pytracer.report import job as r

PARAMETERS = 3
_STATES = {"receive begun": "completed here; its receiver had begun to receive, and not waited"}


def cut(items: Sequence[str], limit: int = PARAMETERS) -> str:
    """The first ones, and how many more there are."""
    more = f" and {len(items) - limit} more" if len(items) > limit else ""
    return ", ".join(items[:limit]) + more


def add_use(text: Text, names: list[str], bucket: r.Bucket | None, unit: r.Fsdp | None) -> None:
    """Lines for the DDP bucket or the FSDP unit that a storage was, else for its names."""
    if bucket is not None:
        title = f"DDP bucket {bucket.index} of {bucket.module} (generation {bucket.generation}"
        _add_group(text, title, bucket.parameters or [], bucket.parameter)
    elif unit is not None:
        _add_unit(text, unit, names)
    elif names:
        text.append(f"\nholds {cut(names)}")


def _add_group(text: Text, title: str, parameters: list[str], here: str | None) -> None:
    text.append(f"\nwas {title}, {count_words(len(parameters), 'parameter')})")
    if here:
        text.append(f"; here: {here}")
    others = [name for name in parameters if name != here]
    if others:
        text.append(f"\n{'with' if here else 'of'} {cut(others)}", style="dim")


def _add_unit(text: Text, unit: r.Fsdp, names: list[str]) -> None:
    name = next((item for item in names if "FSDP unit" in item), unit.what or "a buffer of FSDP's")
    text.append(f"\nwas {name} ({unit.wrapper or 'FSDP'})")
    if unit.parameter and unit.parameter_offset_bytes is not None:
        rank = unit.shard_of_rank
        shard = f" of rank {rank}'s shard" if rank is not None and unit.what != "local-shard" else ""
        here = f" {unit.parameter}," if unit.parameter not in name else ""
        text.append(f"; here:{here} byte {unit.parameter_offset_bytes}{shard}")
    if unit.state:
        text.append(f"\nthe unit was {unit.state} at the end")


def buffer_lines(process: r.ProcessReport) -> Iterator[str]:
    """The last collective of each operation: its number, its state, and what its buffers are."""
    for item in process.recent_collectives or []:
        shape = f"{(item.dtypes or ['?'])[0]} [{', '.join(str(size) for size in item.sizes or [])}]"
        state = _STATES.get(item.state or "", item.state)
        line = f"{item.op} #{item.sequence_nr} of group {item.group}: {state}, {shape}"
        into = f" into {item.output.what}" if item.output is not None and item.output.what else ""
        what = item.buffer.what if item.buffer is not None else None
        yield f"{line}, {what or 'a buffer of which nothing is known'}{into}"


def unit_lines(process: r.ProcessReport) -> Iterator[str]:
    """Every FSDP unit: sharded or not, over how many ranks, and its parameters."""
    for unit in process.fsdp or []:
        over = f"over {count_words(unit.world_size or 0, 'rank')}"
        replicas = f", {unit.replicas} replicas" if (unit.replicas or 1) > 1 else ""
        parameters = [item.fqn or "?" for item in unit.parameters or []]
        name = f"{unit.unit or '(root)'} of {unit.module} ({unit.wrapper})"
        yield f"{name} {over}{replicas}: {unit.state or 'state unknown'}; {cut(parameters)}"


def bucket_lines(process: r.ProcessReport) -> Iterator[str]:
    """Every DDP bucket, as last seen."""
    for module in process.ddp or []:
        hook = f", communication hook {module.hook}" if module.hook else ""
        for bucket in module.buckets or []:
            size = size_words(bucket.nbytes or 0)
            where = f"{size} at {bucket.addr}, generation {bucket.generation}{hook}"
            yield f"bucket {bucket.index} of {module.module}: {where}; {cut(bucket.parameters or [])}"
