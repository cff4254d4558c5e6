"""The ring of collectives, and the process groups that ran them."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable

import msgspec

from pytracer.blackbox import schema
from pytracer.blackbox import structures as raw
from pytracer.blackbox.codec import decode, layout
from pytracer.blackbox.schema import CollectiveState, Region
from pytracer.decode.recording.file import BoxFile, Extent
from pytracer.decode.recording.journal import Journal
from pytracer.decode.types.devices import CudaStream
from pytracer.decode.types.journal import AnyFact, MadeGroup, select
from pytracer.decode.types.snapshot import Collective, CollectiveStateName, Event, Group, PythonFrame

_ORDER = struct.Struct("<I")
_PLACES = layout(schema.COLLECTIVE_SLOT).offsets
_GLANCE = struct.Struct(f"<IIQ{_PLACES['group_id'] - 16}xI{schema.COLLECTIVE_SLOT.nbytes - _PLACES['group_id'] - 4}x")
_STATES: dict[int, CollectiveStateName] = {
    CollectiveState.SCHEDULED: "scheduled",
    CollectiveState.STARTED: "started",
    CollectiveState.COMPLETED: "completed",
    CollectiveState.FAILED: "failed",
}
# c10d::ReduceOp::RedOpType (torch 2.13, Types.hpp).
_REDUCE_OPS = ("sum", "avg", "product", "min", "max", "band", "bor", "bxor", "premul_sum", "unused")
# c10::toString(ScalarType) -> the name that torch prints.
_DTYPES = {
    "byte": "uint8", "char": "int8", "short": "int16", "int": "int32", "long": "int64", "half": "float16",
    "float": "float32", "double": "float64", "complexhalf": "complex32", "complexfloat": "complex64",
    "complexdouble": "complex128",
}  # fmt: skip
# c10d's operators -> the functions that people call.
_OPS = {
    "allreduce": "all_reduce", "allreduce_coalesced": "all_reduce_coalesced", "allgather": "all_gather",
    "allgather_base": "all_gather_into_tensor", "allgather_coalesced": "all_gather_coalesced",
    "allgather_into_tensor_coalesced": "all_gather_into_tensor_coalesced", "reduce_scatter": "reduce_scatter",
    "reduce_scatter_base": "reduce_scatter_tensor",
    "reduce_scatter_tensor_coalesced": "reduce_scatter_tensor_coalesced", "alltoall": "all_to_all",
    "alltoall_base": "all_to_all_single", "recv_any_source": "recv",
}  # fmt: skip
_POINT_TO_POINT, _ASYNCHRONOUS = 1, 2


class Collectives:
    """Reads the ring; `items` are those that could be read, oldest first.

    With `most`, the last ones only, beside those that were not completed and the last one of each group.
    """

    def __init__(
        self,
        box: BoxFile,
        journal: Journal,
        facts: tuple[AnyFact, ...],
        most: int | None = None,
        streams: Iterable[CudaStream] = (),
    ) -> None:
        self.groups, self._seen = _groups(facts, journal)
        self._streams = {item.stream & 0xFFFFFFFF: item.stream for item in streams}  # a slot has room for half of it
        self._progress_ns = box.header.progress_ns
        self.torn = 0
        self.items: list[Collective] = []
        extent = box.region(Region.COLLECTIVES, schema.COLLECTIVE_SLOT.nbytes)
        if extent is not None:
            total = box.header.collectives
            for slot in range(extent.item_count) if most is None else _last_slots(box, extent, most):
                at = extent.offset + slot * extent.item_bytes
                (order,) = _ORDER.unpack_from(box.data, at)
                if order == 0:
                    self.torn += slot < total  # its writer died while filling it
                    continue
                c = decode(raw.CollectiveSlot, box.data, at)
                if c.number % (1 << 32) != order or (c.number - 1) % extent.declared_count != slot:
                    self.torn += 1
                    continue
                self.items.append(self._item(c, journal))
        self.items.sort(key=lambda item: item.number)

    def events(self) -> list[Event]:
        """One event per collective, at the time of its call."""
        return [
            Event(item.scheduled_ns, item.tid, "", "COLLECTIVE", item)
            for item in self.items
            if item.scheduled_ns is not None
        ]

    def _item(self, c: raw.CollectiveSlot, journal: Journal) -> Collective:
        site = journal.site(c.site_id, c.site_where)
        group = self._seen.get(c.group_id)
        reduce_op = c.reduce_op
        on_device = group is not None and "nccl" in (group.backend or "")
        is_open = c.state in (CollectiveState.SCHEDULED, CollectiveState.STARTED)
        return Collective(
            sequence_nr=c.sequence_nr,
            op=plain_op(c.name),
            backend=group.backend if group else c.name.partition(":")[0] if ":" in c.name else None,
            state=_STATES.get(c.state, "scheduled"),
            started_ns=_since_call(c, c.started_ns),
            completed_ns=_since_call(c, c.ended_ns),
            buffer_addr=c.buffer_addr or None,
            storage_addr=c.storage_addr or None,
            numel=c.numel,
            nbytes=c.nbytes,
            sizes=tuple(c.sizes[: min(c.dim_count, len(c.sizes))]),
            dtype=_dtype(c.dtype),
            tid=c.tid,
            number=c.number,
            group=group.name if group else None,
            scheduled_ns=c.scheduled_ns or None,
            root=c.root if c.root >= 0 else None,
            peer=c.peer if c.peer >= 0 else None,
            tag=c.tag if c.tag >= 0 else None,
            reduce_op=_REDUCE_OPS[reduce_op] if 0 <= reduce_op < len(_REDUCE_OPS) else None,
            point_to_point=bool(c.flags & _POINT_TO_POINT),
            async_op=bool(c.flags & _ASYNCHRONOUS),
            timeout_ms=c.timeout_ms if c.timeout_ms >= 0 else None,
            output_addr=c.output_addr or None,
            output_numel=c.output_numel or None,
            output_nbytes=c.output_nbytes or None,
            python=site.python,
            caller=site.caller,
            step=c.step if c.step >= 0 else None,
            scope=journal.scope(c.scope_id),
            epoch=c.epoch or None,
            output_storage_addr=c.output_storage_addr or None,
            progress_unknown=on_device and is_open and c.scheduled_ns >= self._progress_ns,
            stream=self._streams.get(c.stream) if on_device else None,
            cuda_graph=c.graph or None,
        )


def _since_call(c: raw.CollectiveSlot, time_ns: int) -> int | None:
    """A time before the call belongs to the slot's earlier collective, stored while the ring wrapped."""
    return time_ns if time_ns and time_ns >= c.scheduled_ns else None


def _last_slots(box: BoxFile, extent: Extent, most: int) -> list[int]:
    """Slots to read if only the last ones are wanted: all are examined, but little of each."""
    open_ones: list[tuple[int, int]] = []
    last_of_group: dict[int, tuple[int, int]] = {}
    wanted: set[int] = set()
    from_number = box.header.collectives - most
    for slot, (order, state, number, group) in enumerate(box.unpack(extent, _GLANCE)):
        if order == 0:
            continue
        if number > from_number:
            wanted.add(slot)
        elif state != CollectiveState.COMPLETED:
            open_ones.append((number, slot))
        last_of_group[group] = max(last_of_group.get(group, (0, 0)), (number, slot))
    return sorted({*wanted, *(slot for _, slot in sorted(open_ones)[-most:]), *(s for _, s in last_of_group.values())})


def plain_op(name: str) -> str:
    """`_allgather_base_` -> `all_gather_into_tensor`; a backend's prefix is left out."""
    plain = name.rpartition(":")[2].strip("_")
    return _OPS.get(plain, plain)


def _dtype(name: str) -> str | None:
    """torch's own name: `Float` -> `float32`, `BFloat16` -> `bfloat16`."""
    lower = name.lower()
    return _DTYPES.get(lower, lower) or None


def _groups(facts: tuple[AnyFact, ...], journal: Journal) -> tuple[tuple[Group, ...], dict[int, Group]]:
    """All groups in the order of creation, and those that ran something by the id of their entry."""
    made = _made(facts)
    by_name: dict[str, Group] = {}
    for index, (own, begun_ns) in enumerate(made):
        by_name[own.name if own.name is not None else f"(not a member, {index})"] = Group(
            name=own.name,
            description=own.description,
            backend=_backend(own.backend),
            size=len(own.ranks) if own.ranks is not None else None,
            own_rank=None,
            ranks=own.ranks,
            index=index,
            made_at=_line(own),
            begun_ns=begun_ns if own.begun else None,
        )
    seen: dict[int, Group] = {}
    for entry_id, data in journal.groups_seen():
        known = by_name.get(data.name)
        group = Group(
            name=data.name,
            description=known.description if known and known.description else data.description or None,
            backend=_backend(data.backend) or (known.backend if known else None),
            size=data.size,
            own_rank=data.rank,
            ranks=known.ranks if known else None,
            index=known.index if known else None,
            made_at=known.made_at if known else None,
        )
        seen[entry_id] = by_name[data.name] = group
    return tuple(sorted(by_name.values(), key=lambda g: (g.index is None, g.index or 0))), seen


def _made(facts: tuple[AnyFact, ...]) -> list[tuple[MadeGroup, int]]:
    """GROUP entries in the order of creation, with their time; of a group that was only begun, what was known then."""
    made: list[tuple[MadeGroup, int]] = []
    for fact in select(facts, MadeGroup):
        data = fact.data
        if made and made[-1][0].begun and data.ranks == made[-1][0].ranks:
            begun, _ = made.pop()
            data = msgspec.structs.replace(data, caller=begun.caller)
        made.append((data, fact.mono_ns))
    return made


def _line(made: MadeGroup) -> PythonFrame | None:
    caller = made.caller
    return PythonFrame(caller.function, caller.file, caller.line) if caller is not None else None


def _backend(name: str | None) -> str | None:
    """`cpu:gloo,cuda:nccl` stays."""
    return name if name is not None and re.fullmatch(r"[\w:,]{1,64}", name) and name != "undefined" else None
