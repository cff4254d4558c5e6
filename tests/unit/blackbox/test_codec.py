"""The codec and the schema, against natural C layout and against hand-written literals."""

from __future__ import annotations

import ctypes
import struct
from enum import IntEnum
from typing import Any

import msgspec
import pytest

from pytracer.blackbox import schema, structures
from pytracer.blackbox.codec import decode, layout, split_type

C_TYPES: dict[str, Any] = {
    "u8": ctypes.c_uint8,
    "u16": ctypes.c_uint16,
    "u32": ctypes.c_uint32,
    "u64": ctypes.c_uint64,
    "i32": ctypes.c_int32,
    "i64": ctypes.c_int64,
    "char": ctypes.c_char,
}

BY_NAME = {definition.name: definition for definition in schema.STRUCTS}

# Typed by hand, as the synthetic recordings of tests/support/synth.py pack them: a second opinion.
OFFSETS = {
    ("FileHeader", "state"): 16,
    ("FileHeader", "start_ticks"): 40,
    ("FileHeader", "created_mono_ns"): 48,
    ("FileHeader", "exit_code"): 72,
    ("FileHeader", "region_count"): 76,
    ("FileHeader", "journal_used"): 80,
    ("FileHeader", "boot_id"): 176,
    ("FileHeader", "host"): 216,
    ("FileHeader", "epoch"): 320,
    ("RegionEntry", "first_thread"): 32,
    ("ThreadHead", "record_count"): 32,
    ("ThreadHead", "generation"): 76,
    ("Epoch", "mono_ns"): 8,
    ("LiveStorage", "sequence"): 28,
    ("StorageLifetime", "order"): 16,
    ("StorageLifetime", "free_site_id"): 32,
    ("StorageLifetime", "free_sequence"): 52,
    ("RecordHeader", "mono_ns"): 8,
    ("NodeRecord", "storages"): 72,
    ("CollectiveSlot", "name"): 56,
    ("CollectiveSlot", "sizes"): 192,
    ("CollectiveSlot", "step"): 224,
    ("EntryHeader", "published"): 20,
    ("CodeEntry", "table_nbytes"): 16,
    ("CrashHeader", "registers"): 176,
    ("CrashHeader", "pc"): 448,
    ("CrashHeader", "code_bytes"): 528,
    ("CrashHeader", "node_name"): 568,
    ("CrashHeader", "native_count"): 680,
    ("CrashHeader", "siginfo"): 736,
    ("PythonFrame", "file_kind"): 44,
    ("Image", "build_id"): 32,
    ("StorageHit", "lifetime"): 16,
    ("AlsoCrashed", "fault_addr"): 24,
}


def _c_structure(definition: schema.Struct) -> type[ctypes.Structure]:
    fields: list[tuple[str, Any]] = []
    for field in definition.fields:
        kind, count = split_type(field.type)
        fields.append((field.name, C_TYPES[kind] * count if count else C_TYPES[kind]))
    return type(definition.name, (ctypes.Structure,), {"_fields_": fields})


@pytest.mark.parametrize("definition", schema.STRUCTS, ids=lambda d: d.name)
def test_c_compiler_would_add_no_padding(definition: schema.Struct) -> None:
    """Every structure has its declared size in C, and each field is where the codec reads it."""
    c = _c_structure(definition)
    assert ctypes.sizeof(c) == definition.nbytes == layout(definition).nbytes
    assert {f.name: getattr(c, f.name).offset for f in definition.fields} == layout(definition).offsets


@pytest.mark.parametrize(("name", "field"), OFFSETS, ids=lambda v: v)
def test_fields_lie_where_the_hand_typed_table_says(name: str, field: str) -> None:
    """A moved field changes the format even when the schema stays consistent with itself."""
    assert layout(BY_NAME[name]).offsets[field] == OFFSETS[name, field]


def test_numbers_are_used_once() -> None:
    """Within a family, no two names share a number."""
    for family in (schema.State, schema.Region, schema.Record, schema.Entry, schema.Step, schema.CrashState):
        assert len({m.value for m in family}) == len(family.__members__)


def test_payloads_fit_into_a_record() -> None:
    """Header and largest payload fill a ring slot at most."""
    largest = max(d.nbytes for d in schema.RECORD_PAYLOAD.values())
    assert schema.RECORD_HEADER.nbytes + largest <= schema.RECORD_BYTES


def test_text_ends_at_the_first_nul_and_bad_bytes_are_marked() -> None:
    """`char[N]` decodes to the text before the padding; invalid UTF-8 becomes U+FFFD."""
    decoded = decode(structures.TextRecord, b"a\xffb\0rest".ljust(112, b"x"))
    assert decoded.text == "a\ufffdb"


def test_arrays_are_tuples_and_byte_arrays_bytes() -> None:
    """`u64[5]` decodes to five numbers, `u8[32]` to 32 bytes."""
    packed = struct.pack("<48sqIIQ5Q", b"n", -1, 2, 0, 0, 2, 3, 4, 5, 6)
    node = decode(structures.NodeRecord, packed)
    assert (node.sequence_nr, node.storages) == (-1, (2, 3, 4, 5, 6))
    assert decode(structures.CrashHeader, bytes(1024)).code_bytes == bytes(32)


def test_short_input_is_refused() -> None:
    """Decoding never reads past the end."""
    with pytest.raises(struct.error):
        decode(structures.StorageLifetime, bytes(63))


@pytest.mark.parametrize("definition", schema.STRUCTS, ids=lambda item: item.name)
def test_structure_has_the_fields_of_its_definition(definition: schema.Struct) -> None:
    """In order, so that values need no names."""
    kind = getattr(structures, definition.name)
    assert kind.__struct_fields__ == tuple(field.name for field in definition.fields)
    assert isinstance(decode(kind, bytes(definition.nbytes)), kind)


@pytest.mark.parametrize("definition", schema.STRUCTS, ids=lambda item: item.name)
def test_single_number_is_that_of_the_whole_structure(definition: schema.Struct) -> None:
    """Each field by its name, signed or not."""
    data = bytes(range(3)) + bytes(255 - i % 256 for i in range(definition.nbytes))
    whole = decode(getattr(structures, definition.name), data, 3)
    for name, value in msgspec.structs.asdict(whole).items():
        if isinstance(value, int):
            assert layout(definition).number(name, data, 3) == value


def test_no_number_of_the_schema_is_used_twice() -> None:
    """Python makes the second name of a number an alias of the first one, without a word."""
    enums = [item for item in vars(schema).values() if isinstance(item, type) and issubclass(item, IntEnum)]
    assert [name for enum in enums for name in enum.__members__ if enum[name].name != name] == []
