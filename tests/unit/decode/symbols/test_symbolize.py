"""Function names from ELF symbols: only true ones."""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Any

import pytest

from pytracer.decode.job.merge import load_job
from pytracer.decode.recording.reader import read_box
from pytracer.decode.symbols.stored import write_symbols
from pytracer.decode.symbols.symbolize import symbolize
from pytracer.decode.types.snapshot import NativeFrame, Snapshot
from tests.support import elf
from tests.support.synth import Box, write_run
from tests.support.synth_threads import OtherThread

BUILD_ID = b"\x12" * 20
SYMBOLS = [
    ("_ZN2my3runEv", 0x1000, 0x100),
    ("inner", 0x1040, 0x10),
    ("tiny", 0x1200, 0x10),
    ("asm", 0x1300, 0),
    ("end", 0x1400, 8),
]


def snapshot(tmp_path: Path, path: str, *offsets: int, build_id: bytes = b"", **more: Any) -> Snapshot:
    box = Box().crash(native=[(path, o) for o in offsets], build_ids={path: build_id}, **more)
    return read_box(box.write(tmp_path / "a.blackbox"))


def frames(s: Snapshot) -> tuple[NativeFrame, ...]:
    assert s.crash is not None
    return symbolize([s])[0].crash.native_stack  # type: ignore[union-attr]


def names(s: Snapshot) -> list[str | None]:
    return [f.function for f in frames(s)]


def test_address_inside_a_symbol_has_its_demangled_name(tmp_path: Path) -> None:
    """The first byte belongs to it, the one behind the last does not; the innermost symbol wins."""
    path = elf.write(tmp_path / "l.so", elf.image(SYMBOLS))
    assert names(snapshot(tmp_path, path, 0x1000, 0x10FF, 0x1048, 0x1100, 0x120F, 0x1210)) == [
        "my::run()",
        "my::run()",
        "inner",
        None,
        "tiny",
        None,
    ]


def test_symbol_without_a_size_is_a_guess_up_to_the_next_one(tmp_path: Path) -> None:
    """Hand-written assembly; after the next symbol it is no longer named."""
    path = elf.write(tmp_path / "l.so", elf.image(SYMBOLS))
    found = frames(snapshot(tmp_path, path, 0x1310, 0x1000, 0x1409))
    assert [(f.function, f.function_found) for f in found] == [("asm", "guessed"), ("my::run()", "exact"), (None, None)]


def test_stripped_image_is_named_from_its_dynamic_symbols(tmp_path: Path) -> None:
    """And what is not exported has no name."""
    path = elf.write(tmp_path / "l.so", elf.image(dynamic=[("exported", 0x1000, 16)]))
    assert names(snapshot(tmp_path, path, 0x1008, 0x2000)) == ["exported", None]


def test_separate_debug_file_names_what_the_image_does_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By build id, as distributions install them; one of another build does not count."""
    monkeypatch.setattr("pytracer.decode.symbols.symbolize.DEBUG_FILES", tmp_path)
    path = elf.write(tmp_path / "l.so", elf.image(dynamic=[("exported", 0x1000, 16)], build_id=BUILD_ID))
    (tmp_path / "12").mkdir()
    debug = tmp_path / "12" / ("12" * 19 + ".debug")
    for build_id, name in ((BUILD_ID, "hidden"), (b"\x13" * 20, None)):
        debug.write_bytes(elf.image([("hidden", 0x2000, 16)], build_id=build_id))
        assert names(snapshot(tmp_path, path, 0x1000, 0x2008)) == ["exported", name]


def test_data_is_no_function(tmp_path: Path) -> None:
    """Only functions name code."""
    path = elf.write(tmp_path / "l.so", elf.image(objects=[("table", 0x1000, 0x100)]))
    assert names(snapshot(tmp_path, path, 0x1010)) == [None]


def test_other_build_gives_no_names_and_says_so(tmp_path: Path) -> None:
    """A rebuilt library has other functions at these addresses."""
    path = elf.write(tmp_path / "l.so", elf.image(SYMBOLS, build_id=b"\x34" * 20))
    s = symbolize([snapshot(tmp_path, path, 0x1000, build_id=BUILD_ID)])[0]
    assert s.crash is not None and s.crash.native_stack[0].function is None
    assert [d.file for d in s.damage] == ["l.so"]
    assert "not the image that was loaded" in s.damage[0].what


def test_same_build_id_gives_names(tmp_path: Path) -> None:
    """The recorded id is compared."""
    path = elf.write(tmp_path / "l.so", elf.image(SYMBOLS, build_id=BUILD_ID))
    assert names(snapshot(tmp_path, path, 0x1000, build_id=BUILD_ID)) == ["my::run()"]


def test_offset_in_the_file_is_moved_by_its_segment(tmp_path: Path) -> None:
    """Known from the memory map only: addresses and file offsets differ in most images."""
    path = elf.write(tmp_path / "l.so", elf.image(SYMBOLS, segment=(0x400, 0x1000, 0x1000)))
    s = snapshot(tmp_path, path, 0x1008, record_images=False, mappings=[])
    assert names(s) == [None]
    pc = s.crash.native_stack[0].pc  # type: ignore[union-attr]
    mappings = [(pc - 8, pc + 0x1000, "r-xp", 0x400, path)]
    assert names(snapshot(tmp_path, path, 0x1008, record_images=False, mappings=mappings)) == ["my::run()"]


@pytest.mark.parametrize("content", [b"", b"not an image", b"\x7fELF\x02\x01\x01", None])
def test_image_that_is_gone_or_no_image_gives_no_names(tmp_path: Path, content: bytes | None) -> None:
    """Nothing is raised."""
    path = tmp_path / "l.so"
    if content is not None:
        path.write_bytes(content)
    assert names(snapshot(tmp_path, str(path), 0x1000)) == [None]


def test_image_that_is_a_pipe_is_not_opened(tmp_path: Path) -> None:
    """A recording may name any file; opening a pipe would wait forever."""
    os.mkfifo(tmp_path / "pipe")
    assert names(snapshot(tmp_path, str(tmp_path / "pipe"), 0x1000)) == [None]


def test_damaged_images_never_raise(tmp_path: Path) -> None:
    """Every byte of the section headers set to 0xff, one after the other, and every cut."""
    good = elf.image(SYMBOLS, dynamic=SYMBOLS, build_id=BUILD_ID)
    path = tmp_path / "l.so"
    s = snapshot(tmp_path, str(path), 0x1000, 0x1310, build_id=BUILD_ID)
    (headers,) = struct.unpack_from("<Q", good, 40)
    for at in [*range(16, 64), *range(headers, len(good))]:
        path.write_bytes(good[:at] + b"\xff" + good[at + 1 :])
        names(s)
    for end in range(0, len(good), 7):
        path.write_bytes(good[:end])
        names(s)


def test_names_travel_with_the_run(tmp_path: Path) -> None:
    """`write_symbols` keeps them when the image is gone; guesses and images without a build id are left out."""
    path = elf.write(tmp_path / "l.so", elf.image(SYMBOLS, build_id=BUILD_ID))
    box = Box().crash(native=[(path, 0x1000), (path, 0x1310)], build_ids={path: BUILD_ID})
    run = write_run(tmp_path / "run", box)
    assert write_symbols(load_job(run), run / "symbols.json") == 1
    os.unlink(path)
    crash = load_job(run).processes[0].snapshot.crash
    assert crash is not None
    assert [f.function for f in crash.native_stack] == ["my::run()", None]


def test_stacks_of_other_threads_are_named_as_well(tmp_path: Path) -> None:
    """Each place is looked up once, however many threads wait there; the names are stored with the run."""
    path = elf.write(tmp_path / "l.so", elf.image(SYMBOLS, build_id=BUILD_ID))
    threads = [OtherThread(200 + n, native=[(path, 0x1000), (path, 0x1200)]) for n in range(3)]
    box = Box().crash(native=[(path, 0x1200)], build_ids={path: BUILD_ID}, threads=threads)
    run = write_run(tmp_path / "run", box)
    assert write_symbols(load_job(run), run / "symbols.json") == 2
    os.unlink(path)
    crash = load_job(run).processes[0].snapshot.crash
    assert crash is not None
    assert [[f.function for f in t.native_stack] for t in crash.threads] == [["my::run()", "tiny"]] * 3


def test_code_that_registers_and_the_stack_point_at_is_named(tmp_path: Path) -> None:
    """A return address has a function also where the stack could not be unwound; data has none."""
    path = elf.write(tmp_path / "l.so", elf.image(SYMBOLS))
    box = Box()
    bias, sp = box.bias(path), 0x7FFC_0000_0000
    maps = [(bias, bias + 0x2000, "r-xp", 0, path), (bias + 0x2000, bias + 0x4000, "rw-p", 0x2000, path)]
    words = b"".join(word.to_bytes(8, "little") for word in (bias + 0x1208, 7, bias + 0x3000))
    box.crash(
        native=[(path, 0x1048)], mappings=maps, registers={"rdi": bias + 0x1000, "rsp": sp},
        memory=[("rsp", sp, sp - 3, b"xyz" + words), ("rdi", bias, bias, words)],
    )  # fmt: skip
    crash = symbolize([read_box(box.write(tmp_path / "a.blackbox"))])[0].crash
    assert crash is not None
    assert [(f.offset, f.function) for f in crash.code_pointers] == [
        (0x1000, "my::run()"),
        (0x1048, "inner"),
        (0x1208, "tiny"),
    ]
