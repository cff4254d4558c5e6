"""`inspect` and `dump` on files that are missing, empty, cut off, foreign or newer: one line each, no traceback."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from tests.support.cli import only_line, pytracer
from tests.support.synth import Box

MAJOR_OFFSET = 8  # of `major` in the file header, after the magic


@pytest.fixture
def box(tmp_path: Path) -> Path:
    """A whole black box."""
    path = tmp_path / "node0.101.blackbox"
    Box(pid=101).write(path)
    return path


COMMANDS = pytest.mark.parametrize("command", ["inspect", "dump"])


@COMMANDS
def test_missing_file_is_one_line(command: str, tmp_path: Path) -> None:
    """A path that does not exist."""
    done = pytracer(command, "nowhere.blackbox", cwd=tmp_path)
    assert done.returncode in (1, 2)
    assert "nowhere.blackbox" in only_line(done)
    assert done.stdout == ""


@COMMANDS
@pytest.mark.parametrize(
    ("content", "words"),
    [(b"", "empty"), (b"\x7fELF" + b"\0" * 9000, "not a black box"), (b"text\n", "not a black box")],
    ids=["empty", "foreign", "short-and-foreign"],
)
def test_empty_or_foreign_file_is_one_line(command: str, content: bytes, words: str, tmp_path: Path) -> None:
    """A file that is no black box is named as such."""
    path = tmp_path / "x.blackbox"
    path.write_bytes(content)
    done = pytracer(command, path, cwd=tmp_path)
    assert done.returncode == 1
    line = only_line(done)
    assert words in line
    assert "x.blackbox" in line
    assert done.stdout == ""


@COMMANDS
def test_newer_major_version_is_one_line_with_the_next_step(command: str, box: Path) -> None:
    """A format from the future is refused, not guessed at."""
    data = bytearray(box.read_bytes())
    struct.pack_into("<H", data, MAJOR_OFFSET, 99)
    box.write_bytes(data)
    done = pytracer(command, box, cwd=box.parent)
    assert done.returncode == 1
    assert "99" in only_line(done)


@COMMANDS
@pytest.mark.parametrize("kept", [100, 511, 8192, 9000, 100_000])
def test_truncated_file_is_read_as_far_as_it_goes(command: str, kept: int, box: Path) -> None:
    """The remaining content is shown, and the cut is mentioned; no traceback."""
    box.write_bytes(box.read_bytes()[:kept])
    done = pytracer(command, box, cwd=box.parent)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert "cut off" in done.stdout + done.stderr


@COMMANDS
@pytest.mark.parametrize("kept", [1, 8])
def test_file_cut_before_its_version_is_one_line(command: str, kept: int, box: Path) -> None:
    """Without a version nothing can be read; one line reports it."""
    box.write_bytes(box.read_bytes()[:kept])
    done = pytracer(command, box, cwd=box.parent)
    assert done.returncode == 1
    assert box.name in only_line(done)


def test_directory_without_boxes_is_one_line(tmp_path: Path) -> None:
    """An empty run directory has a next step."""
    done = pytracer("inspect", tmp_path, cwd=tmp_path)
    assert done.returncode == 1
    assert "no black boxes in" in only_line(done)


@COMMANDS
def test_whole_box_has_json_alone_on_stdout(command: str, box: Path) -> None:
    """--json prints one object and nothing on stderr."""
    done = pytracer(command, box, "--json", cwd=box.parent)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("{")
