"""Files of a run directory inside a directory prepared by another user."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from pytracer._errors import RecordingError
from pytracer._private_files import copy_private, made_directory, private_directory, write_private
from pytracer.launcher import run_directory
from pytracer.launcher.gpu_core import gpu_core_variables

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")


def test_link_prepared_beside_the_file_is_not_followed(tmp_path: Path) -> None:
    """A link under the temporary name, or under the final one, is replaced; its target is unchanged."""
    victim = tmp_path / "victim"
    victim.write_text("precious", encoding="utf-8")
    run = tmp_path / "run"
    run.mkdir(mode=0o700)
    (run / f".run.json.{os.getpid()}").symlink_to(victim)
    (run / "run.json").symlink_to(victim)
    write_private(run / "run.json", b"ours")
    assert victim.read_text(encoding="utf-8") == "precious"
    assert [path.name for path in run.iterdir()] == ["run.json"]
    assert not (run / "run.json").is_symlink()
    assert (run / "run.json").read_bytes() == b"ours"
    assert stat.S_IMODE((run / "run.json").stat().st_mode) == 0o600


def test_file_is_private_whatever_the_umask(tmp_path: Path) -> None:
    """umask can neither open it to others nor lock its owner out."""
    for mask in (0, 0o777):
        before = os.umask(mask)
        try:
            write_private(tmp_path / "file", b"x")
        finally:
            os.umask(before)
        assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o600


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o1777])
def test_directory_that_others_may_write_is_refused(mode: int, tmp_path: Path) -> None:
    """One line with the next step, and nothing is left in it."""
    run = tmp_path / "run"
    run.mkdir()
    run.chmod(mode)
    with pytest.raises(RecordingError, match=r"other users may write .*chmod go-w"):
        run_directory.create_run(["a"], run)
    with pytest.raises(RecordingError, match="other users may write"):
        write_private(run / "file", b"x")
    assert not list(run.iterdir())


@needs_root
def test_directory_of_another_user_is_refused(tmp_path: Path) -> None:
    """Root must not write where another user controls the contents."""
    run = tmp_path / "run"
    run.mkdir(mode=0o700)
    os.chown(run, 12345, 12345)
    with pytest.raises(RecordingError, match=r"belongs to another user \(uid 12345\)"):
        run_directory.create_run(["a"], run)


@pytest.mark.parametrize("folder", ["boxes", "gpu-cores"])
def test_folder_that_is_a_link_is_neither_emptied_nor_filled(folder: str, tmp_path: Path) -> None:
    """--force deletes an old recording, and nothing through a link."""
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "precious.blackbox").touch()
    run = tmp_path / "run"
    run.mkdir(mode=0o700)
    (run / folder).symlink_to(victim)
    with pytest.raises(RecordingError, match="is a link"):
        run_directory.create_run(["a"], run, force=True)
    assert [path.name for path in victim.iterdir()] == ["precious.blackbox"]


def test_gpu_cores_are_not_sent_through_a_link(tmp_path: Path) -> None:
    """The CUDA driver would write there: without our own folder no dump is requested."""
    (tmp_path / "gpu-cores").symlink_to("/tmp")
    added, wish, notes = gpu_core_variables(tmp_path, {})
    assert added == {}
    assert wish["file"] is None
    assert "is a link" in notes[0]


def test_output_that_is_a_link_to_a_directory_is_followed_once(tmp_path: Path) -> None:
    """`-o runs/latest` is the user's explicit choice."""
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to("real")
    assert run_directory.create_run(["a"], tmp_path / "link").directory == tmp_path / "real"


def test_copy_takes_regular_files_only(tmp_path: Path) -> None:
    """A link or a FIFO among the recordings is refused, at once."""
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir(mode=0o700)
    target.mkdir(mode=0o700)
    (source / "link").symlink_to("/etc/passwd")
    os.mkfifo(source / "fifo")
    (source / "file").write_bytes(b"data")
    with private_directory(source) as old, private_directory(target) as new:
        copy_private("file", old, new)
        for name in ("link", "fifo"):
            with pytest.raises(OSError):
                copy_private(name, old, new)
    assert [(path.name, path.read_bytes()) for path in target.iterdir()] == [("file", b"data")]


def test_made_directory_is_private_and_kept(tmp_path: Path) -> None:
    """Made when it is missing, used when it is there."""
    with private_directory(tmp_path) as opened:
        for _ in range(2):
            with made_directory("below", opened):
                assert stat.S_IMODE((tmp_path / "below").stat().st_mode) == 0o700


def test_full_disk_keeps_the_older_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """run.json is never incomplete; the temporary file is removed."""
    write_private(tmp_path / "run.json", b"old")
    monkeypatch.setattr(os, "replace", lambda *_, **__: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(OSError, match="No space"):
        write_private(tmp_path / "run.json", b"new")
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("run.json", b"old")]


def test_command_that_is_no_utf8_is_readable_and_exact(tmp_path: Path) -> None:
    """run.json is UTF-8 whatever the command is, its reader takes it, and the exact bytes can be had back."""
    from pytracer.decode.job.launcher import read_launchers

    words = [b"prog", b"caf\xc3\xa9", b"\xff\xfe.py"]
    run = run_directory.Run(tmp_path, tmp_path)
    run_directory.write_record(run, run_directory.start_record([os.fsdecode(word) for word in words]))
    damage: list[object] = []
    (record,) = read_launchers(tmp_path, damage)  # type: ignore[arg-type]
    assert record is not None, damage
    assert record.command == ("prog", "café", "\\xff\\xfe.py")
    stored = json.loads((tmp_path / "run.json").read_text(encoding="utf-8"))
    assert [bytes.fromhex(word) for word in stored["command_hex"]] == words
    assert "command_hex" not in run_directory.start_record(["prog", "café"])
