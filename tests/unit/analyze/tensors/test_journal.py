"""What was recorded about addresses, by the storage that they lie in."""

from __future__ import annotations

from pytracer.analyze.tensors.journal import ByAddress, Lives
from pytracer.decode.types.snapshot import CallSite, Moment, Storage
from pytracer.decode.types.storage_table import StorageTable


def storage(base: int, nbytes: int, allocated: int = 1, freed: int | None = None) -> Storage:
    end = Moment(freed, None, None) if freed is not None else None
    return Storage(base, nbytes, "freed" if end else "live", Moment(allocated, None, None), CallSite(), None, freed=end)


def test_items_of_a_storage_come_in_the_order_of_the_recording() -> None:
    """Not by address; its end is outside, and another storage's items are not its own."""
    items = ByAddress([(300, "a"), (100, "b"), (199, "c"), (100, "d"), (200, "e"), (99, "f")])
    assert items.within(storage(100, 100)) == ["b", "c", "d"]
    assert items.within(storage(300, 0)) == ["a"], "a storage without bytes has its first address"
    assert items.within(storage(400, 100)) == []


def test_an_entry_of_the_epoch_of_an_allocation_is_about_the_storage_before() -> None:
    """Only where the table has none that lived then, the epoch was too coarse to tell them apart."""
    before, after = storage(100, 8, allocated=1, freed=5), storage(100, 8, allocated=5)
    both, alone = Lives(StorageTable.of(before, after)), Lives(StorageTable.of(after))
    assert (both.include(before, 5), both.include(after, 5), alone.include(after, 5)) == (True, False, True)
    assert not alone.include(after, 4)
