"""Names and referrers of a storage: only of its own lifetime, the closest first, with their kinds."""

from __future__ import annotations

from pathlib import Path

from pytracer.analyze.assemble.view import build_view
from pytracer.analyze.timeline.clock import RunClock
from pytracer.render.holders import holder_lines
from pytracer.report import job as r
from tests.support import scenarios as s
from tests.support.synth import Box
from tests.support.synth_names import CELL, GLOBAL, LOCAL, MODULE, PARAMETER, SAVED, USER, NameTree, add_holders

BASE = 0x7F50_0000_0000
SITE = ("fill", s.SCRIPT, 12)
OWN = [("step", s.SCRIPT, 12), ("main", s.SCRIPT, 40)]
OTHER = {0x7E11: [("worker", s.SCRIPT, 80)]}


def storage_of(run: Path, box: Box) -> r.StorageReport:
    """The storage of the fault address."""
    job = s.load(run, box)
    fault = build_view(0, job.processes[0], RunClock(job)).fault
    assert fault is not None and fault.storage is not None
    return fault.storage


def crash(box: Box, addr: int) -> Box:
    return box.at(500).crash(addr=addr, native=s.NATIVE[:1], python=OWN, other_python=OTHER)


def test_name_counts_for_the_life_in_which_it_was_seen(tmp_path: Path) -> None:
    """The allocator has reused the address since: the new storage has no name."""
    for reused in (False, True):
        box = Box(pid=101).alloc(BASE, 4096, SITE).later(1)
        tree = NameTree(box)
        tree.add(PARAMETER, "weight", tree.add(MODULE, "Net"), at=(BASE, 4096))
        if reused:
            box.free(BASE, SITE).later(1).alloc(BASE, 4096, SITE)
        tree.write()
        storage = storage_of(tmp_path / str(reused), crash(box.later(1), BASE + 64))
        assert storage.names == ([] if reused else ["parameter weight"])
        named = [(item.name, item.role, item.offset_bytes, item.how) for item in storage.named or []]
        assert named == ([] if reused else [("parameter weight", "parameter", 64, "recorded")])


def test_name_of_what_lies_at_the_address_comes_first(tmp_path: Path) -> None:
    """Two tensors in one storage; past its end, it is the last one that was overrun."""
    box = Box(pid=101).alloc(BASE, 4096, SITE).later(1)
    tree = NameTree(box)
    net = tree.add(MODULE, "Net")
    tree.add(PARAMETER, "first", net, at=(BASE, 2048))
    tree.write()
    second = NameTree(box)
    second._slots = [*tree._slots]
    second.add(USER, "tail", at=(BASE, 4096))
    second.write()
    storage = storage_of(tmp_path, crash(box.later(1), BASE + 4000))
    assert storage.names == ["tail", "parameter first"]
    assert [item.offset_bytes for item in storage.named or []] == [4000, None]


def test_holders_are_ordered_by_how_much_they_tell(tmp_path: Path) -> None:
    """The crashed thread's variables, what is inside of something, other threads, what autograd saved; nothing else."""
    box = crash(Box(pid=101).alloc(BASE, 4096, SITE).later(1), BASE + 64)
    add_holders(
        box,
        [
            (SAVED, "N5torch8autograd9generated12MulBackward0E", BASE, 1),
            (LOCAL, "batch", BASE, 2),
            (LOCAL, "self.caches[1]", BASE, 0),
            (LOCAL, "net._parameters['weight']", BASE, 1),
            (CELL, "kv_cache", BASE, 0),
            (GLOBAL, "TABLE", BASE, 0),
            (LOCAL, "elsewhere", BASE + 0x10000, 0),
        ],
    )
    storage = storage_of(tmp_path, box)
    assert [(h.expression, h.kind, h.crashed_thread) for h in storage.holders or []] == [
        ("kv_cache", "cell", True),
        ("TABLE", "global", True),
        ("self.caches[1]", "local", True),
        ("net.weight", "local", True),
        ("batch", "local", False),
        ("MulBackward0", "saved", None),
    ]
    assert holder_lines(storage) == [
        f"`kv_cache` in step() at {s.SCRIPT}:12 holds it (possible)",
        f"`TABLE`, global of the module of {s.SCRIPT}:12 holds it (possible)",
        f"`self.caches[1]` in step() at {s.SCRIPT}:12 holds it (possible)",
        "and 2 more: see --json",
        "saved for backward by MulBackward0 (possible)",
    ]


def test_nothing_looked_for_is_not_nothing_found(tmp_path: Path) -> None:
    """A recording by a handler without that step has null."""
    box = crash(Box(pid=101).alloc(BASE, 4096, SITE).later(1), BASE + 64)
    assert storage_of(tmp_path / "old", box).holders is None
    assert storage_of(tmp_path / "new", add_holders(box, [])).holders == []
