"""Bundles hold a run exactly, take little room, and can be read whatever their author made of them."""

from __future__ import annotations

import json
import os
import zipfile
from pathlib import Path

import pytest

from pytracer._errors import InputError
from pytracer.decode.formats import bundle as b
from tests.support.synth import Box, write_run


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_run(tmp_path / "run", Box(pid=101).at(5).crash(), Box(pid=102).at(6).exit(1), launcher={})


@pytest.fixture
def packed(run: Path, tmp_path: Path) -> Path:
    path = tmp_path / "run.pytracer"
    b.write_bundle(path, b"{}", {}, b.run_files(run))
    return path


def contents(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_every_file_of_the_run_comes_back_exactly(run: Path, packed: Path, tmp_path: Path) -> None:
    """And holes stay holes: the unpacked recordings take no more room than their content."""
    target = tmp_path / "unpacked"
    target.mkdir()
    b.unpack_bundle(packed, target)
    assert contents(target) == contents(run)
    used = sum(path.stat().st_blocks * 512 for path in target.rglob("*.blackbox"))
    assert used < sum(path.stat().st_size for path in target.rglob("*.blackbox")) / 2


def test_bundle_takes_a_tenth_of_its_recordings(run: Path, packed: Path) -> None:
    """What is empty in a recording takes no room."""
    assert packed.stat().st_size < sum(path.stat().st_size for path in run.rglob("*.blackbox")) / 10


def test_only_files_of_a_run_are_taken(run: Path) -> None:
    """Not a checkpoint beside the recordings, nor what a link leads to."""
    (run / "model.pt").write_bytes(b"weights")
    (run / "boxes" / "notes.txt").write_text("mine")
    (run / "boxes" / "x.1.blackbox").symlink_to("/etc/passwd")
    names = [name for name, _ in b.run_files(run)]
    assert names == ["run.json", "boxes/node0.101.blackbox", "boxes/node0.102.blackbox"]


def test_archive_of_another_kind_is_refused(tmp_path: Path) -> None:
    """A ZIP file without our manifest; a newer version."""
    other = tmp_path / "other.zip"
    with zipfile.ZipFile(other, "w") as archive:
        archive.writestr("a.txt", "hello")
    with pytest.raises(InputError, match="no bundle"):
        b.read_bundle(other)
    newer = tmp_path / "newer.pytracer"
    with zipfile.ZipFile(newer, "w") as archive:
        archive.writestr("manifest.json", json.dumps({"schema": b.SCHEMA, "version": 2}))
    with pytest.raises(InputError, match="newer pytracer"):
        b.read_bundle(newer)


@pytest.mark.parametrize(
    "name", ["../evil", "/etc/evil", "boxes/../../evil", "a/b/c", "boxes/.hidden", ".ssh", "boxes/", "a\nb"]
)
def test_names_that_lead_elsewhere_are_refused(name: str, tmp_path: Path) -> None:
    """Nothing is written outside the directory, nor hidden in it."""
    path = tmp_path / "evil.pytracer"
    b.write_bundle(path, b"{}", {}, [(name, b"content")])
    target = tmp_path / "deep" / "unpacked"
    target.mkdir(parents=True)
    with pytest.raises(InputError, match="no run directory has"):
        b.unpack_bundle(path, target)
    assert not contents(target) and sorted(os.listdir(tmp_path)) == ["deep", "evil.pytracer"]


def test_content_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, packed: Path) -> None:
    """A small file that unpacks to more than a disk holds."""
    monkeypatch.setattr(b, "_MOST_CONTENT", 4096)
    target = tmp_path / "unpacked"
    target.mkdir()
    with pytest.raises(InputError, match="too much content"):
        b.unpack_bundle(packed, target)


def test_damage_at_any_byte_is_one_error(packed: Path, tmp_path: Path) -> None:
    """Truncated or changed: an InputError, or the run as it was."""
    content = packed.read_bytes()
    broken = tmp_path / "broken.pytracer"
    for at in range(0, len(content), max(1, len(content) // 23)):
        for changed in (content[:at], content[:at] + bytes([content[at] ^ 0xFF]) + content[at + 1 :]):
            broken.write_bytes(changed)
            target = tmp_path / f"unpacked-{at}-{len(changed)}"
            target.mkdir()
            try:
                b.read_bundle(broken)
                b.unpack_bundle(broken, target)
            except InputError:
                continue


def test_recordings_and_directories_are_no_bundles(run: Path, tmp_path: Path) -> None:
    """By content, not by name."""
    assert not b.is_bundle(run) and not b.is_bundle(tmp_path / "missing")
    assert not b.is_bundle(run / "boxes" / "node0.101.blackbox")
