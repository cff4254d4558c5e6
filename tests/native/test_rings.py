"""Rings of records and thread contexts."""

from __future__ import annotations

from collections import Counter

import pytest

from pytracer.decode.types.records import Text
from pytracer.decode.types.snapshot import Snapshot
from tests.conditions import needs_core
from tests.native.harness import Native

pytestmark = needs_core

RECORDS = 256  # per ring
CONTEXTS = 256


def marks(box: Snapshot) -> dict[int, list[tuple[int, int]]]:
    """Kernel thread to its marks (test thread, number), oldest first."""
    found: dict[int, list[tuple[int, int]]] = {}
    for event in box.events:
        assert isinstance(event.data, Text)
        thread, number = event.data.text.split()
        found.setdefault(event.tid, []).append((int(thread), int(number)))
    return found


@pytest.mark.parametrize(("threads", "count"), [(1, 1), (1, RECORDS), (1, RECORDS + 1), (1, 1000), (4, 20_000)])
def test_ring_keeps_the_last_records_of_its_own_thread_in_order(native: Native, threads: int, count: int) -> None:
    """A ring holds the last 256 records of one thread, oldest first, and never one of another thread."""
    box = native.box(f"t.testing_marks({threads}, U64({count}))")
    rings = marks(box)
    assert len(rings) == threads
    kept = range(max(0, count - RECORDS), count)
    assert sorted(rings.values()) == [[(thread, n) for n in kept] for thread in range(threads)]
    assert box.counts["overwritten_records"] == threads * max(0, count - RECORDS)
    assert box.counts["torn_records"] == 0


def test_threads_of_a_pool_get_contexts_when_they_start_together(native: Native) -> None:
    """Threads that begin at once, while the file grows, each get a context of their own, never a half-made one."""
    for threads in (100, 255):
        native.run = native.run.with_name(f"run-{threads}")
        box = native.box(f"t.testing_burst({threads}, U64(300))")
        assert sorted(marks(box).values()) == [[(thread, 0)] for thread in range(threads)]
        assert box.counts["threads_dropped"] == box.counts["dropped"] == 0


def test_threads_beyond_the_limit_are_counted_and_work(native: Native) -> None:
    """Of 300 threads that live at once, 256 have rings, 44 are counted; nothing crashes, no storage is lost."""
    box = native.box("t.testing_burst(300, U64(20))")
    rings = marks(box)
    assert len(rings) == CONTEXTS
    assert all(len(ring) == 1 for ring in rings.values())
    assert box.counts["threads_dropped"] == 300 - CONTEXTS
    assert box.counts["live_storages"] == 300 * 20


def test_threads_that_end_give_their_context_back(native: Native) -> None:
    """A thousand threads one after the other share the contexts of one chunk; none is dropped."""
    box = native.box("t.testing_threads_in_turn(1000)")
    assert box.counts["threads_dropped"] == 0
    assert box.counts["threads"] == 16
    owners = Counter(thread for ring in marks(box).values() for thread, _ in ring)
    assert sum(owners.values()) == 1000 and set(owners) == set(range(1000))


def test_records_of_an_earlier_thread_are_not_the_new_ones(native: Native) -> None:
    """A reused context keeps its old records; they belong to a thread whose identity is lost."""
    box = native.box("t.testing_threads_in_turn(1000)")
    rings = marks(box)
    last = rings.pop(0)
    assert sorted(thread for ring in rings.values() for thread, _ in ring) == list(range(1000 - 16, 1000))
    assert all(len(ring) == 1 for ring in rings.values())
    assert len(last) == 1000 - 16


def test_contexts_come_back_after_the_limit_was_reached(native: Native) -> None:
    """When 300 threads have ended, later threads get contexts again."""
    box = native.box("t.testing_burst(300, U64(1)); t.testing_threads_in_turn(50)")
    assert box.counts["threads_dropped"] == 300 - CONTEXTS
    assert len(box.events) == CONTEXTS + 50
