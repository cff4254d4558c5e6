"""The recording of a real crash, cut off and changed: what is left is read; what cannot be is one line."""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from pytracer.blackbox import codec, schema
from pytracer.cli import main
from tests.conditions import needs_core, needs_native
from tests.support.crash import EXAMPLES, ended, preloaded

pytestmark = [needs_core, needs_native]

COMMANDS = pytest.mark.parametrize("command", ["inspect", "dump"])
HEADER = codec.layout(schema.FILE_HEADER).nbytes


@pytest.fixture(scope="module")
def whole(runs: Callable[[], Path]) -> bytes:
    """The recording of a training script that died of a null pointer."""
    import sys

    run = runs()
    done = ended([sys.executable, EXAMPLES / "null_in_step.py"], preloaded(run), run)
    assert done.status == -11
    return Path(done.box.path).read_bytes()


def called(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """One command line, run here: its exit code and both streams."""
    code = main(list(arguments))
    out, err = capsys.readouterr()
    assert "Traceback" not in err
    assert "a bug in pytracer" not in err
    return code, out, err


def offsets(size: int) -> list[int]:
    """Where to cut: in the header and the first structures, at and around page borders, and at random."""
    chosen = {0, 1, 7, 8, 9, 11, 12, 16, HEADER - 1, HEADER, HEADER + 1, 4095, 4096, 8191, 8192, 8193, size - 1}
    chosen |= {
        page * 4096 + extra for page in random.Random(5).sample(range(2, size // 4096), 40) for extra in (-1, 0, 1)
    }
    chosen |= set(random.Random(7).sample(range(size), 40))
    return sorted(chosen)


def test_whole_box_is_read(whole: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The reference for the tests below."""
    box = tmp_path / "node.1.blackbox"
    box.write_bytes(whole)
    code, out, err = called(capsys, "inspect", str(box), "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["verdict"]["class"] == "null-dereference"
    assert json.loads(out)["damage"] == []


@pytest.mark.slow
def test_box_may_be_cut_off_anywhere(whole: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """At every offset either the report mentions the cut, or one line gives the reason why there is none."""
    box = tmp_path / "node.1.blackbox"
    read = 0
    for offset in offsets(len(whole)):
        box.write_bytes(whole[:offset])
        for command in ("inspect", "dump"):
            code, out, err = called(capsys, command, str(box), "--json")
            if code == 0:
                assert err == "", offset
                assert json.loads(out)["damage"], offset
                read += 1
            else:
                assert (code, out, err.count("\n")) == (1, "", 1), offset
                assert str(box) in err
                assert offset < 12
    assert read > 100


def test_crash_survives_the_loss_of_the_end(whole: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Signal, address and Python stack are in the first regions: a file that lost its last tenth still has them."""
    box = tmp_path / "node.1.blackbox"
    box.write_bytes(whole[: len(whole) * 9 // 10])
    code, out, _ = called(capsys, "inspect", str(box), "--json")
    report = json.loads(out)
    assert code == 0
    assert report["verdict"]["class"] == "null-dereference"
    assert report["processes"][0]["fault"]["addr"] == "0x18"
    assert report["processes"][0]["python_stack"][0]["function"] == "string_at"


def test_box_may_have_changed_anywhere(whole: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Bytes overwritten at random, also many: an answer or one line, never a traceback."""
    box = tmp_path / "node.1.blackbox"
    for seed in range(25):
        generator = random.Random(seed)
        data = bytearray(whole)
        for _ in range(generator.choice((1, 10, 1000))):
            at = generator.randrange(12, generator.choice((HEADER, 8192, len(data) - 64)))
            data[at : at + 8] = generator.randbytes(8)
        box.write_bytes(data)
        for command in ("inspect", "dump"):
            code, out, err = called(capsys, command, str(box), "--json")
            assert code in (0, 1), (seed, err)
            assert (out != "") == (code == 0), seed
            assert err.count("\n") <= 1, (seed, err)


@COMMANDS
def test_missing_box_is_one_line(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The path is named."""
    code, out, err = called(capsys, command, str(tmp_path / "node.1.blackbox"))
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert "node.1.blackbox" in err


@COMMANDS
def test_empty_box_is_one_line(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An empty file, as a full disk leaves it."""
    box = tmp_path / "node.1.blackbox"
    box.write_bytes(b"")
    code, out, err = called(capsys, command, str(box))
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert "empty" in err


@COMMANDS
def test_box_that_was_never_begun_is_one_line(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A process that is killed while it makes its recording leaves zeros."""
    box = tmp_path / "node.1.blackbox"
    box.write_bytes(bytes(1 << 20))
    code, out, err = called(capsys, command, str(box))
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert "was killed while it made this black box" in err


@COMMANDS
def test_foreign_file_is_one_line(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Another kind of file with the right name."""
    box = tmp_path / "node.1.blackbox"
    box.write_bytes(Path(__file__).read_bytes())
    code, out, err = called(capsys, command, str(box))
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert "is not a black box" in err


@COMMANDS
def test_newer_format_is_one_line(
    command: str, whole: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A recording of a later major version names both versions and the next step."""
    box = tmp_path / "node.1.blackbox"
    data = bytearray(whole)
    struct.pack_into("<H", data, 8, schema.MAJOR + 1)
    box.write_bytes(data)
    code, out, err = called(capsys, command, str(box))
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert f"format {schema.MAJOR + 1}." in err
    assert "install a newer pytracer" in err
