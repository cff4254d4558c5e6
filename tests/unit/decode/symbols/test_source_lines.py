"""File, line and inlined functions from real debug information."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from pytracer.decode.job.merge import load_job
from pytracer.decode.recording.reader import read_box
from pytracer.decode.symbols import source_lines
from pytracer.decode.symbols.stored import read_symbols, write_symbols
from pytracer.decode.symbols.symbolize import symbolize
from pytracer.decode.types.snapshot import Damage, NativeFrame
from tests.conditions import needs_compiler, needs_symbolic
from tests.support.synth import Box, write_run

pytestmark = [needs_compiler, needs_symbolic]

SOURCE = """\
static volatile int cells[4];
static inline __attribute__((always_inline)) int read_cell(int at) {
  return cells[at];
}
extern "C" int total(int from) {
  return read_cell(from) + 7;
}
int main(int count, char**) { return total(count); }
"""


def built(directory: Path, *flags: str) -> tuple[str, int, bytes]:
    """The image, the address of the load in total(), which was inlined, and the build id."""
    (directory / "cells.cpp").write_text(SOURCE)
    image = directory / "image"
    subprocess.run(
        ["g++", "-O1", "-g", *flags, "-Wl,--build-id=sha1", "-o", image, "cells.cpp"], cwd=directory, check=True
    )
    code = subprocess.run(
        ["objdump", "-d", "--no-show-raw-insn", "--disassemble=total", image],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    load = next(line for line in code.splitlines() if ",4)" in line and "mov" in line)
    notes = subprocess.run(["readelf", "-n", image], capture_output=True, text=True, check=True).stdout
    build_id = bytes.fromhex(notes.partition("Build ID: ")[2].split()[0])
    return str(image), int(load.partition(":")[0], 16), build_id


def crashed(directory: Path, image: str, offset: int, build_id: bytes) -> Box:
    return Box().crash(native=[(image, offset)], build_ids={image: build_id})


def innermost(box: Path) -> NativeFrame:
    crash = symbolize([read_box(box)])[0].crash
    assert crash is not None
    return crash.native_stack[0]


def shown(frame: NativeFrame) -> list[tuple[str, str, int | None]]:
    return [(item.function, Path(item.file or "").name, item.line) for item in frame.lines]


INLINED = [("read_cell", "cells.cpp", 3), ("total", "cells.cpp", 6)]


@pytest.mark.parametrize("flags", [("-shared", "-fPIC"), ("-no-pie",), ("-shared", "-fPIC", "-gz=zlib")], ids=" ".join)
def test_frame_has_its_line_and_the_functions_inlined_there(flags: tuple[str, ...], tmp_path: Path) -> None:
    """A library, a program at a fixed address, compressed debug information."""
    image, offset, build_id = built(tmp_path, *flags)
    frame = innermost(crashed(tmp_path, image, offset, build_id).write(tmp_path / "a.blackbox"))
    assert (frame.function, shown(frame)) == ("total", INLINED)


def test_separate_debug_file_has_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a distribution's debug packages install it, by build id."""
    image, offset, build_id = built(tmp_path, "-shared", "-fPIC")
    name = build_id.hex()
    folder = tmp_path / name[:2]
    folder.mkdir()
    subprocess.run(["objcopy", "--only-keep-debug", image, folder / f"{name[2:]}.debug"], check=True)
    subprocess.run(["strip", "--strip-debug", image], check=True)
    monkeypatch.setattr("pytracer.decode.symbols.symbolize.DEBUG_FILES", tmp_path)
    frame = innermost(crashed(tmp_path, image, offset, build_id).write(tmp_path / "a.blackbox"))
    assert shown(frame) == INLINED


def test_lines_are_stored_and_read_without_the_image(tmp_path: Path) -> None:
    """On another machine, also one without the library that reads debug information."""
    image, offset, build_id = built(tmp_path, "-shared", "-fPIC")
    run = write_run(tmp_path / "run", crashed(tmp_path, image, offset, build_id))
    write_symbols(load_job(run), run / "symbols.json")
    Path(image).unlink()
    crash = load_job(run).processes[0].snapshot.crash
    assert crash is not None
    assert shown(crash.native_stack[0]) == INLINED


def test_lines_that_are_no_lines_are_left_out(tmp_path: Path) -> None:
    """symbols.json has the author of the run directory."""
    path = tmp_path / "symbols.json"
    path.write_text('{"a:0x1": "f", "lines": {"a:0x1": [["f", 3, "x"]], "a:0x2": [["g", "g.c", 1]], "a:0x3": 7}}')
    damage: list[Damage] = []
    known = read_symbols(path, damage)
    assert (dict(known.names), list(known.lines), damage) == ({"a:0x1": "f"}, ["a:0x2"], [])


def test_damaged_debug_information_costs_only_the_lines(tmp_path: Path) -> None:
    """Each section of DWARF overwritten with what no compiler writes."""
    image, offset, build_id = built(tmp_path, "-shared", "-fPIC")
    for section in (".debug_info", ".debug_abbrev", ".debug_line", ".debug_str"):
        subprocess.run(["objcopy", "--dump-section", f"{section}={tmp_path / 'part'}", image], check=True)
        (tmp_path / "part").write_bytes(b"\xff" * (tmp_path / "part").stat().st_size)
        broken = tmp_path / f"broken{section}"
        subprocess.run(["objcopy", "--update-section", f"{section}={tmp_path / 'part'}", image, broken], check=True)
        frame = innermost(crashed(tmp_path, str(broken), offset, build_id).write(tmp_path / f"{section}.blackbox"))
        assert frame.function == "total"
        assert all(line.function for line in frame.lines)


def test_one_child_answers_for_all_images(tmp_path: Path) -> None:
    """Also after one that is no image at all; the descriptors stay open here, and are closed there."""
    image, offset, _ = built(tmp_path, "-shared", "-fPIC")
    (tmp_path / "none").write_bytes(b"\x7fELF" + bytes(1000))
    with open(image, "rb") as good, open(tmp_path / "none", "rb") as bad, source_lines.SourceLines() as reader:
        answers = [reader.of(file.fileno(), [offset]) for file in (good, bad, good)]
        (child,) = children()
        inside = [os.readlink(item) for item in Path(f"/proc/{child}/fd").iterdir()]
    assert [rows_shown(rows) for rows in answers] == [[INLINED], [], [INLINED]]
    assert not [path for path in inside if path.startswith(str(tmp_path))]
    assert not children()


def test_image_that_ends_the_child_costs_only_its_own_lines(tmp_path: Path) -> None:
    """The next image gets another child, with the time that is left."""
    image, offset, _ = built(tmp_path, "-shared", "-fPIC")
    with open(image, "rb") as file, source_lines.SourceLines() as reader:
        before = reader.of(file.fileno(), [offset])
        os.kill(children()[0], signal.SIGKILL)
        assert reader.of(file.fileno(), [offset]) == {}
        assert reader.of(file.fileno(), [offset]) == before != {}
        assert reader.wanted
    assert not children()


def children() -> list[int]:
    """Those that read debug information; the demangler has one, too."""
    everyone = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return [int(pid) for pid in everyone if b"source_lines.py" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def rows_shown(rows: source_lines.Rows) -> list[list[tuple[str, str, int | None]]]:
    return [
        [(name.partition("(")[0], Path(file or "").name, line) for name, file, line in found] for found in rows.values()
    ]


def test_child_that_takes_too_long_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No more images are looked up once the time limit of a job is used up."""
    image, offset, build_id = built(tmp_path, "-shared", "-fPIC")
    monkeypatch.setattr(source_lines, "_CPU_SECONDS", -1)
    frame = innermost(crashed(tmp_path, image, offset, build_id).write(tmp_path / "a.blackbox"))
    assert (frame.function, frame.lines) == ("total", ())
