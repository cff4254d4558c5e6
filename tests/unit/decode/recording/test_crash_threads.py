"""The threads that did not crash, the memory, the images and the messages of a crash."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytracer.decode.recording.reader import read_box
from pytracer.decode.types.journal import CppException, select
from pytracer.decode.types.snapshot import Crash, MemoryBlock, NativeFrame
from tests.support.synth import Box
from tests.support.synth_names import NUMBER, add_holders
from tests.support.synth_threads import HEAD, RING, OtherThread

LIBX, LIBY = "/lib/libx.so", "/lib/liby.so"
MAPPED = (0x4000, 0x6000, "r-xp", 0x1000, "/lib/mapped.so")


def crash(tmp_path: Path, **more: Any) -> Crash:
    box = Box(pid=7).crash(11, 0x10, **{"native": [(LIBX, 0x1100)], "mappings": [MAPPED], **more})
    found = read_box(box.write(tmp_path / "box.blackbox"))
    assert found.damage == ()
    assert found.crash is not None
    return found.crash


def test_thread_frames_are_placed_by_image_then_by_mapping(tmp_path: Path) -> None:
    """An image has a bias and a build id; the memory map knows an offset in the file only."""
    native: list[tuple[str | None, int]] = [(LIBY, 0x200), (None, 0x4010), (None, 0x9999)]
    found = crash(tmp_path, loaded=[LIBY], build_ids={LIBY: b"\2" * 20}, threads=[OtherThread(8, "gomp", native)])
    bias = Box().bias(LIBY)
    assert found.threads[0].native_stack == (
        NativeFrame(bias + 0x200, LIBY, 0x200, "02" * 20, "exact"),
        NativeFrame(0x4010, "/lib/mapped.so", 0x1010, None, "unwound", offset_is_file=True),
        NativeFrame(0x9999, None, None, None, "unwound"),
    )
    assert [image.path for image in found.images] == [LIBX, LIBY]


def test_frames_that_the_handler_could_not_place_are_placed_by_the_table(tmp_path: Path) -> None:
    """The image of a frame may be listed later, by the step that lists all of them."""
    at = Box().bias(LIBY) + 0x300
    found = crash(tmp_path, native=[(LIBX, 0x1100), (None, at)], loaded=[LIBY])
    assert found.native_stack[1].image == LIBY and found.native_stack[1].offset == 0x300


@pytest.mark.parametrize("matched", [True, False])
def test_numbers_of_the_main_thread_are_kept_where_another_one_crashed(matched: bool, tmp_path: Path) -> None:
    """gloo's thread runs no Python: then those of the others are known, each by its place in its own stack."""
    stack = [("step", "/job/train.py", 12), ("main", "/job/train.py", 20)]
    box = Box(pid=7).crash(6, 0, python=stack, python_matched=matched, other_python={8: stack})
    add_holders(box, [(NUMBER, "skipped", 0, 1), (NUMBER, "rows", 0, 3)])
    found = read_box(box.write(tmp_path / "box.blackbox")).crash
    assert found is not None
    own, others = ([(item.expression, item.depth) for item in items] for items in (found.numbers, found.other_numbers))
    assert own == ([("skipped", 1)] if matched else [])
    assert others == ([("rows", 1)] if matched else [("skipped", 1), ("rows", 1)])


@pytest.mark.parametrize("total", [HEAD - 1, HEAD, HEAD + 1, HEAD + RING, HEAD + RING + 5, 5000])
def test_deep_stack_keeps_both_ends_in_order(total: int, tmp_path: Path) -> None:
    """48 frames from the innermost on, 16 up to the outermost, and how many are missing between them."""
    kept = [*range(min(total, HEAD)), *range(max(HEAD, total - RING), total)]
    native: list[tuple[str | None, int]] = [(LIBX, 0x100 + number) for number in kept]
    stack = crash(tmp_path, threads=[OtherThread(8, native=native, total=total)]).threads[0]
    assert [frame.offset for frame in stack.native_stack] == [0x100 + number for number in kept]
    assert (stack.native_total, stack.gap) == (total, total - len(kept))


def test_guessed_frames_are_told_at_both_ends(tmp_path: Path) -> None:
    """From a depth on the stack was only scanned: the same frame is exact in one thread and a guess in another."""
    native: list[tuple[str | None, int]] = [(LIBX, 0x100)] * (HEAD + RING)
    threads = [OtherThread(8, native=native, total=100, guessed=(2, 3)), OtherThread(9, native=native[:2])]
    deep, plain = crash(tmp_path, threads=threads).threads
    assert [frame.found for frame in deep.native_stack] == ["exact", "unwound"] + ["scanned"] * (HEAD + RING - 2)
    assert [frame.found for frame in plain.native_stack] == ["exact", "unwound"]


def test_state_of_each_thread_is_told(tmp_path: Path) -> None:
    """Listed only, too slow, complete; the system call when it was inside of one."""
    threads = [
        OtherThread(7),  # the crashed one itself
        OtherThread(8, state=0, complete=0, stopped=0),
        OtherThread(9, "worker", state=2, complete=0, syscall=202, pthread=0x7E00),
        OtherThread(10, state=77),
    ]
    found = crash(tmp_path, threads=threads, threads_how=1, threads_total=12, helper=(5, 1))
    assert [(t.tid, t.state, t.complete, t.syscall, t.stopped) for t in found.threads] == [
        (8, "listed", False, None, False),
        (9, "walking", False, 202, True),
        (10, "listed", True, None, True),
    ]
    assert found.threads[1].pthread == 0x7E00 and found.threads[0].pthread is None
    assert (found.threads_how, found.threads_total, found.helper_error) == ("helper", 12, 1)


def test_words_and_memory_are_read(tmp_path: Path) -> None:
    """The abort text, the sender of the signal, the mapped file at the address, bytes near registers."""
    block = ("rdi", 0x7000, 0x6FF0, bytes(range(32)))
    found = crash(
        tmp_path, code=0, sender_pid=99, abort_text="free(): invalid pointer\n", sender_command=["kill", "-9", "7"],
        memory=[block], fault_file=(4096, 0, 0x01021994),
    )  # fmt: skip
    assert found.abort_text == "free(): invalid pointer"
    assert found.sender_command == ("kill", "-9", "7")
    assert found.memory == (MemoryBlock(*block),)
    assert (found.file_nbytes, found.file_room, found.file_system) == (4096, 0, 0x01021994)


def test_what_was_not_written_is_unknown(tmp_path: Path) -> None:
    """A step that did not run leaves zeros, one that found nothing ~0: neither is a size."""
    empty = crash(tmp_path)
    assert (empty.file_nbytes, empty.file_room, empty.file_system) == (None, None, None)
    unknown = crash(tmp_path, fault_file=((1 << 64) - 1, 5, 6))
    assert (unknown.file_nbytes, unknown.file_room) == (None, 5)
    assert (empty.abort_text, empty.sender_command, empty.helper_error, empty.threads_how) == (None, (), None, None)


def test_box_without_the_newer_regions_still_reads(tmp_path: Path) -> None:
    """As an older recorder wrote it."""
    box = Box(pid=7).crash(11, 0x10, native=[(LIBX, 0x1100)])
    for kind in (25, 26, 27):
        del box.crash_regions[kind]
    snapshot = read_box(box.write(tmp_path / "box.blackbox"))
    assert snapshot.crash is not None and snapshot.damage == ()
    assert replace(snapshot.crash, images=()) == replace(crash(tmp_path, mappings=[]), images=())


def test_cut_thread_frames_shorten_stacks_only(tmp_path: Path) -> None:
    """THREAD_FRAMES ends inside the second thread's slots."""
    threads = [OtherThread(tid, native=[(LIBX, 0x10)] * 4) for tid in (8, 9, 10)]
    box = Box(pid=7).crash(11, 0x10, threads=threads)
    kind, content = box.crash_regions[27]
    box.crash_regions[27] = kind, content[: 64 * 8 + 2 * 8 + 3]
    found = read_box(box.write(tmp_path / "box.blackbox")).crash
    assert found is not None
    assert [len(thread.native_stack) for thread in found.threads] == [4, 4, 0]


def test_cpp_exception_is_a_fact(tmp_path: Path) -> None:
    """Thread, type and what(); an empty type: nothing was thrown."""
    box = Box(pid=7).cpp_exception("std::runtime_error", "schön", tid=9).cpp_exception("")
    facts = read_box(box.write(tmp_path / "box.blackbox")).facts
    assert [fact.data for fact in select(facts, CppException)] == [
        CppException(tid=9, type="std::runtime_error", what="schön"),
        CppException(tid=7, type="", what=""),
    ]
