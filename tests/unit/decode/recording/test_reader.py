"""`read_box` on synthetic recordings: what is read, and what each kind of damage loses."""

from __future__ import annotations

import dataclasses
import os
import struct
import time
from pathlib import Path

import pytest

from pytracer._errors import InputError
from pytracer.decode.recording.reader import read_box
from pytracer.decode.types.journal import Uninterpreted
from pytracer.decode.types.records import Node, Text
from pytracer.decode.types.snapshot import PythonFrame, Snapshot, Storage
from tests.conditions import needs_user
from tests.support.records import data_of
from tests.support.synth import Box

BASE = 0x7F00_0000_0000


def read(box: Box, directory: Path) -> Snapshot:
    return read_box(box.write(directory / "a.blackbox"))


def storage(snapshot: Snapshot, base: int) -> Storage:
    (found,) = [s for s in snapshot.storages if s.base == base]
    return found


def patched(box: Box, directory: Path, *changes: tuple[int, bytes]) -> Snapshot:
    content = bytearray(box.content())
    for offset, data in changes:
        content[offset : offset + len(data)] = data
    path = directory / "a.blackbox"
    path.write_bytes(content)
    return read_box(path)


def region_offset(content: bytes, kind: int) -> int:
    (count,) = struct.unpack_from("<I", content, 76)
    for i in range(count):
        k, _, offset = struct.unpack_from("<IIQ", content, 512 + 40 * i)
        if k == kind:
            return int(offset)
    raise AssertionError(kind)


# What is read


def test_identity_and_environment_are_read(tmp_path: Path) -> None:
    """Header, PROCESS, ENVIRONMENT, VERSIONS and RANK arrive."""
    box = Box(pid=7, ppid=6, rank=1, host="h", argv=["python", "-m", "x"], environment={"A": "b=c"})
    s = read(box.versions(python="3.11.9", torch="2.13.0", cuda=None), tmp_path)
    assert (s.pid, s.ppid, s.host, s.arch, s.version, s.state) == (7, 6, "h", "x86-64", (1, 0), "RECORDING")
    assert s.argv == ("python", "-m", "x")
    assert s.environment["A"] == "b=c"
    assert s.environment["RANK"] == "1"
    assert s.rank is not None and s.rank.rank == 1
    assert s.versions.torch == "2.13.0"
    assert (s.exit_code, s.exit_mono_ns, s.step, s.crash, s.damage) == (None, None, None, None, ())


def test_exit_code_counts_only_after_exit(tmp_path: Path) -> None:
    """State EXITING makes it valid."""
    assert read(Box().at(5).exit(3), tmp_path).exit_code == 3
    assert read(Box(), tmp_path).exit_code is None


def test_live_storage_names_its_python_line_and_time(tmp_path: Path) -> None:
    """site_id leads to CODE, the offset to the line, the epoch to time and step."""
    box = Box().step(4)
    box.alloc(BASE, 4096, by=("train", "train.py", 42))
    s = storage(read(box, tmp_path), BASE)
    assert (s.nbytes, s.state, s.freed, s.freed_by) == (4096, "live", None, None)
    assert s.allocated_by.python == PythonFrame("train", "train.py", 42)
    assert s.allocated.step == 4
    assert s.allocated.mono_ns is not None and s.allocated.mono_ns >= box.created_ns
    assert s.allocated_thread == box.pid


def test_freed_storage_keeps_both_ends(tmp_path: Path) -> None:
    """A freed storage has the call sites of allocation and free, small or large, on every thread."""
    box = Box()
    for base, nbytes in ((BASE, 4096), (BASE + 0x1000000, 1 << 20)):
        box.alloc(base, nbytes, by=("f", "f.py", 9))
        box.later(5).free(base, by=box.node("N5torch8autograd9generated12MulBackward0E", 17), tid=555)
    s = read(box, tmp_path)
    for base in (BASE, BASE + 0x1000000):
        life = storage(s, base)
        assert life.state == "freed"
        assert life.freed_by is not None
        assert (life.freed_by.node, life.freed_by.node_sequence_nr) == ("MulBackward0", 17)
        assert (life.allocated_thread, life.freed_thread) == (box.pid, 555)
        assert life.freed is not None and life.allocated.mono_ns is not None and life.freed.mono_ns is not None
        assert life.freed.mono_ns > life.allocated.mono_ns


def test_site_gives_inner_frame_caller_and_node(tmp_path: Path) -> None:
    """Large storages know the first frame outside torch."""
    box = Box()
    box.alloc(BASE, 1 << 20, by=box.site(("relu", "torch/nn.py", 5), ("main", "train.py", 77), "AddBackward0", 9))
    who = storage(read(box, tmp_path), BASE).allocated_by
    assert who.python == PythonFrame("relu", "torch/nn.py", 5)
    assert who.caller == PythonFrame("main", "train.py", 77)
    assert (who.node, who.node_sequence_nr) == ("AddBackward0", 9)


def test_node_without_a_sequence_number_has_none(tmp_path: Path) -> None:
    """AccumulateGrad's number is all ones."""
    box = Box()
    box.alloc(BASE, 64, by=box.node("AccumulateGrad", 0xFFFFFFFF))
    assert storage(read(box, tmp_path), BASE).allocated_by.node_sequence_nr is None


def test_storage_in_ring_and_slot_is_freed_once(tmp_path: Path) -> None:
    """The writer died after writing the lifetime and before emptying the slot."""
    s = read(Box().alloc(BASE, 64).free(BASE, keep_live=True), tmp_path)
    assert storage(s, BASE).state == "freed"
    assert s.counts["storages_being_freed"] == 1


def test_address_used_again_is_live_and_freed(tmp_path: Path) -> None:
    """An old lifetime in the ring does not hide the new one."""
    s = read(Box().alloc(BASE, 64).free(BASE).alloc(BASE, 128), tmp_path)
    assert sorted((x.state, x.nbytes) for x in s.storages) == [("freed", 64), ("live", 128)]


def test_busy_slot_is_counted_and_no_storage(tmp_path: Path) -> None:
    """Its writer died while filling it."""
    s = read(Box().alloc(BASE, 64).busy(BASE + 64), tmp_path)
    assert (len(s.storages), s.counts["busy_slots"], s.counts["live_storages"]) == (1, 1, 1)


def test_records_of_all_threads_come_oldest_first(tmp_path: Path) -> None:
    """One ring per thread, merged by time."""
    s = read(Box().mark("a").mark("b", tid=9).event("NODE", "MulBackward0", 4, [BASE]).mark("c", tid=9), tmp_path)
    assert [getattr(e.data, "text", None) or getattr(e.data, "name", None) for e in s.events] == [
        "a",
        "b",
        "MulBackward0",
        "c",
    ]
    assert [node.storages for node in data_of(s.events, Node)] == [(BASE,)]
    assert [t.tid for t in s.threads] == [101, 9]


def test_ring_keeps_the_newest_records(tmp_path: Path) -> None:
    """The oldest are overwritten, and counted."""
    box = Box(records_per_thread=16)
    for i in range(40):
        box.mark(str(i))
    s = read(box, tmp_path)
    assert [mark.text for mark in data_of(s.events, Text)] == [str(i) for i in range(24, 40)]
    assert s.counts["overwritten_records"] == 24
    assert s.counts["torn_records"] == 0


def test_many_threads_span_chunks(tmp_path: Path) -> None:
    """Each chunk of contexts brings its own rings."""
    box = Box(threads_per_chunk=2, records_per_thread=8, freed_per_thread=16)
    for tid in range(1000, 1009):
        box.mark(str(tid), tid=tid).freed(BASE + tid * 64, 64, tid=tid)
    s = read(box, tmp_path)
    assert [e.tid for e in s.events] == list(range(1000, 1009))
    assert {x.freed_thread for x in s.storages} == set(range(1000, 1009))


def test_collectives_are_paired_across_threads(tmp_path: Path) -> None:
    """Started on one thread, completed on another; the last one is still open."""
    box = Box().collective("gloo:all_reduce", addr=BASE, nbytes=4096, state="completed")
    s = read(box.collective("gloo:broadcast", addr=BASE + 64, nbytes=64, sizes=[4, 4]), tmp_path)
    first, last = s.collectives
    assert (first.op, first.backend, first.state, first.tid) == ("all_reduce", "gloo", "completed", box.pid)
    assert first.started_ns is not None and first.completed_ns is not None
    assert first.completed_ns > first.started_ns
    assert (last.op, last.state, last.sizes, last.buffer_addr) == ("broadcast", "started", (4, 4), BASE + 64)
    assert last.completed_ns is None


def test_failed_collective_is_neither_open_nor_completed(tmp_path: Path) -> None:
    """It raised, for example because the other side closed the connection."""
    (c,) = read(Box().collective("gloo:all_reduce", state="failed"), tmp_path).collectives
    assert c.state == "failed"
    assert c.started_ns is not None and c.completed_ns is not None


def test_time_of_an_overtaken_collective_is_not_that_of_the_newer_one(tmp_path: Path) -> None:
    """A thread that the ring overtook stored its time in a slot that already belonged to another collective."""
    box = Box()
    box.collective("gloo:all_reduce", ended_ns=box.now)
    (c,) = read(box, tmp_path).collectives
    assert c.state == "started" and c.started_ns is not None
    assert c.completed_ns is None


def test_waits_tell_exit_codes_from_signals(tmp_path: Path) -> None:
    """Wait status and siginfo mean the same; a stopped child has not ended."""
    box = Box().wait(1, exit_code=3).wait(2, signal=9).wait(3, exit_code=4, waitid=True).wait(4, signal=6, waitid=True)
    box.entry(4, struct.pack("<iiiIQ", 5, 0x137F, 0, 0, 0))
    s = read(box, tmp_path)
    assert [(w.pid, w.exit_code, w.signal) for w in s.waits] == [(1, 3, None), (2, None, 9), (3, 4, None), (4, None, 6)]


def test_crash_section_is_read(tmp_path: Path) -> None:
    """Signal, registers, stacks, mappings, hits and other crashed threads."""
    box = Box().freed(BASE, 4096, by=("a", "a.py", 3), freed_by=("b", "b.py", 4))
    box.crash(
        addr=BASE + 16, node="N5torch8autograd9generated12MulBackward0E", node_sequence_nr=5, registers={"rdi": 99},
        python=[("inner", "t.py", 30), ("outer", "t.py", 9)], other_python={0x1234: [("wait", "w.py", 2)]},
        native=[("/lib/libx.so", 0x1100), ("/lib/libx.so", 0x2200, 3)], build_ids={"/lib/libx.so": b"\xab" * 20},
        mappings=[(0x1000, 0x2000, "r-xp", 0x400, "/bin/a b")], code_bytes=b"\x8b\x07", stack=(0x10000, 0x20000),
        also=[(102, 11, 1, 0x55, 0x66)], error_code=6,
    )  # fmt: skip
    s = read(box, tmp_path)
    c = s.crash
    assert s.state == "CRASHED"
    assert c is not None
    assert (c.signal, c.code, c.fault_addr, c.complete, c.repaired) == (11, 1, BASE + 16, True, False)
    assert (c.node, c.node_sequence_nr, c.error_code, c.stack) == ("MulBackward0", 5, 6, (0x10000, 0x20000))
    assert (c.registers["rdi"], c.registers["rip"], c.code_bytes) == (99, c.pc, b"\x8b\x07")
    assert c.python_stack == (PythonFrame("inner", "t.py", 30), PythonFrame("outer", "t.py", 9))
    assert c.python_threads[1] == (0x1234, (PythonFrame("wait", "w.py", 2),))
    assert [(f.image, f.offset, f.build_id, f.found) for f in c.native_stack] == [
        ("/lib/libx.so", 0x1100, "ab" * 20, "exact"),
        ("/lib/libx.so", 0x2200, "ab" * 20, "scanned"),
    ]
    assert (c.mappings[0].path, c.mappings[0].offset) == ("/bin/a b", 0x400)
    assert [(h.kind, h.storage.base, h.storage.state) for h in c.hits] == [("covering", BASE, "freed")]
    assert (c.also_crashed[0].tid, c.also_crashed[0].fault_addr) == (102, 0x66)
    assert c.steps_done[0] == "SIGNAL" and c.steps_done[-1] == "MAPS"


def test_sender_is_told_for_sent_signals_only(tmp_path: Path) -> None:
    """For a fault these bytes of siginfo mean something else."""
    assert read(Box().crash(signal=6, code=-6, sender_pid=77), tmp_path).crash.sender_pid == 77  # type: ignore[union-attr]
    assert read(Box().crash(signal=11, code=1, sender_pid=77), tmp_path).crash.sender_pid is None  # type: ignore[union-attr]


def test_frame_without_image_entry_is_placed_by_the_mappings(tmp_path: Path) -> None:
    """Then the offset is in bytes of the file, and marked as such."""
    mappings = [(0x5000, 0x9000, "r-xp", 0x1000, "/lib/liby.so")]
    crash = read(Box().crash(native=[(None, 0x5010), (None, 0x20)], mappings=mappings), tmp_path).crash
    assert crash is not None
    first, second = crash.native_stack
    assert (first.image, first.offset, first.offset_is_file) == ("/lib/liby.so", 0x1010, True)
    assert (second.image, second.offset) == (None, None)


def test_unmatched_python_threads_are_not_the_crashed_ones(tmp_path: Path) -> None:
    """A thread without a Python state has no Python stack, even when others have."""
    crash = read(Box().crash(python=(), python_matched=False, other_python={5: [("f", "f.py", 1)]}), tmp_path).crash
    assert crash is not None
    assert crash.python_stack == ()
    assert len(crash.python_threads) == 1


@pytest.mark.parametrize("total", [5, 128, 129, 159, 160, 161, 400])
def test_deep_native_stack_keeps_both_ends_in_order(tmp_path: Path, total: int) -> None:
    """128 innermost frames, then a ring of the 32 outermost ones."""
    kept = list(range(total)) if total <= 160 else [*range(128), *range(total - 32, total)]
    native = [("/lib/x.so", n) for n in kept]
    crash = read(Box().crash(native=native, native_total=total), tmp_path).crash
    assert crash is not None
    assert [f.offset for f in crash.native_stack] == kept
    assert (crash.native_total, crash.native_gap) == (total, total - len(kept))
    assert crash.native_tail == max(0, len(kept) - 128)


def test_inherited_storage_has_no_thread(tmp_path: Path) -> None:
    """A forked child numbers its threads anew; the index of an inherited storage is the parent's."""
    child = Box().alloc(BASE, 64, tid=555).fork(7).alloc(BASE + 64, 64)
    s = read(child, tmp_path)
    assert [storage(s, BASE + n).allocated_thread for n in (0, 64)] == [None, 7]


def test_claimed_crash_is_incomplete(tmp_path: Path) -> None:
    """The handler began, and did not finish."""
    crash = read(Box().crash(state=1), tmp_path).crash
    assert crash is not None
    assert (crash.complete, crash.steps_done) == (False, ("SIGNAL",))


def test_unicode_names_of_all_widths_are_read(tmp_path: Path) -> None:
    """Python strings lie in the file as in memory: 1, 2 or 4 bytes per character."""
    box, names = Box(), ["caf\u00e9", "\u03b1\u03b2", "\U0001f600x"]
    for i, (name, kind, coding) in enumerate(zip(names, (1, 2, 4), ("latin-1", "utf-16-le", "utf-32-le"), strict=True)):
        data = name.encode(coding)
        head = struct.pack("<iHBBIIII", 1, 11, kind, kind, len(data), len(data), 0, 0)
        box.alloc(BASE + i * 64, 64, by=type(box.node("x"))(box.entry(16, head + data + data), 0))
    s = read(box, tmp_path)
    who = [storage(s, BASE + i * 64).allocated_by.python for i in range(3)]
    assert [w.function for w in who if w] == names


# Damage


def test_torn_journal_entry_costs_only_itself(tmp_path: Path) -> None:
    """Entries after one that was never published are still found."""
    box = Box().note("before")
    box.entry(3, b"torn" * 9, published=0)
    s = read(box.note("after"), tmp_path)
    assert [note.text for note in s.notes] == ["before", "after"]
    assert s.counts["torn_entries"] == 1
    assert [d.what for d in s.damage] == ["a journal entry was not finished"]


def test_reader_finds_entries_behind_an_overwritten_header(tmp_path: Path) -> None:
    """With the size gone, the next entry is searched."""
    box = Box().note("before")
    torn = box.entry(3, b"torn") * 8
    box.note("after")
    at = region_offset(box.content(), 1) + torn
    s = patched(box, tmp_path, (at, b"\xff" * 24))
    assert [note.text for note in s.notes] == ["before", "after"]


def test_unreadable_json_entry_is_damage_and_the_rest_is_read(tmp_path: Path) -> None:
    """Neither broken JSON nor a wrong shape reaches the rules."""
    box = Box()
    box.entry(35, b'{"module": "m", "generation": 1, "buckets": [{"index": "zero"}]}')
    box.entry(33, b"{" * 100_0)
    s = read(box.note("after"), tmp_path)
    assert [f.kind for f in s.facts] == ["PROCESS", "ENVIRONMENT", "NOTE"]
    assert len(s.damage) == 2
    assert s.damage[0].what.startswith("the BUCKETS entry cannot be read")


def test_unknown_kinds_are_skipped(tmp_path: Path) -> None:
    """A newer minor version may add records, entries and regions."""
    box = Box().record(99, b"?").mark("known")
    box.entry(77, b"?")
    box.crash_regions[90] = (4, b"1234")
    s = read(box, tmp_path)
    assert [mark.text for mark in data_of(s.events, Text)] == ["known"]
    assert s.counts["unknown_records"] == 1
    assert [f.data for f in s.facts if f.kind == "UNKNOWN_77"] == [Uninterpreted(b"?")]
    assert s.damage == ()


def test_reader_keeps_records_before_torn_one(tmp_path: Path) -> None:
    """Order 0 marks a record that was being written."""
    box = Box().mark("a").mark("b").mark("c")
    s = patched(box, tmp_path, (region_offset(box.content(), 4) + 128, bytes(4)))
    assert [mark.text for mark in data_of(s.events, Text)] == ["a", "c"]
    assert s.counts["torn_records"] == 1


def test_record_in_the_wrong_slot_is_torn(tmp_path: Path) -> None:
    """`order` has to agree with the slot."""
    box = Box().mark("a").mark("b")
    s = patched(box, tmp_path, (region_offset(box.content(), 4) + 128, struct.pack("<I", 7)))
    assert [mark.text for mark in data_of(s.events, Text)] == ["a"]
    assert s.counts["torn_records"] == 1


def test_half_written_lifetime_is_counted(tmp_path: Path) -> None:
    """Its order is stored last."""
    box = Box().freed(BASE, 64).freed(BASE + 64, 64)
    s = patched(box, tmp_path, (region_offset(box.content(), 5) + 16, bytes(4)))
    assert [x.base for x in s.storages] == [BASE + 64]
    assert s.counts["torn_graves"] == 1


def test_cut_off_file_says_where_and_keeps_what_lies_before(tmp_path: Path) -> None:
    """The message names both sizes."""
    box = Box(rank=3).note("kept").crash()
    content = box.content()
    path = tmp_path / "rank3.blackbox"
    path.write_bytes(content[:300_000])
    s = read_box(path)
    assert s.rank is not None
    assert [note.text for note in s.notes] == ["kept"]
    assert s.damage[0].file == "rank3.blackbox"
    assert s.damage[0].what == f"cut off at byte 300000 of {len(content)}; the records before it were read"


def test_overlapping_and_impossible_regions_are_skipped(tmp_path: Path) -> None:
    """No region may take more memory than the size of the file."""
    box = Box().note("kept")
    s = patched(
        box, tmp_path,
        (512 + 40 * 1 + 8, struct.pack("<Q", 8192)),
        (512 + 40 * 2 + 8, struct.pack("<Q", 1 << 63)),
        (512 + 40 * 3 + 4, struct.pack("<I", 0)),
    )  # fmt: skip
    assert [note.text for note in s.notes] == ["kept"]
    assert ["overlaps" in d.what for d in s.damage] == [True, False, False]


def test_announced_counts_are_not_believed(tmp_path: Path) -> None:
    """Four billion frames are as many as the region holds."""
    box = Box().crash(native=[("/lib/x.so", 1)], python=[("f", "f.py", 1)])
    at = region_offset(box.content(), 16)
    changes = [(at + o, b"\xff\xff\xff\x7f") for o in (564, 680, 700, 704, 716, 720)]
    began = time.monotonic()
    s = patched(box, tmp_path, (76, b"\xff\xff\xff\xff"), (80, b"\xff" * 8), *changes)
    assert time.monotonic() - began < 5
    assert s.crash is not None and s.crash.native_stack[0].image == "/lib/x.so"
    assert s.damage


def test_epoch_that_was_overwritten_has_no_time(tmp_path: Path) -> None:
    """The clock's epochs are overwritten, which is reported; journal entries keep their own times."""
    box = Box(epoch_slots=16)
    box.later(1).alloc(BASE, 64)
    for _ in range(40):
        box.later(1)
    moment = storage(read(box, tmp_path), BASE).allocated
    assert (moment.mono_ns, moment.step) == (None, None)


# Refusals


@pytest.mark.parametrize(
    ("content", "what", "hint"),
    [
        (b"", "is empty", "disk was full"),
        (b"\x7fELF" + bytes(5000), "is not a black box", "*.blackbox file"),
        (b"\x89pytrc\n" + bytes(600), "text mode", "binary mode"),
        (b"\x89pytrc\r\n\x01", "cut off at byte 9", "copy the file again"),
    ],
)
def test_foreign_files_are_refused_with_the_next_step(tmp_path: Path, content: bytes, what: str, hint: str) -> None:
    """One sentence: which file, what is wrong, what to do."""
    path = tmp_path / "x.blackbox"
    path.write_bytes(content)
    with pytest.raises(InputError) as error:
        read_box(path)
    assert str(path) in str(error.value)
    assert what in str(error.value)
    assert hint in error.value.hint


def test_newer_major_version_is_refused_and_newer_minor_read(tmp_path: Path) -> None:
    """A changed meaning cannot be guessed; a new field can be skipped."""
    box = Box()
    box.minor = 9
    assert read(box, tmp_path).version == (1, 9)
    box.major = 2
    with pytest.raises(InputError, match=r"format 2\.9.*newer pytracer"):
        read(box, tmp_path)


def test_missing_file_directory_and_pipe_are_refused(tmp_path: Path) -> None:
    """None of them may block or leave a traceback."""
    os.mkfifo(tmp_path / "pipe")
    for name, what in (("nothing", "does not exist"), (".", "is a directory"), ("pipe", "is not a regular file")):
        with pytest.raises(InputError, match=what):
            read_box(tmp_path / name)


@needs_user
def test_unreadable_file_is_refused(tmp_path: Path) -> None:
    """The system's error is reported."""
    path = Box().write(tmp_path / "a.blackbox")
    path.chmod(0)
    with pytest.raises(InputError, match="cannot be read: Permission denied"):
        read_box(path)


def test_full_table_is_read_quickly(tmp_path: Path) -> None:
    """2^16 slots, a third of them live; the bound is loose, it catches a missing cache, not a slow machine."""
    box = Box(slots_log2=16, threads_per_chunk=16, journal_bytes=1 << 20)
    for i in range(20_000):
        box.alloc(BASE + i * 64, 64, by=(f"f{i % 40}", "f.py", 10))
    path = box.write(tmp_path / "a.blackbox")
    began = time.process_time()
    s = read_box(path)
    assert time.process_time() - began < 3
    assert len(s.storages) == 20_000


def test_snapshot_is_plain_data(tmp_path: Path) -> None:
    """It can be turned into dicts as a whole."""
    assert dataclasses.asdict(read(Box(rank=0).crash(python=[("f", "f.py", 1)]), tmp_path))["pid"] == 101
