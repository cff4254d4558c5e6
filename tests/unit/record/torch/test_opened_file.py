"""The file of an exception: which one it is, what is there, and what lies beside it; nothing of any other."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pytracer.record.torch.opened_file import opened_file


def facts(act: Callable[[], object]) -> dict[str, str]:
    """What is recorded of the exception of a call."""
    with pytest.raises(Exception) as caught:
        act()
    found = opened_file(caught.value, caught.value.__traceback__)
    return {item["name"]: item["value"] for item in found}


def test_file_that_the_line_reads_is_known_with_its_kind(tmp_path: Path) -> None:
    """`pickle.load(file)` is native code: the file is the only one that the function reads."""
    path = tmp_path / "a.pkl"
    path.write_bytes(b"")

    def load() -> None:
        with path.open("rb") as file:
            pickle.load(file)

    found = facts(load)
    assert (found["file"], found["file kind"], found["file size"]) == (str(path), "empty", "0")
    assert found["file held by"] == "file"


def test_file_that_is_only_written_is_none(tmp_path: Path) -> None:
    """The look-alikes: a log beside, or two files."""

    def log() -> None:
        with (tmp_path / "log.txt").open("w"):
            pickle.loads(b"")

    def two() -> None:
        (tmp_path / "b").write_bytes(b"")
        with (tmp_path / "b").open("rb") as one, (tmp_path / "b").open("rb") as other:
            pickle.load(one) or other

    assert "file" not in facts(log)
    assert "file" not in facts(two)


def test_missing_part_of_a_path_is_the_first_one(tmp_path: Path) -> None:
    """With a name like it in the folder that is there."""
    (tmp_path / "Run_1").mkdir()
    found = facts(lambda: open(tmp_path / "run_1" / "a" / "b.txt", encoding="utf-8"))  # noqa: SIM115
    assert (found["file missing part"], found["file folder"]) == ("run_1", str(tmp_path))
    assert (found["file like it"], found["file folder entries"]) == ("Run_1", "1")


def test_file_before_is_the_newest_older_one_of_a_like_name(tmp_path: Path) -> None:
    """Not a newer one, nor another name."""
    for name, when in (("e1.pt", 10), ("e2.pt", 20), ("e3.pt", 30), ("e4.pt", 40), ("x.pt", 25)):
        (tmp_path / name).write_bytes(name.encode() * (0 if name == "e3.pt" else 1))
        os.utime(tmp_path / name, (when, when))

    def load() -> None:
        with (tmp_path / "e3.pt").open("rb") as file:
            pickle.load(file)

    found = facts(load)
    assert (found["file before"], found["file before size"]) == ("e2.pt", "5")


def test_nothing_is_recorded_without_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--no-values`."""
    monkeypatch.setattr("pytracer.record.torch.opened_file.records_values", lambda: False)
    assert facts(lambda: open(tmp_path / "none", encoding="utf-8")) == {}  # noqa: SIM115


@pytest.mark.parametrize("kind", [OSError, KeyError, ValueError])
def test_variables_with_paths_of_files_are_named(kind: type[Exception], tmp_path: Path) -> None:
    """Not of texts. The file system is asked only by an exception that is about files."""
    path, text, gone = str(tmp_path / "a.txt"), "a.txt.", str(tmp_path / "b.txt")
    (tmp_path / "a.txt").write_text("x", encoding="utf-8")

    def use(here: str, words: str, absent: str) -> None:
        raise kind(here + words + absent)

    named = {"file of here": path} if kind is not ValueError else {}
    assert facts(lambda: use(path, text, gone)) == named | ({"file of absent": gone} if kind is KeyError else {})


def test_room_of_a_full_file_system_is_recorded_with_the_files_like_the_one_written(
    small_disk: Callable[[int], Path],
) -> None:
    """Of the file that the line writes to, which no exception names."""
    small = small_disk(1 << 20)
    (small / "part-1.bin").write_bytes(b"0" * 700_000)

    def save() -> None:
        with (small / "part-2.bin").open("wb", buffering=0) as part:
            while True:
                os.write(part.fileno(), b"0" * 65536)

    found = facts(save)
    assert found["file"] == str(small / "part-2.bin")
    assert (found["file system size"], found["file system free"]) == (str(1 << 20), "0")
    assert found["files alike"] == "2"
    assert int(found["files alike size"]) > 1_000_000


def test_room_is_not_asked_for_an_exception_that_is_none_of_a_write(tmp_path: Path) -> None:
    path = tmp_path / "a.pkl"
    path.write_bytes(b"")
    assert not any("system" in name for name in facts(lambda: pickle.loads(path.read_bytes()) or path.open("rb")))
    assert not any("system" in name for name in facts(lambda: (tmp_path / "absent").open("rb")))


def load_torch(path: Path) -> None:
    """As torch.load() of a file that does not begin with the magic of a zip archive raises."""
    with path.open("rb") as file:
        file.read()
        raise RuntimeError("mmap can only be used with files saved with `torch.save(x, ...)`")


def test_process_that_has_the_file_open_for_writing_is_recorded(tmp_path: Path) -> None:
    """Of a file that was changed just now; not one that only reads it, or that has closed it."""
    path = tmp_path / "a.pt"
    code = "import sys; f = open(sys.argv[1], sys.argv[2]); print(flush=True); sys.stdin.read()"
    path.write_bytes(b"")
    for mode, expected in (("wb", True), ("rb", False)):
        with subprocess.Popen(
            [sys.executable, "-c", code, str(path), mode], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as child:
            assert child.stdout is not None
            child.stdout.readline()
            found = facts(lambda: load_torch(path))
            child.communicate()
        assert found["file kind"] == "empty"
        assert (found.get("file written by") == str(child.pid)) is expected
        assert "file written by" not in facts(lambda: load_torch(path))


def test_old_file_is_asked_for_no_writers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was changed an hour ago."""
    path = tmp_path / "a.pt"
    path.write_bytes(b"")
    os.utime(path, (1, 1))
    monkeypatch.setattr("pytracer.record.torch.opened_file.open_writers", lambda _: [1])
    assert "file written by" not in facts(lambda: load_torch(path))


def test_relative_path_that_another_folder_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder that the job was started in, as its shell knew it; nothing where that has no such file either."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.txt").write_text("a", encoding="utf-8")
    (tmp_path / "run").mkdir()
    monkeypatch.setenv("PWD", str(tmp_path))
    monkeypatch.chdir(tmp_path / "run")
    found = facts(lambda: open("data/a.txt", encoding="utf-8"))  # noqa: SIM115
    assert (found["file in folder"], found["file current folder"]) == (str(tmp_path), str(tmp_path / "run"))
    assert "file in folder" not in facts(lambda: open("data/b.txt", encoding="utf-8"))  # noqa: SIM115


def test_bytes_that_were_to_be_mapped(tmp_path: Path) -> None:
    """With the size of the file."""
    numpy = pytest.importorskip("numpy")
    (tmp_path / "a.bin").write_bytes(bytes(40))
    found = facts(lambda: numpy.memmap(tmp_path / "a.bin", dtype="f4", mode="r", offset=8, shape=(5, 4)))
    assert (found["file"], found["file size"], found["file asked size"]) == (str(tmp_path / "a.bin"), "40", "88")
