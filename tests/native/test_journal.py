"""The journal: entries are never overwritten."""

from __future__ import annotations

from pytracer.blackbox.schema import JOURNAL_BYTES
from pytracer.decode.recording.file import BoxFile
from pytracer.decode.recording.journal import Journal
from tests.conditions import needs_core
from tests.native.harness import Native

pytestmark = needs_core

APPEND = """
ids = (ctypes.c_uint32 * ({threads} * {count}))()
t.testing_journal({threads}, {count}, {nbytes}, ids)
print(*ids)
"""


def append(native: Native, threads: int, count: int, nbytes: int) -> tuple[list[int], Journal, dict[str, int]]:
    """The ids that the child got, the journal, and the recording's counts."""
    done = native.child(APPEND.format(threads=threads, count=count, nbytes=nbytes))
    assert done.status == 0, done.stderr
    box = done.box
    assert box.damage == ()
    return [int(word) for word in done.stdout.split()], Journal(BoxFile(box.path)), box.counts


def test_concurrent_entries_are_all_there_under_their_ids(native: Native) -> None:
    """Four threads append at once: every entry is whole and has the id that its writer got."""
    threads, count = 4, 3000
    ids, journal, counts = append(native, threads, count, 40)
    assert len(set(ids)) == len(ids)
    for i, number in enumerate(ids):
        thread, n = divmod(i, count)
        text = f"{thread} {n} "
        assert journal.entries[number * 8].payload == text.encode().ljust(40, b"abcd"[thread : thread + 1])
    assert counts["torn_entries"] == counts["journal_dropped"] == 0


def test_full_journal_keeps_what_fitted_and_counts_the_rest(native: Native) -> None:
    """What does not fit has id 0 and is counted; every entry that got an id is there."""
    threads, count, nbytes = 4, 1000, 1000
    ids, journal, counts = append(native, threads, count, nbytes)
    kept = [number for number in ids if number]
    assert counts["journal_dropped"] == threads * count - len(kept) > 0
    assert all(len(journal.entries[number * 8].payload) == nbytes for number in kept)
    assert len(kept) * (nbytes + 24) > JOURNAL_BYTES * 0.98
    assert counts["torn_entries"] == 0


def test_short_entries_still_fit_when_a_long_one_does_not(native: Native) -> None:
    """A full journal refuses only entries that do not fit: it is used up to the last 40 bytes."""
    box = native.box("""
ids = (ctypes.c_uint32 * 3000)()
for nbytes in (1000, 200, 16):
    t.testing_journal(1, 3000, nbytes, ids)
""")
    used = BoxFile(box.path).header.journal_used
    assert JOURNAL_BYTES - 40 < used <= JOURNAL_BYTES
    assert box.damage == ()
