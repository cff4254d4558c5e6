"""The pool of guard mode from outside: contents, places, quarantine, budgets, threads. No torch: the core alone."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from pytracer.blackbox.note_codes import NoteCode
from pytracer.decode.recording.reader import read_box
from pytracer.decode.types.snapshot import Guard, Snapshot
from tests.conditions import needs_core
from tests.native.harness import Native

pytestmark = needs_core

PROLOGUE = """
import random, mmap
from pytracer.record.guard_mode import Settings
def arm(**words):
    known = dict(every=1, budget_bytes=1 << 32, budget_mappings=16000, alignment=64, records=4096)
    error = ctypes.create_string_buffer(256)
    settings = Settings(**(known | words))
    assert core.pytracer_guard_open(ctypes.byref(settings), error, ctypes.c_size_t(256)) == 0, error.value
core.pytracer_guard_allocate.restype = ctypes.c_void_p
core.pytracer_guard_allocate.argtypes = [ctypes.c_size_t, ctypes.c_uint32, ctypes.c_uint32]
core.pytracer_guard_free.argtypes = [ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint32]
core.pytracer_guard_owns.argtypes = [ctypes.c_void_p]
take = lambda n: core.pytracer_guard_allocate(n, 0, 0)
free = lambda at: core.pytracer_guard_free(at, 0, 0)
libc = ctypes.CDLL(None)
class IO(ctypes.Structure): _fields_ = [("at", ctypes.c_void_p), ("n", ctypes.c_size_t)]
piece = [ctypes.POINTER(IO), ctypes.c_ulong]
libc.process_vm_readv.argtypes = [ctypes.c_int, *piece, *piece, ctypes.c_ulong]
def readable(at):
    byte = ctypes.create_string_buffer(1)
    return libc.process_vm_readv(os.getpid(), IO(ctypes.addressof(byte), 1), 1, IO(at, 1), 1, 0) == 1
def status(key): return next(int(l.split()[1]) for l in open("/proc/self/status") if l.startswith(key))
def maps(): return sum(1 for _ in open("/proc/self/maps"))
"""
MECHANISMS = ["0", "1"]  # protection_only


def child(native: Native, code: str) -> Snapshot:
    """The recording of a child that works on the pool."""
    return native.box(f"sys.path.insert(0, {str(Path(__file__).resolve().parents[2])!r})\n{PROLOGUE}\n{code}")


def guard_of(box: Snapshot) -> Guard:
    """Guard mode of a recording; the child's own checks passed."""
    assert box.guard is not None
    return box.guard


@pytest.mark.parametrize("only", MECHANISMS)
@pytest.mark.parametrize("alignment", ["64", "16", "4"])
@pytest.mark.parametrize("underrun", ["0", "1"])
def test_storage_lies_against_its_guards_and_is_closed_when_freed(
    only: str, alignment: str, underrun: str, native: Native
) -> None:
    """For any size: all bytes are accessible, not the byte after the pages nor the one before; none after the free."""
    code = f"""
arm(protection_only={only}, alignment={alignment}, underrun={underrun})
page = mmap.PAGESIZE
for n in [1, 3, 63, 64, 65, 1000, 4095, 4096, 4097, 70000, (2 << 20) - 1, 2 << 20, (5 << 20) + 4]:
    at = take(n)
    ctypes.memset(at, 0x11, n)
    assert at % {alignment} == 0
    low, high = at // page * page, (at + n + page - 1) // page * page
    assert not readable(low - 1) and not readable(high) and readable(low) and readable(high - 1)
    if {underrun}: assert at == low
    else: assert high - at - n < {alignment}
    free(at)
    assert not any(readable(p) for p in range(low, high, page))
"""
    guard = guard_of(child(native, code))
    assert guard.damaged == ()
    assert guard.counts["quarantined"] == guard.counts["guarded"] == 13
    assert guard.counts["live"] == guard.counts["live_bytes"] == guard.counts["unsealed"] == 0


@pytest.mark.parametrize("only", MECHANISMS)
def test_random_lives_keep_their_contents_and_never_overlap(only: str, native: Native) -> None:
    """Against a model, over many rounds: live storages keep their contents, freed ones are inaccessible."""
    code = f"""
arm(protection_only={only}, records=300)
chance, live, dead, taken = random.Random(7), {{}}, [], 0
for i in range(6000):
    if len(live) < 200 and chance.random() < 0.55:
        n = chance.choice([1, 64, 300, 4096, 9000, 66000, 3 << 20])
        at = take(n)
        assert at and core.pytracer_guard_owns(at), i
        assert all(at + n <= other or other + m <= at for other, (m, _) in live.items())
        ctypes.memset(at, i & 255, n)
        live[at] = (n, i & 255)
        taken += 1
    elif live:
        at = chance.choice(list(live))
        n, value = live.pop(at)
        assert ctypes.string_at(at, n) == bytes([value]) * n
        free(at)
        dead = [*dead[-40:], at]
    if i % 200 == 0:
        assert not any(readable(at) for at in dead if at not in live)
for at, (n, value) in live.items(): assert ctypes.string_at(at, n) == bytes([value]) * n
print(taken, len(live))
"""
    done = native.child(f"sys.path.insert(0, {str(Path(__file__).resolve().parents[2])!r})\n{PROLOGUE}\n{code}")
    assert done.status == 0, done.stderr
    taken, live = map(int, done.stdout.split())
    guard = guard_of(done.box)
    assert (guard.counts["guarded"], guard.counts["live"], guard.damaged) == (taken, live, ())
    assert sum(item.storage.state == "live" for item in guard.storages) == live
    assert len(guard.storages) == 300  # the newest quarantine; older ones have left it


@pytest.mark.parametrize("only", MECHANISMS)
def test_quarantine_costs_no_memory_and_no_mappings_without_end(only: str, native: Native) -> None:
    """A hundred thousand storages, one after the other: memory, page tables and mappings do not grow."""
    code = f"""
arm(protection_only={only}, records=65536)
kept = [take(256) for _ in range(20)]
before = status("VmRSS"), status("VmPTE"), maps()
for i in range(100_000):
    at = take(256 if i % 50 else 3 << 20)
    ctypes.memset(at, 1, 8)
    free(at)
assert status("VmRSS") - before[0] < 24 << 10, status("VmRSS") - before[0]  # the records in the box, and our own
assert status("VmPTE") - before[1] < 512, status("VmPTE") - before[1]
assert maps() - before[2] < 60, maps() - before[2]
assert all(readable(at) for at in kept)
"""
    guard = guard_of(child(native, code))
    assert guard.counts["quarantined"] == 100_000 and guard.counts["unsealed"] == 0
    assert guard.counts["mappings"] < 60


def test_address_space_is_used_again_and_reports_still_tell_the_last_owner(native: Native) -> None:
    """Under a limit (ulimit -v) the pool is small and addresses are reused; of two records the later one counts."""
    code = """
import resource
resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))
arm(records=2000)
seen = set()
again = None
for i in range(40_000):
    at = take(128 << 10)
    if at in seen: again = at
    seen.add(at)
    free(at)
assert again is not None
"""
    box = child(native, code)
    guard = guard_of(box)
    assert sum(high - low for low, high in guard.pools) <= (6 << 30) // 4
    assert guard.counts["quarantined"] == 40_000
    assert sum(guard.counts[name] for name in guard.counts if name.startswith("refused")) == 0


def test_address_space_is_reserved_by_need_under_a_limit(native: Native) -> None:
    """A little at first, more for live storages; without a limit at most 64 GiB."""
    code = """
import resource
before = status("VmSize:")
if limited: resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))
arm(protection_only=1)
reserved = status("VmSize:") - before << 10
assert reserved < (256 << 20 if limited else 65 << 30), reserved
live = [take(1 << 20) for _ in range(100)] + [take(4 << 20) for _ in range(50)]
assert None not in live and len(set(live)) == 150
assert all(readable(at) for at in live)
for at in live: free(at)
"""
    for limited in ("True", "False"):
        guard = guard_of(child(native, f"limited = {limited}\n{code}"))
        assert guard.counts["quarantined"] == 150
        assert all(high - low >= 64 << 20 for low, high in guard.pools)
        for path in (native.run / "boxes").iterdir():
            path.unlink()


def test_budgets_and_records_are_limits_of_what_lives(native: Native) -> None:
    """Each limit has its own counter, and freed room is reused."""
    code = """
arm(budget_bytes=100 * 4096)
live = [take(64) for _ in range(150)]
assert [at is not None for at in live] == [True] * 100 + [False] * 50
for at in live[:50]: free(at)
assert take(64) is not None
arm(protection_only=0, budget_mappings=0)
assert take(3 << 20) is None
arm(records=4096)
more = [take(64) for _ in range(5000)]
assert sum(at is not None for at in more) == 4096 - 51, sum(at is not None for at in more)
"""
    guard = guard_of(child(native, code))
    refused = {name: count for name, count in guard.counts.items() if name.startswith("refused") and count}
    assert refused == {"refused_bytes": 50, "refused_mappings": 1, "refused_records": 5000 - 4096 + 51}


@pytest.mark.parametrize("only", MECHANISMS)
def test_threads_share_the_pool(only: str, native: Native) -> None:
    """Four threads allocate, write, check and free their own storages and each other's."""
    code = f"""
import threading, queue
arm(protection_only={only}, records=8192)
handed, wrong = queue.Queue(), []
def work(number):
    chance = random.Random(number)
    for i in range(1500):
        n = chance.choice([64, 1000, 4096, 40000])
        at = take(n)
        ctypes.memset(at, number, n)
        handed.put((at, n, number))
        at, n, whose = handed.get()
        if ctypes.string_at(at, n) != bytes([whose]) * n: wrong.append(at)
        free(at)
threads = [threading.Thread(target=work, args=(k,)) for k in range(1, 5)]
for t in threads: t.start()
for t in threads: t.join()
assert not wrong
"""
    guard = guard_of(child(native, code))
    assert guard.counts["guarded"] == guard.counts["quarantined"] == 6000
    assert guard.damaged == () and guard.counts["live"] == 0


def test_forks_while_threads_work_find_the_lock_free(native: Native) -> None:
    """A child can allocate and free immediately, whatever the other threads were doing at the fork."""
    code = """
import threading
arm()
stop = False
def work():
    while not stop: free(take(1000))
threads = [threading.Thread(target=work) for _ in range(2)]
for t in threads: t.start()
kept = take(100)
ctypes.memset(kept, 3, 100)
bad = 0
for _ in range(30):
    pid = os.fork()
    if pid == 0:
        at = take(5000)
        ctypes.memset(at, 1, 5000)
        free(at)
        ok = ctypes.string_at(kept, 100) == bytes([3]) * 100 and not readable(at)
        free(kept)
        os._exit(0 if ok else 1)
    bad += os.waitpid(pid, 0)[1] != 0
stop = True
for t in threads: t.join()
assert bad == 0 and ctypes.string_at(kept, 100) == bytes([3]) * 100
"""
    child(native, code)


def test_damage_of_the_parent_is_not_told_of_its_child(native: Native) -> None:
    """Inherited storages may have been damaged before the fork; each process reports its own storages only."""
    code = """
arm()
at = take(1000)
ctypes.memset(at + 1000, 1, 3)
pid = os.fork()
if pid == 0:
    own = take(1000)
    ctypes.memset(own + 1000, 2, 4)
    free(at)
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
"""
    done = native.child(f"sys.path.insert(0, {str(Path(__file__).resolve().parents[2])!r})\n{PROLOGUE}\n{code}")
    assert done.status == 0, done.stderr
    found = [[item.damage.content for item in guard_of(box).damaged if item.damage] for box in done.boxes]
    assert found == [[b"\1\1\1"], [b"\2\2\2\2"]]


def test_absurd_sizes_are_left_to_torch(native: Native) -> None:
    """torch refuses them with its own message."""
    code = "arm()\nassert take((1 << 64) - 1) is None and take((1 << 63) + 5) is None and take(1 << 40) is None\n"
    assert guard_of(child(native, code)).counts["refused_bytes"] == 3


def test_freeing_twice_is_noted_and_does_nothing(native: Native) -> None:
    """The allocator would abort on a double free; this one is recorded."""
    box = child(native, "arm()\nat = take(100)\nfree(at)\nfree(at)\nother = take(100)\nfree(other + 16)\n")
    notes = [note for note in box.notes if "freed a second time" in note.text]
    assert len(notes) == 2 and all(note.code == NoteCode.GUARD and note.addr for note in notes)
    assert guard_of(box).counts["quarantined"] == 1


def test_killed_at_any_moment_the_records_are_whole(native: Native) -> None:
    """SIGKILL while storages are allocated and freed: at most the one in flight is missing; no record is partial."""
    chance = random.Random(20261121)
    code = "arm(records=500)\nprint('go', flush=True)\nlive = []\nwhile True:\n"
    code += "    live.append(take(1000 + len(live)))\n    if len(live) > 20: free(live.pop(0))\n"
    for _ in range(10):
        process = native.start(f"sys.path.insert(0, {str(Path(__file__).resolve().parents[2])!r})\n{PROLOGUE}\n{code}")
        assert process.stdout is not None and process.stdout.readline() == b"go\n"
        time.sleep(chance.uniform(0.0, 0.05))
        process.kill()
        process.wait()
        process.stdout.close()
        (path,) = (native.run / "boxes").iterdir()
        guard = guard_of(read_box(path))
        path.unlink()
        live = [item for item in guard.storages if item.storage.state == "live"]
        assert len(live) <= 22
        for item in guard.storages:
            storage = item.storage
            assert item.low <= storage.base and storage.base + storage.nbytes <= item.high
            assert 1000 <= storage.nbytes <= 1022 and item.damage is None
