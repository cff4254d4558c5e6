"""Origins of a storage's memory: how the reader decodes them, and how an address is explained."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytracer.analyze.address_space.address_info import Place
from pytracer.analyze.address_space.lookup import AddressSpace
from pytracer.analyze.tensors.origins import lost_storages, origin_kind
from pytracer.decode.recording.reader import read_box
from pytracer.decode.types.snapshot import Snapshot
from tests.support.synth import Box
from tests.support.synth_external import foreign, slot

BASE, MIB = 0x7F00_0000_0000, 1 << 20
SHARED, MAPPED, NUMPY, BLOB = 16, 17, 18, 21
MAPS = ((BASE, BASE + MIB, "rw-p", 0, ""),)


def read(directory: Path, box: Box) -> Snapshot:
    return read_box(box.write(directory / "node0.101.blackbox"))


def place(directory: Path, box: Box, addr: int, maps: tuple[tuple[int, int, str, int, str], ...] = ()) -> Place:
    """What `addr` was in a recording whose process crashed there."""
    box.at(500).crash(addr=addr, code=2 if maps else 1, mappings=maps)
    return AddressSpace(read(directory, box)).describe(addr)


@pytest.mark.parametrize(
    ("number", "kind"),
    [(16, "shared-memory"), (17, "mapped-file"), (18, "numpy"), (19, "buffer"), (20, "dlpack"), (21, "blob")],
)
def test_origin_is_named(tmp_path: Path, number: int, kind: str) -> None:
    """Each number of a slot has its name."""
    found = place(tmp_path, foreign(Box(), slot(BASE, 4096, number, file="/data/x", offset=64)), BASE + 8, MAPS)
    assert (found.kind, found.offset_bytes) == ("in-storage", 8)
    assert found.storage is not None and origin_kind(found.storage) == kind
    assert (found.storage.file, found.storage.file_offset) == ("/data/x", 64)


def test_origin_of_a_newer_recorder_is_unknown(tmp_path: Path) -> None:
    """A number that this reader does not know is no reason to leave the storage out."""
    (storage,) = read(tmp_path, foreign(Box(), slot(BASE, 64, 99))).storages
    assert (storage.origin, origin_kind(storage)) == (None, None)


def test_half_written_slot_is_counted(tmp_path: Path) -> None:
    """Its writer died: there is no storage."""
    box = read(tmp_path, foreign(Box(), slot(BASE, 64, NUMPY, "busy"), slot(BASE, 128, NUMPY)))
    assert [s.nbytes for s in box.storages] == [128]
    assert box.counts["busy_foreign"] == 1


def test_owner_comes_before_who_borrows_from_it(tmp_path: Path) -> None:
    """A tensor from_blob over a part of another tensor: the address is the owner's."""
    box = Box().alloc(BASE, 4096).later(1)
    found = place(tmp_path, foreign(box, slot(BASE, 1024, BLOB, epochs=(9, 9))), BASE + 8, MAPS)
    assert found.storage is not None and found.storage.nbytes == 4096


def test_memory_that_its_owner_kept_is_not_called_freed(tmp_path: Path) -> None:
    """The storage of a NumPy array ended; the array remains, and a fault in it is no use after free."""
    found = place(tmp_path, foreign(Box(), slot(BASE, 4096, NUMPY, "freed")), BASE + 8, MAPS)
    assert found.kind != "freed-storage"


def test_memory_that_went_with_its_storage_is_called_freed(tmp_path: Path) -> None:
    """Nothing is mapped there: array and storage are both freed."""
    found = place(tmp_path, foreign(Box(), slot(BASE, 4096, NUMPY, "freed")), BASE + 8)
    assert found.kind == "freed-storage"


def test_freed_shared_memory_is_freed_whatever_is_mapped_there_now(tmp_path: Path) -> None:
    """It was torch's own mapping: what is there now has another owner."""
    found = place(tmp_path, foreign(Box(), slot(BASE, 4096, SHARED, "freed")), BASE + 8, MAPS)
    assert found.kind == "freed-storage"


def test_torch_load_is_told_by_its_frame(tmp_path: Path) -> None:
    """torch.load allocates from the ordinary allocator."""
    box = Box().alloc(BASE, 64, by=("load_tensor", "/x/site-packages/torch/serialization.py", 7))
    box.alloc(BASE + 64, 64, by=("train", "train.py", 7))
    assert [origin_kind(s) for s in read(tmp_path, box).storages] == ["torch-load", "cpu-allocator"]


def test_older_storages_say_so(tmp_path: Path) -> None:
    """A flag in the slot: the time of its allocation is unknown."""
    storages = read(tmp_path, foreign(Box(), slot(BASE, 64, NUMPY, flags=1), slot(BASE, 65, NUMPY))).storages
    assert [s.older for s in storages] == [True, False]


def test_lost_storages_are_told(tmp_path: Path) -> None:
    """Where tables were too small, "unknown" may be due to that."""
    box = read(tmp_path, Box())
    assert lost_storages(box.counts) == []
    box.counts["storages_dropped"], box.counts["foreign_dropped"] = 3, 4
    assert lost_storages(box.counts) == [
        "3 storages found no room in the table of live storages: an address that is unknown may lie in one of them",
        "4 storages of foreign memory found no room in their table: an address that is unknown may lie in one of them",
    ]
