"""What lay around the fault address, for a picture: storages of both states, mappings, guards, devices."""

from __future__ import annotations

from pathlib import Path

from pytracer.analyze.assemble.neighborhood import OTHERS, STORAGES, neighborhood
from pytracer.analyze.assemble.view import build_view
from pytracer.analyze.timeline.clock import RunClock
from pytracer.decode.types.snapshot import Job
from pytracer.report import job as r
from tests.support import scenarios as s
from tests.support.synth import GUARD_POOL, Box

BASE = 0x7F40_0000_0000
KIB = 1 << 10
MIB = 1 << 20


def around(job: Job, pid: int = 101) -> r.Neighborhood | None:
    clock = RunClock(job)
    return next(
        neighborhood(build_view(i, item, clock)) for i, item in enumerate(job.processes) if item.snapshot.pid == pid
    )


def spans(found: r.Neighborhood | None, kind: str = "storage") -> list[r.MemorySpan]:
    return [item for item in (found.spans if found else None) or [] if item.kind == kind]


def test_freed_bucket_and_the_live_one_are_drawn_with_both_ends_of_their_lives(tmp_path: Path) -> None:
    """The demo: the storage of the fault is there, freed, with its name, and so is the bucket that replaced it."""
    found = around(s.use_after_free(tmp_path), pid=102)
    assert found is not None and (found.addr, found.what) == (hex(s.BUCKET + 81920), "fault")
    freed, live = spans(found)
    assert (freed.state, freed.start, freed.end) == ("freed", hex(s.BUCKET), hex(s.BUCKET + s.BUCKET_BYTES))
    assert freed.names is not None and freed.names[0].startswith("DDP bucket 0")
    assert freed.allocated is not None and freed.freed is not None and freed.freed.step == 1
    assert (live.state, live.freed) == ("live", None)


def test_number_of_spans_is_bounded_and_what_is_left_out_is_counted(tmp_path: Path) -> None:
    """Hundreds of storages and mappings: the nearest are kept, the one at the address among them."""
    box = Box(pid=101)
    for n in range(400):
        box.alloc(BASE + n * 8 * KIB, 4 * KIB)
    pages = [(BASE + n * 4 * MIB, BASE + n * 4 * MIB + 2 * MIB, "rw-p", 0, "") for n in range(100)]
    box.crash(addr=BASE + 200 * 8 * KIB + 12, code=2, mappings=pages)
    found = around(s.load(tmp_path, box))
    assert found is not None and found.spans is not None
    assert 0 < len(spans(found)) <= STORAGES and found.storages_left_out == 400 - len(spans(found))
    assert len(found.spans) <= STORAGES + OTHERS + 1
    assert [item for item in spans(found) if item.start == hex(BASE + 200 * 8 * KIB)]
    starts = [int(item.start or "0", 16) for item in found.spans]
    assert starts == sorted(starts)


def test_storages_in_another_part_of_the_address_space_are_left_out(tmp_path: Path) -> None:
    """To scale, the heap and what mmap() returned have no common picture."""
    box = Box(pid=101).alloc(BASE, 4 * KIB).alloc(0x5555_0000_0000, 4 * KIB)
    found = around(s.load(tmp_path, box.crash(addr=BASE + 8 * KIB)))
    assert [item.start for item in spans(found)] == [hex(BASE)]


def test_null_pointer_has_no_neighborhood(tmp_path: Path) -> None:
    """Nothing can lie near null, nor near an address that the kernel hides."""
    for n, addr in enumerate((0, 0x40)):
        assert around(s.load(tmp_path / str(n), Box(pid=101).alloc(BASE, 64).crash(addr=addr))) is None


def test_mappings_between_the_storages_say_what_they_are(tmp_path: Path) -> None:
    """The mapping at the address and the gap beside it."""
    box = Box(pid=101).alloc(BASE, 64 * KIB)
    pages = [(BASE, BASE + 64 * KIB, "rw-p", 0, ""), (BASE + 128 * KIB, BASE + 256 * KIB, "r--p", 0, "/data/a.bin")]
    found = around(s.load(tmp_path, box.crash(addr=BASE + 64 * KIB + 8, mappings=pages)))
    assert [item.says for item in spans(found, "file-mapping")] == ["the mapped file /data/a.bin at byte 0 of the file"]
    (gap,) = spans(found, "unmapped")
    assert (gap.start, gap.end) == (hex(BASE + 64 * KIB), hex(BASE + 128 * KIB))


def test_guarded_storage_has_a_guard_on_either_side(tmp_path: Path) -> None:
    """Guard mode: pages of one storage, and a page before and behind that faults."""
    base = GUARD_POOL[0] + 0x10000
    box = Box(pid=101).guard().guarded(base, 4096)
    found = around(s.load(tmp_path, box.crash(addr=base + 4096, code=2)))
    assert [(item.start, item.end) for item in spans(found, "guard")] == [
        (hex(base - 4096), hex(base)), (hex(base + 4096), hex(base + 8192)),
    ]  # fmt: skip


def test_freed_input_of_a_cuda_graph_is_shown_where_nothing_faulted(tmp_path: Path) -> None:
    """The process raised; the picture is of the memory that the graph lost."""
    box = Box(pid=101)
    by, drop = box.code("capture", s.SCRIPT, 30), box.code("drop", s.SCRIPT, 44)
    box.devices.segment(BASE, 20 * MIB)
    box.devices.alloc(BASE, MIB, by, box.epoch)
    box.devices.free(BASE, drop, box.epoch)
    box.devices.graph(1, by, replays=9, broken=3, captured_ns=box.now)
    box.devices.graph_input(1, BASE, MIB, by=by, freed_by=drop)
    job = s.load(tmp_path, box.at(500).exception("torch.AcceleratorError", "illegal memory access").exit(1))
    found = around(job)
    assert found is not None and (found.addr, found.what) == (hex(BASE), "cuda-graph-input")
    (block,) = spans(found)
    assert (block.state, block.device) == ("freed", "cuda:0")
    assert [item.device for item in spans(found, "segment")] == ["cuda:0"]
