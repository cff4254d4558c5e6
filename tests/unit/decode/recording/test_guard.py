"""Guard mode is read from the recording: settings, storages with whole stacks, damage."""

from __future__ import annotations

from pathlib import Path

from pytracer.decode.recording.reader import read_box
from tests.support.synth import GUARD_POOL, Box

BASE = GUARD_POOL[0] + 0x5000


def test_settings_counters_and_storages_are_read(tmp_path: Path) -> None:
    """All content of GUARD and GUARDED; the stack of a STACK entry with its first frame outside torch."""
    box = Box(pid=101).guard(every=20, mechanism=2, guarded=7, live=1, refused_bytes=3, fallback=22)
    inner = box.code("zeros", "/site-packages/torch/__init__.py", 5, torch=True)
    outer, main = box.code("step", "train.py", 12), box.code("<module>", "train.py", 40)
    by = box.stack(inner, outer, main, node=box.node("MulBackward0"), sequence_nr=9)
    box.guarded(BASE, 4096, by=by).guarded(BASE + 0x3040, 4000, by=by, freed_by=("end", "train.py", 50), freed=True)
    guard = read_box(box.write(tmp_path / "x.blackbox")).guard
    assert guard is not None
    assert (guard.armed, guard.mechanism, guard.every, guard.alignment, guard.underrun) == (
        True,
        "protection",
        20,
        64,
        False,
    )
    assert (guard.fallback_errno, guard.counts["refused_bytes"], guard.counts["guarded"]) == (22, 3, 7)
    live, freed = guard.storages
    assert (live.storage.base, live.storage.nbytes, live.storage.state) == (BASE, 4096, "live")
    assert (live.low, live.high, live.number) == (BASE, BASE + 4096, 1)
    who = live.storage.allocated_by
    assert [frame.function for frame in who.stack] == ["zeros", "step", "<module>"]
    assert who.python == who.stack[0] and who.caller == who.stack[1]
    assert (who.node, who.node_sequence_nr) == ("MulBackward0", 9)
    assert freed.storage.state == "freed" and freed.storage.freed is not None and freed.storage.freed_by is not None
    assert freed.storage.freed_by.python is not None and freed.storage.freed_by.python.line == 50
    assert freed.high - freed.storage.base - freed.storage.nbytes == 32


def test_damage_outlives_the_record_of_the_storage(tmp_path: Path) -> None:
    """The journal keeps it; a light reading, which leaves the records out, has it as well."""
    box = Box(pid=101).guard().guarded(BASE + 64, 4000, freed=True, damage=(1, 4000, b"\xff\xff\x01"))
    box.guard_regions.pop(41)
    path = box.write(tmp_path / "x.blackbox")
    for light in (False, True):
        guard = read_box(path, light=light).guard
        assert guard is not None and guard.storages == ()
        (item,) = guard.damaged
        assert item.damage is not None
        assert (item.damage.side, item.damage.offset, item.damage.nbytes) == ("behind", 4000, 3)
        assert item.damage.content == b"\xff\xff\x01"


def test_damage_of_the_parent_is_not_the_childs(tmp_path: Path) -> None:
    """A forked child's journal begins with what its parent had written."""
    box = Box(pid=101).guard().guarded(BASE + 64, 4000, freed=True, damage=(1, 4000, b"\xff"))
    child = box.later(5).fork(202)
    guard = read_box(child.write(tmp_path / "x.blackbox")).guard
    assert guard is not None and guard.damaged == ()


def test_short_stack_entry_is_survived(tmp_path: Path) -> None:
    """A count that is larger than what follows: what is there is read."""
    box = Box(pid=101).guard()
    code = box.code("f", "train.py", 1)
    entry = box.entry(24, bytes(4) + (9).to_bytes(4, "little") + code.id.to_bytes(4, "little") + bytes(4))
    box.guarded(BASE, 64, by=type(code)(entry, 0))
    guard = read_box(box.write(tmp_path / "x.blackbox")).guard
    assert guard is not None
    assert [frame.function for frame in guard.storages[0].storage.allocated_by.stack] == ["f"]


def test_box_without_guard_mode_has_none(tmp_path: Path) -> None:
    """Nor has one whose region was made and never filled."""
    assert read_box(Box(pid=101).write(tmp_path / "x.blackbox")).guard is None
    box = Box(pid=101)
    box.guard_regions[40] = (256, bytes(256))
    assert read_box(box.write(tmp_path / "y.blackbox")).guard is None
