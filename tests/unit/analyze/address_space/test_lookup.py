"""Addresses: the storage, its allocation lifetime, its name."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytracer.analyze.address_space.address_info import Place
from pytracer.analyze.address_space.lookup import AddressSpace
from pytracer.decode.recording.reader import read_box
from tests.support.synth import Box

BASE = 0x7F40_0000_0000
MIB = 1 << 20


def place(tmp_path: Path, box: Box, addr: int) -> Place:
    path = (
        box.at(500)
        .crash(addr=addr, mappings=[(0x5555_0000_0000, 0x5555_0000_1000, "r-xp", 0, "/bin/x")])
        .write(tmp_path / "node0.101.blackbox")
    )
    return AddressSpace(read_box(path)).describe(addr)


def test_live_storage_wins_over_freed_ones(tmp_path: Path) -> None:
    """The access was to the live storage there."""
    box = Box().freed(BASE, MIB).later(1).alloc(BASE, MIB)
    found = place(tmp_path, box, BASE + 8)
    assert (found.kind, found.found, found.offset_bytes) == ("in-storage", "exact", 8)


def test_most_recent_freed_storage_wins(tmp_path: Path) -> None:
    """Two lifetimes at one address: the later one was freed last."""
    box = Box().freed(BASE, MIB).later(1).freed(BASE, 2 * MIB)
    found = place(tmp_path, box, BASE + 8)
    assert found.kind == "freed-storage" and found.storage is not None and found.storage.nbytes == 2 * MIB


@pytest.mark.parametrize("life", [0, 1])
def test_bucket_name_belongs_to_the_life_it_was_recorded_in(tmp_path: Path, life: int) -> None:
    """The same address, first a bucket, then another storage: only the first lifetime has the name."""
    box = Box().alloc(BASE, MIB).later(1)
    box.buckets("model", [{"addr": BASE, "nbytes": MIB, "parameters": {"w": MIB}}], 0, rebuilt=False)
    box.later(1).free(BASE)
    if life == 1:
        box.later(1).freed(BASE, MIB)
    found = place(tmp_path, box, BASE + 8)
    assert found.kind == "freed-storage"
    assert (found.bucket is not None) == (life == 0)
    name = "DDP bucket 0 of model (generation 0)"
    assert (found.names, found.earlier) == (((name,), ()) if life == 0 else ((), (name,)))


def test_parameter_at_the_offset_is_named(tmp_path: Path) -> None:
    """The second parameter of the bucket begins at 1024."""
    box = Box().alloc(BASE, MIB).later(1)
    box.buckets("model", [{"addr": BASE, "nbytes": MIB, "parameters": {"w": 1024, "b": 64}}]).later(1).free(BASE)
    found = place(tmp_path, box, BASE + 1030)
    assert found.bucket is not None and (found.bucket.parameter, found.bucket.rebuilt) == ("b", False)


def test_bucket_replaced_long_ago_is_named_by_its_layout(tmp_path: Path) -> None:
    """Newer frees have overwritten the storage's record; the journal keeps the layouts."""
    box = Box().buckets("model", [{"addr": BASE, "nbytes": MIB, "parameters": {"w": MIB}}], 0, rebuilt=False)
    box.later(1).buckets("model", [{"addr": BASE + 8 * MIB, "nbytes": MIB, "parameters": {"w": MIB}}], 1, rebuilt=True)
    found = place(tmp_path, box, BASE + 8)
    assert (found.kind, found.found, found.offset_bytes) == ("freed-storage", "guessed", 8)
    assert found.bucket is not None and (found.bucket.generation, found.bucket.parameter) == (0, "w")


def test_bucket_in_use_is_not_called_freed(tmp_path: Path) -> None:
    """The last layout does not imply a release."""
    box = Box().buckets("model", [{"addr": BASE, "nbytes": MIB, "parameters": {"w": MIB}}], 0, rebuilt=False)
    assert place(tmp_path, box, BASE + 8).kind != "freed-storage"


def test_name_at_the_address_comes_first(tmp_path: Path) -> None:
    """Two tensors share a storage."""
    tensors = [
        {"fqn": "a", "role": "parameter", "addr": BASE, "nbytes": 256},
        {"fqn": "b", "role": "buffer", "addr": BASE + 256, "nbytes": 256},
    ]
    box = Box().alloc(BASE, 512).later(1).module("model", tensors)
    assert place(tmp_path, box, BASE + 300).names == ("buffer b", "parameter a")


def test_unmapped_is_said_only_when_the_map_is_known(tmp_path: Path) -> None:
    """No map, no SEGV_MAPERR: unknown."""
    path = Box().at(5).crash(addr=BASE, code=2).write(tmp_path / "node0.101.blackbox")
    assert AddressSpace(read_box(path)).describe(BASE).kind == "none"


@pytest.mark.parametrize(("addr", "kind"), [(0, "null"), (0x331, "near-null"), (1 << 50, "non-canonical")])
def test_addresses_that_need_no_storage(tmp_path: Path, addr: int, kind: str) -> None:
    """Null, close to it, and addresses that no x86-64 process can map."""
    assert place(tmp_path, Box(), addr).kind == kind
