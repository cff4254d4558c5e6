"""Recordings of processes that are killed at any instruction, or fork while other threads record."""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path

import pytest

from pytracer.decode.recording.reader import read_box
from pytracer.decode.types.records import Text
from pytracer.decode.types.snapshot import Snapshot
from tests.conditions import needs_core
from tests.native.harness import Native, base_of, inconsistent, thread_of
from tests.support.records import data_of

pytestmark = needs_core

THREADS = 3
FORKS = 50
KILLS = 50


def read_and_remove(path: Path) -> Snapshot:
    box = read_box(path)
    path.unlink()
    return box


def unfinished(box: Snapshot) -> list[str]:
    """Damage other than a journal entry whose writer was killed in the middle."""
    return [f"{d.offset}: {d.what}" for d in box.damage if "not finished" not in d.what]


@pytest.mark.slow
def test_killed_process_leaves_no_inconsistent_life(native: Native) -> None:
    """SIGKILL at random: one storage, record and entry per thread may be marked unfinished; the others are right."""
    chance = random.Random(20261121)
    lives = unfinished_lives = 0
    for _ in range(KILLS):
        child = native.start(
            f"t.testing_background({THREADS}, 64)\nprint('go', flush=True)\nimport time; time.sleep(60)"
        )
        assert child.stdout is not None and child.stdout.readline() == b"go\n"
        time.sleep(chance.uniform(0.0, 0.03))
        child.kill()
        assert child.wait() == -signal.SIGKILL
        child.stdout.close()
        (path,) = (native.run / "boxes").iterdir()
        box = read_and_remove(path)
        counts = box.counts
        assert box.state == "RECORDING" and box.crash is None
        assert inconsistent(box.storages) == []
        assert counts["busy_slots"] <= THREADS and counts["storages_being_freed"] <= THREADS
        assert counts["torn_graves"] <= THREADS and counts["torn_records"] <= THREADS
        assert counts["torn_entries"] <= THREADS
        assert counts["dropped"] == counts["stale_storages"] == counts["unknown_frees"] == 0
        assert unfinished(box) == []
        for thread in range(THREADS):  # always 64 or 63 live, and the one that is being freed or made
            live = sum(s.state == "live" and thread_of(s) == thread for s in box.storages)
            started = sum(thread_of(s) == thread for s in box.storages) >= 64
            assert live <= 64 and (live >= 63 or not started)
        lives += len(box.storages)
        unfinished_lives += counts["busy_slots"] + counts["storages_being_freed"] + counts["torn_graves"]
    assert lives > KILLS * 64
    print(f"{KILLS} processes killed: {lives} lives checked, {unfinished_lives} caught unfinished")


@pytest.mark.slow
def test_fork_while_others_record_leaves_readable_boxes(native: Native) -> None:
    """Fifty forks beside busy threads: all recordings are whole, and each child's holds what it recorded itself."""
    done = native.child(f"""
t.testing_background(2, 64)
for i in range({FORKS}):
    pid = os.fork()
    if pid == 0:
        t.testing_forget_background()
        t.testing_hold(1, 16, U64(20), 0)
        t.testing_marks(1, U64(3))
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
t.testing_stop()
""")
    assert done.status == 0, done.stderr
    boxes = [read_and_remove(path) for path in (native.run / "boxes").iterdir()]
    assert len(boxes) == FORKS + 1
    inherited = 0
    for box in boxes:
        assert unfinished(box) == []
        assert inconsistent(box.storages) == []
        assert box.state == "EXITING"
        if box.pid == done.pid:
            assert box.counts["dropped"] == box.counts["busy_slots"] == box.counts["torn_entries"] == 0
            assert sum(f.kind == "WAIT" for f in box.facts) == FORKS
            assert {thread_of(s) for s in box.storages} == {0, 1}
            continue
        own = {s.base for s in box.storages if thread_of(s) == 16}
        assert own == {base_of(16, i, False) for i in range(20)}
        assert [mark.text for mark in data_of(box.events, Text)] == ["0 0", "0 1", "0 2"]
        assert box.ppid == done.pid
        assert all(s.state == "live" for s in box.storages)  # freed ones are the parent's
        inherited += sum(thread_of(s) < 2 for s in box.storages)
        assert box.counts["torn_entries"] <= 2
    assert inherited > FORKS * 60


@pytest.mark.slow
def test_fork_while_the_box_grows_leaves_readable_boxes(native: Native) -> None:
    """Forked while its parent adds tiers and contexts, a child takes what was there, and can grow its own recording."""
    done = native.child("""
import threading, time
work = threading.Thread(target=lambda: (t.testing_burst(150, U64(200)), t.testing_hold(1, 500, U64(12000), 0)))
work.start()
pids = []
while work.is_alive() and len(pids) < 16:
    pid = os.fork()
    if pid == 0:
        if len(pids) % 4 == 0: t.testing_hold(4, 300, U64(12000), 0)
        os._exit(0)
    pids.append(pid)
    time.sleep(0.001)
work.join()
assert pids and all(os.waitpid(pid, 0)[1] == 0 for pid in pids)
print(*pids)
""")
    assert done.status == 0, done.stderr
    children = [int(word) for word in done.stdout.split()]
    for path in (native.run / "boxes").iterdir():
        box = read_and_remove(path)
        assert unfinished(box) == []
        assert inconsistent(box.storages) == []
        assert box.state == "EXITING"
        assert box.counts["storages_dropped"] == 0
        if box.pid in children:
            grown = children.index(box.pid) % 4 == 0
            assert sum(thread_of(s) >= 300 and thread_of(s) < 500 for s in box.storages) == (48000 if grown else 0)
    print(f"{len(children)} children forked while the box grew")


def test_killed_while_it_gives_blocks_back_leaves_a_readable_box(native: Native) -> None:
    """SIGKILL at any moment around a normal exit, while threads record: the exit is recorded or not; no damage."""
    chance = random.Random(20261121)
    ended = 0
    for _ in range(KILLS):
        child = native.start(
            f"t.testing_background({THREADS}, 64)\ncore.pytracer_trim_at_exit()\nprint('go', flush=True)\nos._exit(0)"
        )
        assert child.stdout is not None and child.stdout.readline() == b"go\n"
        time.sleep(chance.uniform(0.0, 0.002))
        child.kill()
        assert child.wait() in (0, -signal.SIGKILL)
        child.stdout.close()
        (path,) = (native.run / "boxes").iterdir()
        box = read_and_remove(path)
        assert (box.state, box.exit_code) in (("RECORDING", None), ("EXITING", 0))
        assert box.crash is None and inconsistent(box.storages) == []
        assert unfinished(box) == []
        ended += box.state == "EXITING"
    assert ended > 0
