"""Changes to inputs: bytes, fields of structures, values of JSON. Reproducible: all use one `random.Random`."""

from __future__ import annotations

import copy
import random
import struct
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from pytracer.blackbox import schema
from pytracer.blackbox import structures as raw
from pytracer.blackbox.codec import decode, layout

Field = tuple[int, int]  # offset, bytes
NUMBERS = (
    0, 1, 2, 3, 7, 8, 63, 64, 255, 256, 4095, 4096, 65535, 1 << 16, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32,
    (1 << 48) - 1, (1 << 63) - 1, 1 << 63, (1 << 64) - 1, (1 << 64) - 8,
)  # fmt: skip
WORDS = (
    "", "\0", "a" * 300, "\ud800", "\x1b[31m", "..", "/proc/self/mem", "/dev/zero", "%h%p%a%s{}", "\u202e", "1" * 30,
    "_ZN1a1bEv", "9" * 5000, "NaN", "-1", "[0, 1]", "all_reduce", "nccl:send 1->2", "oom-kill:,pid=1", "a/" * 200,
)  # fmt: skip
VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 10**18, -(10**18), 2**63, 2**64, 10**30, 0.5, 1e308, -1e308, [], {}, [[]], [None], "",
    {"": None}, [1] * 2000, [0, 1], [10**18], {"ranks": "[0]"},
)  # fmt: skip
_MOST_PLACES = 20_000
STRUCTS: dict[int, schema.Struct] = {
    schema.Region.EPOCHS: schema.EPOCH, schema.Region.THREADS: schema.THREAD,
    schema.Region.FREED_STORAGES: schema.STORAGE_LIFETIME,
    schema.Region.STORAGES: schema.LIVE_STORAGE, schema.Region.COLLECTIVES: schema.COLLECTIVE_SLOT,
    schema.Region.SCOPED_TENSORS: schema.SCOPED_TENSOR, schema.Region.EXTERNAL_ALLOCATIONS: schema.EXTERNAL_ALLOCATION,
    schema.Region.DEVICE_BLOCKS: schema.DEVICE_BLOCK, schema.Region.DEVICE_FREED: schema.DEVICE_BLOCK,
    schema.Region.DEVICE_SEGMENTS: schema.DEVICE_SEGMENT, schema.Region.CUDA_GRAPHS: schema.CUDA_GRAPH,
    schema.Region.GRAPH_INPUTS: schema.GRAPH_INPUT, schema.Region.CUDA_STREAMS: schema.CUDA_STREAM,
    schema.Region.GUARD: schema.GUARD_REGION, schema.Region.GUARDED: schema.GUARDED_STORAGE,
    schema.Region.NAMES: schema.NAME_SLOT, schema.Region.RECORDS: schema.RECORD_HEADER,
    **{int(kind): item for kind, item, _ in schema.CRASH_REGIONS if item is not None},
}  # fmt: skip
_PAYLOADS: dict[int, schema.Struct] = {
    schema.Entry.CODE: schema.CODE_ENTRY, schema.Entry.SITE: schema.SITE_ENTRY, schema.Entry.STACK: schema.STACK_ENTRY,
    schema.Entry.WAIT: schema.WAIT_ENTRY, schema.Entry.GROUP_SEEN: schema.GROUP_ENTRY,
    schema.Entry.CPP_EXCEPTION: schema.CPP_EXCEPTION_ENTRY, schema.Entry.SIGNAL_SEEN: schema.SIGNAL_ENTRY,
    schema.Entry.DEVICE_OOM: schema.DEVICE_OOM_ENTRY, schema.Entry.GUARD_DAMAGE: schema.GUARDED_STORAGE,
}  # fmt: skip


def box_fields(box: bytes) -> list[Field]:
    """The offsets of the fields of a good recording: header, directory, journal entries, used items of each region."""
    found = fields_of(schema.FILE_HEADER, 8)
    (count,) = struct.unpack_from("<I", box, layout(schema.FILE_HEADER).offsets["region_count"])
    for number in range(count):
        at = schema.FILE_HEADER.nbytes + number * schema.REGION_ENTRY.nbytes
        found += fields_of(schema.REGION_ENTRY, at) * 3
        entry = decode(raw.RegionEntry, box, at)
        item, offset = entry.item_bytes, entry.offset
        if entry.kind == schema.Region.JOURNAL:
            found += _journal_fields(box, offset + schema.JOURNAL_FIRST)
        elif entry.kind in STRUCTS:
            used = [at for at in range(offset, offset + entry.nbytes, item) if any(box[at : at + 32])]
            for at in used[:40]:
                found += fields_of(STRUCTS[entry.kind], at)
        else:
            found += [(offset + 4 * word, 4) for word in range(min(64, entry.nbytes // 4))]
    return [(at, nbytes) for at, nbytes in found if at + nbytes <= len(box)]


def fields_of(definition: schema.Struct, at: int) -> list[Field]:
    """The fields of one structure; of arrays the first bytes."""
    offsets = sorted({*layout(definition).offsets.values(), definition.nbytes})
    sizes = [min(8, end - begin) for begin, end in pairwise(offsets)]
    return [(at + begin, nbytes) for begin, nbytes in zip(offsets, sizes, strict=False)]


def _journal_fields(box: bytes, at: int) -> list[Field]:
    found: list[Field] = []
    while struct.unpack_from("<H", box, at)[0] == schema.JOURNAL_MAGIC:
        kind, nbytes = struct.unpack_from("<HI", box, at + 2)
        header = layout(schema.ENTRY_HEADER)
        found += fields_of(schema.ENTRY_HEADER, at)
        if kind in _PAYLOADS:
            found += fields_of(_PAYLOADS[kind], at + header.nbytes) * 2
        found += [(at + header.nbytes + i, 1) for i in range(0, nbytes - header.nbytes, 7)]
        at += nbytes + -nbytes % 8
    return found


def elf_fields(content: bytes) -> list[Field]:
    """The header, all section headers, and the words between them."""
    offset, count = struct.unpack_from("<Q", content, 40)[0], struct.unpack_from("<H", content, 60)[0]
    found: list[Field] = [(16, 2), (18, 2), (32, 8), (40, 8), (54, 2), (56, 2), (58, 2), (60, 2), (62, 2)]
    for number in range(count):
        at = offset + number * 64
        found += [(at, 4), (at + 4, 4), (at + 8, 8), *((at + 16 + 8 * i, 8) for i in range(3))]
        found += [(at + 40, 4), (at + 44, 4), (at + 48, 8), (at + 56, 8)]
    return [*found * 2, *((at, 4) for at in range(64, offset, 4))]


def changed_fields(rng: random.Random, content: bytes, fields: Sequence[Field]) -> bytes:
    """A few fields get interesting numbers, others' values, or values near their own."""
    out = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 3, 8, 30))):
        at, nbytes = rng.choice(fields)
        old = int.from_bytes(out[at : at + nbytes], "little")
        other = rng.choice(fields)
        new = rng.choice(
            (
                rng.choice(NUMBERS), old + rng.choice((-8, -1, 1, 8, 64)), old * 2,
                old ^ 1 << rng.randrange(8 * nbytes), len(content) - rng.randrange(80), rng.getrandbits(8 * nbytes),
                int.from_bytes(out[other[0] : other[0] + other[1]], "little"),
            )
        )  # fmt: skip
        out[at : at + nbytes] = (new % (1 << 8 * nbytes)).to_bytes(nbytes, "little")
    return bytes(out[: len(content)])


def changed_bytes(rng: random.Random, content: bytes) -> bytes:
    """Bytes changed, cut, doubled, moved, anywhere."""
    out = bytearray(content)
    for _ in range(rng.choice((1, 2, 5))):
        at, nbytes = rng.randrange(len(out) + 1), rng.choice((1, 2, 4, 8, 64, 4096))
        how = rng.randrange(6)
        if how == 0:
            out[at : at + 1] = rng.randbytes(1)
        elif how == 1:
            del out[at:]
        elif how == 2:
            del out[at : at + nbytes]
        elif how == 3:
            out[at:at] = out[at : at + nbytes] * rng.choice((1, 2, 50))
        elif how == 4:
            source = rng.randrange(len(out) + 1)
            part = out[source : source + nbytes]
            out[at : at + len(part)] = part
        else:
            out[at : at + nbytes] = rng.choice((b"\0", b"\xff", b"\x7f", b"E", b"\n")) * min(nbytes, 64)
        if not out:
            break
    return bytes(out[: 1 << 20])


def changed_json(rng: random.Random, value: Any) -> Any:
    """Some values of a tree are replaced; keys are removed, duplicated, renamed."""
    tree = copy.deepcopy(value)
    for _ in range(rng.choice((1, 1, 2, 4, 10))):
        places = list(_places(tree))
        if not places or len(places) > _MOST_PLACES:  # a tree that was put into itself a few times
            break
        holder, key = rng.choice(places)
        how = rng.randrange(8)
        if how == 0:
            del holder[key]
        elif how == 1 and isinstance(holder, dict):
            holder[rng.choice(WORDS)] = holder.pop(key)
        elif how == 2 and isinstance(holder, list):
            holder += [holder[key]] * rng.choice((1, 5, 300))
        elif how == 3:
            other, at = rng.choice(places)
            if (isinstance(other, list) and at >= len(other)) or (isinstance(other, dict) and at not in other):
                continue
            holder[key] = copy.deepcopy(other[at])
        elif how == 4 and type(holder[key]) is int:
            holder[key] += rng.choice((-1, 1, -(10**12), 10**12))
        elif how == 5:
            holder[key] = rng.choice(WORDS)
        else:
            holder[key] = copy.deepcopy(rng.choice(VALUES))
    return tree


def _places(value: Any) -> Any:
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield value, key
        yield from _places(value[key])
