"""The table of live storages and the freed-storage rings, under load."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from pytracer.blackbox.note_codes import NoteCode
from pytracer.blackbox.schema import LIVE_STORAGE, Region
from pytracer.decode.recording.file import BoxFile
from pytracer.decode.recording.reader import read_box
from pytracer.decode.types.snapshot import Snapshot
from tests.conditions import needs_core
from tests.native.harness import Native, base_of, inconsistent, life_of, size_of, thread_of

pytestmark = needs_core

FREED_STORAGES = 512  # per thread and kind of size


def live(box: Snapshot) -> dict[int, int]:
    """Base to size of the live storages; each base once."""
    found = [s for s in box.storages if s.state == "live"]
    assert len({s.base for s in found}) == len(found)
    return {s.base: s.nbytes for s in found}


def tiers(box: Snapshot) -> int:
    return len(BoxFile(box.path).regions(Region.STORAGES, LIVE_STORAGE.nbytes))


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_every_live_storage_is_found_and_none_invented(native: Native, threads: int) -> None:
    """The recording has every storage that was not freed, with its own size, thread and origin, and no others."""
    box = native.box(f"""
t.testing_hold({threads}, 0, U64(3000), 0)
t.testing_hold({threads}, 16, U64(300), 1)
t.testing_let_go({threads}, 0, U64(1000), 0)
""")
    expected = {base_of(th, i, False): size_of(th, i, False) for th in range(threads) for i in range(1000, 3000)}
    expected |= {base_of(16 + th, i, True): size_of(16 + th, i, True) for th in range(threads) for i in range(300)}
    assert live(box) == expected
    assert inconsistent(box.storages) == []
    assert box.counts["dropped"] == box.counts["unknown_frees"] == box.counts["stale_storages"] == 0
    by_tid = {(s.allocated_thread, thread_of(s)) for s in box.storages if s.state == "live"}
    assert len(by_tid) == len({tid for tid, _ in by_tid}) == 2 * threads


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_freed_storage_rings_hold_the_last_lifetimes_of_each_thread_in_order(native: Native, threads: int) -> None:
    """Of each thread the last 512 small and 512 large lifetimes are kept; epoch and sequence give their order."""
    lives = 20_000
    box = native.box(f"t.testing_churn({threads}, U64({lives}), 8, 0); t.testing_churn({threads}, U64({lives}), 8, 1)")
    freed = [s for s in box.storages if s.state == "freed"]
    assert live(box) == {}
    assert inconsistent(box.storages) == []
    for thread in range(threads):
        for large in (False, True):
            own = [s for s in freed if thread_of(s) == thread and bool(s.nbytes >> 40) == large]
            own.sort(key=lambda s: s.order)
            modulo = lives if large else 8000
            assert [life_of(s) for s in own] == [n % modulo for n in range(lives - FREED_STORAGES, lives)]
            assert len({s.freed_thread for s in own}) == 1
            assert [s.allocated.epoch for s in own] == sorted(s.allocated.epoch for s in own)
    assert box.counts["dropped"] == box.counts["torn_graves"] == 0


def test_large_freed_storages_survive_any_number_of_small_ones(native: Native) -> None:
    """Small churn does not push a large freed storage out of its ring."""
    box = native.box("""
t.testing_allocate(U64(0x500080000000), U64(1 << 40))
t.testing_release(U64(0x500080000000), U64(1 << 40))
for i in range(2000):
    t.testing_allocate(U64(0x500000000000), U64(1))
    t.testing_release(U64(0x500000000000), U64(1))
""")
    assert [s.nbytes for s in box.storages if s.base == 0x500080000000] == [1 << 40]
    assert len(box.storages) == FREED_STORAGES + 1


def test_life_that_moves_between_threads_names_both(native: Native) -> None:
    """Allocated on one thread and freed on another, a lifetime has the right thread at each end, and none is lost."""
    box = native.box("t.testing_hand_over(U64(20000))")
    freed = sorted((s for s in box.storages if s.state == "freed"), key=lambda s: s.order)
    assert [life_of(s) for s in freed] == list(range(20000 - FREED_STORAGES, 20000))
    assert inconsistent(box.storages) == []
    assert len({(s.allocated_thread, s.freed_thread) for s in freed}) == 1
    assert all(s.allocated_thread != s.freed_thread for s in freed)
    assert live(box) == {} and box.counts["unknown_frees"] == 0


@pytest.mark.parametrize(
    "work",
    ["t.testing_hold(4, 0, U64(50000), 0)", "t.testing_hold(1, 0, U64(200000), 0)", "t.testing_burst(200, U64(1000))"],
)
@pytest.mark.quick(1)
def test_table_grows_and_loses_nothing(native: Native, work: str) -> None:
    """200 000 live storages, by four threads, by one, by two hundred at once: a tier is added, all are found."""
    box = native.box(work)
    assert len(live(box)) == 200_000
    assert inconsistent(box.storages) == []
    assert tiers(box) == 2
    assert box.counts["dropped"] == 0


def test_frees_find_storages_of_every_tier(native: Native) -> None:
    """Storages of the first tier are still found after the table has grown."""
    box = native.box("t.testing_hold(4, 0, U64(30000), 0); t.testing_let_go(4, 0, U64(30000), 0)")
    assert tiers(box) == 2
    assert live(box) == {}
    assert box.counts["unknown_frees"] == box.counts["dropped"] == 0


def test_blocks_that_overlap_in_the_table_do_not_crowd_each_other_out(native: Native) -> None:
    """Neighbours in memory are neighbours in the table: half a million in dense runs still find a slot."""
    box = native.box("t.testing_hold(8, 0, U64(65000), 0)")
    assert box.counts["storages_dropped"] == 0
    assert tiers(box) == 2


def test_missed_free_is_taken_over_and_counted(native: Native) -> None:
    """An address that is allocated again while it is live had a missed free: the new storage counts."""
    box = native.box(
        "t.testing_allocate(U64(0x700000000000), U64(17)); t.testing_allocate(U64(0x700000000000), U64(33))"
    )
    assert live(box) == {0x700000000000: 33}
    assert box.counts["stale_storages"] == 1


def test_unknown_free_is_counted_and_leaves_nothing(native: Native) -> None:
    """A storage from before the recording leaves no record of its lifetime, only a count."""
    box = native.box("t.testing_release(U64(0x700000000000), U64(17))")
    assert box.storages == ()
    assert box.counts["unknown_frees"] == 1


LIMITED = """
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (8 << 20, 8 << 20))
"""
FILLED = """
filler = os.open(os.environ['PYTRACER_DIR'] + '/filler', os.O_CREAT | os.O_WRONLY)
try:
    while True: os.write(filler, bytes(4096))
except OSError as error:
    assert error.errno == 28, error
"""
HEAVY = """
t.testing_hold(4, 0, U64(50000), 0)
t.testing_churn(4, U64(20000), 8, 1)  # finds a full table
t.testing_marks(40, U64(300))
"""


@pytest.mark.parametrize("what", ["file size limit", "full disk"])
def test_file_that_cannot_grow_costs_records_only(native: Native, small_disk: Callable[[int], Path], what: str) -> None:
    """Without room for a tier or for more threads the process lives, and what did not fit is counted."""
    if what == "full disk":
        at = small_disk(12 << 20)
        status = os.statvfs(at)
        assert status.f_blocks * status.f_frsize == 12 << 20
        native.run = at / "run"
    done = native.child("t.testing_marks(1, U64(1))\n" + (FILLED if what == "full disk" else LIMITED) + HEAVY)
    assert done.status == 0, done.stderr
    box = done.box
    assert tiers(box) == 1
    held, churned = 4 * 50_000, 4 * 20_000
    kept = len(live(box))
    assert kept + box.counts["storages_dropped"] == held + churned
    assert kept == box.counts["live_storages"] == 1 << 16  # each slot is used before one storage is dropped
    assert box.counts["threads_dropped"] == 40 - 16
    (note,) = [note for note in box.notes if note.code == NoteCode.STORAGE_TABLE]
    assert "cannot grow" in note.text and note.value == 1 << 16
    assert inconsistent(box.storages) == []
    assert box.damage == ()


def test_fork_on_a_full_disk_leaves_the_parents_box_alone(native: Native, small_disk: Callable[[int], Path]) -> None:
    """A forked child without a file records into private memory: it lives, and its parent's recording is unchanged."""
    native.run = small_disk(12 << 20) / "run"
    done = native.child(
        "t.testing_hold(1, 0, U64(100), 0)\n"
        + FILLED
        + """
pid = os.fork()
if pid == 0:
    t.testing_hold(1, 1, U64(100), 0)
    os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
"""
    )
    assert done.status == 0, done.stderr
    (box,) = done.boxes
    assert {thread_of(s) for s in box.storages} == {0}
    assert box.state == "EXITING"


def test_limited_program_is_not_killed_by_the_box(native: Native) -> None:
    """Under `ulimit -f` the recording cannot be created; the program, which never writes, gets no SIGXFSZ for it."""
    native.run.mkdir(parents=True)
    done = subprocess.run(
        ["sh", "-c", "ulimit -f 100; exec env LD_PRELOAD=$CORE sh -c 'kill -SEGV $$'"],
        env=native.env() | {"LD_PRELOAD": "", "CORE": native.env()["LD_PRELOAD"]},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == -signal.SIGSEGV
    assert not list((native.run / "boxes").iterdir())


REGION = """
import mmap
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
base = libc.mmap(None, 1 << 20, 0, 0x22, -1, 0)  # PROT_NONE, private, anonymous
def allocate(at, n): t.testing_allocate(U64(base + at), U64(n))
def release(at, n): t.testing_release(U64(base + at), U64(n))
allocate(0x10000, 0x1000)
allocate(0x20000, 0x2000); release(0x20000, 0x2000)
allocate(0x20000, 0x3000); release(0x20000, 0x3000)
allocate(0x30000, 0x100)
print(base, flush=True)
t.testing_read(U64(base + {at}))
"""


@pytest.mark.parametrize(
    ("at", "expected"),
    [
        (0x10800, [("covering", "live", 0x10000, 0x1000)]),
        (0x10FFF, [("covering", "live", 0x10000, 0x1000)]),
        (0x11000, [("below", "live", 0x10000, 0x1000), ("above", "live", 0x30000, 0x100)]),
        (0x22800, [("covering", "freed", 0x20000, 0x3000)]),
        (0x20000, [("covering", "freed", 0x20000, 0x3000)]),
        (0x30000, [("covering", "live", 0x30000, 0x100)]),
        (0x30100, [("below", "live", 0x30000, 0x100), ("below", "freed", 0x20000, 0x3000)]),
    ],
)
def test_handler_finds_the_storage_around_an_address(
    native: Native, at: int, expected: list[tuple[str, str, int, int]]
) -> None:
    """From any byte inside a storage the handler finds it, the latest of several lives; outside, its neighbours."""
    done = native.child(REGION.replace("{at}", hex(at)))
    assert done.status == -11, done.stderr
    base = int(done.stdout)
    crash = done.box.crash
    assert crash is not None and crash.fault_addr == base + at
    hits = [(h.kind, h.storage.state, h.storage.base - base, h.storage.nbytes) for h in crash.hits]
    assert set(expected) <= set(hits)
    if expected[0][0] == "covering":
        covering = [hit for hit in hits if hit[0] == "covering"]
        assert covering == expected


def test_boxes_of_a_grown_table_are_read(native: Native) -> None:
    """800 000 live storages: three tiers, and a file that the reader takes."""
    done = native.child("t.testing_hold(1, 0, U64(800000), 0)")
    assert done.status == 0, done.stderr
    (path,) = (native.run / "boxes").iterdir()
    box = read_box(path)
    assert box.counts["live_storages"] == 800_000
    assert tiers(box) == 3
