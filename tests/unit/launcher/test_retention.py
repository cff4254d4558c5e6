"""Finished runs are found, counted and removed; whatever is not provably one of them stays."""

from __future__ import annotations

import mmap
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytracer.decode.recording.reader import read_box
from pytracer.launcher.box_space import box_state, shrink_box
from pytracer.launcher.retention import (
    FoundRun,
    find_runs,
    over_budget,
    parse_size,
    remove_boxes,
    remove_run,
    space_of,
    surplus,
)
from pytracer.launcher.run_directory import boot_id
from tests.support.synth import Box, write_run

HERE = socket.gethostname()
GIB = 1 << 30
SECOND = 10**9


@pytest.fixture
def root(tmp_path: Path) -> Path:
    path = tmp_path / "runs"
    path.mkdir()
    return path


def a_run(root: Path, name: str, *, age: int = 0, box: Box | None = None, **launcher: Any) -> Path:
    """A finished run of this machine; `age` in seconds."""
    directory = root / name
    directory.mkdir(mode=0o700)
    filled = {"ended_mono_ns": 1, "exit_code": 0, "host": HERE, "boot_id": boot_id(), "pid": 1 << 30}
    filled["started_wall_ns"] = time.time_ns() - age * SECOND
    write_run(directory, box or Box(pid=4, host=HERE), launcher={**filled, **launcher})
    return directory


def the_run(root: Path) -> FoundRun:
    (found,) = find_runs(root)
    return found


def test_finished_run_is_removed_as_a_whole_and_latest_with_it(root: Path) -> None:
    """Directory and link; the newest of several stays."""
    old, new = a_run(root, "old", age=100), a_run(root, "new", age=1)
    (old / ".run.json.4711").write_text("{")  # of a launcher that was killed
    (root / "latest").symlink_to("old")
    runs = find_runs(root)
    assert [run.directory.name for run in runs] == ["new", "old"]
    (gone,) = surplus(runs, keep=1)
    assert gone.directory == old and remove_run(gone) is None
    assert os.listdir(root) == ["new"] and sorted(os.listdir(new)) == ["boxes", "run.json"]


def _checkpoint(directory: Path) -> None:
    (directory / "model.pt").write_bytes(b"weights")


def _file_beside_boxes(directory: Path) -> None:
    (directory / "boxes" / "mine.txt").write_text("mine")


def _folder(directory: Path) -> None:
    (directory / "checkpoints").mkdir()


def _link(directory: Path) -> None:
    (directory / "report.json").symlink_to("/etc/passwd")


def _linked_boxes(directory: Path) -> None:
    elsewhere = directory.parent.parent / "elsewhere"
    (directory / "boxes").rename(elsewhere)
    (directory / "boxes").symlink_to(elsewhere)


def _foreign_record(directory: Path) -> None:
    (directory / "run.json").write_text('{"schema": "another"}')
    (directory / "boxes" / "x.1.blackbox").write_text("no recording")


@pytest.mark.parametrize(
    "change",
    [_checkpoint, _file_beside_boxes, _folder, _link, _linked_boxes, _foreign_record],
    ids=lambda f: f.__name__,
)
def test_directory_with_anything_else_in_it_stays_untouched(root: Path, change: Callable[[Path], None]) -> None:
    """Not a file is removed, and the reason is known."""
    directory = a_run(root, "run")
    change(directory)
    before = sorted(str(path) for path in root.parent.rglob("*"))
    found = the_run(root)
    assert (found.state, bool(found.why)) == ("kept", True)
    assert surplus([found], keep=0) == [] and remove_run(found) == found.why
    assert sorted(str(path) for path in root.parent.rglob("*")) == before


def test_directory_without_a_run_stays(root: Path) -> None:
    """Empty, or somebody's folder."""
    (root / "data").mkdir()
    assert the_run(root).state == "kept"


def test_link_below_runs_is_no_run(root: Path, tmp_path: Path) -> None:
    """`latest`, or a link to a run elsewhere."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    a_run(elsewhere, "run")
    (root / "link").symlink_to(elsewhere / "run")
    assert find_runs(root) == []


def test_run_of_a_living_process_stays(root: Path) -> None:
    """Its recording is that of this process: same boot, pid and start time."""
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    box = Box(pid=os.getpid(), host=HERE, boot_id=boot_id(), start_ticks=ticks)
    a_run(root, "run", box=box)
    found = the_run(root)
    assert (found.state, found.why) == ("running", f"process {os.getpid()} is recording")
    assert remove_run(found) == found.why
    later = Box(pid=os.getpid(), host=HERE, boot_id=boot_id(), start_ticks=ticks + 1)
    later.write(root / "run" / "boxes" / f"{HERE}.{os.getpid()}.blackbox")
    assert the_run(root).state == "finished"


def test_recording_that_is_mapped_by_another_process_is_alive(root: Path) -> None:
    """Whatever its pid: in a container it is another one. The descriptor is closed, as the recorder's."""
    directory = a_run(root, "run")
    (path,) = (directory / "boxes").iterdir()
    with open(path, "r+b") as file:
        mapped = mmap.mmap(file.fileno(), 0)
    try:
        state = box_state(path)
        assert state is not None and state.alive
        assert shrink_box(path) == 0 and the_run(root).state == "running"
    finally:
        mapped.close()
    state = box_state(path)
    assert state is not None and not state.alive


def test_run_whose_end_was_not_recorded(root: Path) -> None:
    """Finished after a reboot, or when launcher and processes are gone; unknown on another machine."""
    ended: dict[str, Any] = {"ended_mono_ns": None, "exit_code": None}
    gone = a_run(root, "gone", **ended, box=Box(pid=1 << 30, host=HERE, boot_id=boot_id()))
    rebooted = a_run(root, "rebooted", **ended, boot_id="another")
    elsewhere = a_run(root, "elsewhere", **ended, host="another", box=Box(pid=4, host="another"))
    running = a_run(root, "running", **ended, pid=os.getpid())
    states = {run.directory: run.state for run in find_runs(root)}
    assert states == {gone: "finished", rebooted: "finished", elsewhere: "kept", running: "running"}


def test_recordings_of_enable_have_no_run_json(root: Path) -> None:
    """They are runs, too: with recordings of this machine whose processes are gone."""
    directory = a_run(root, "run", box=Box(pid=1 << 30, host=HERE, boot_id=boot_id()))
    (directory / "run.json").unlink()
    assert the_run(root).state == "finished"
    Box(pid=5, host="another").write(directory / "boxes" / "another.5.blackbox")
    assert the_run(root).state == "kept"


def _run(name: str, gib: int, *, clean: bool = True, state: Any = "finished") -> FoundRun:
    return FoundRun(Path(name), state, "", gib * GIB, 0, exit_code=0 if clean else 1)


def test_size_limit_removes_the_oldest_but_never_the_newest() -> None:
    """And none that still runs."""
    runs = [_run("d", 4), _run("c", 4), _run("b", 4, state="running"), _run("a", 4)]
    assert [str(run.directory) for run in surplus(runs, most_bytes=9 * GIB)] == ["a", "c"]
    assert [str(run.directory) for run in surplus(runs, most_bytes=0)] == ["a", "c"]
    assert [str(run.directory) for run in surplus(runs, keep=3)] == ["a"]
    assert [str(run.directory) for run in surplus(runs, keep=3, most_bytes=8 * GIB)] == ["a", "c"]


def test_budget_removes_clean_runs_first_and_keeps_the_newest_that_failed() -> None:
    """Evidence goes last: 20 failed runs stay whatever they take."""
    runs = [_run("new", 1), *(_run(f"failed{n:02}", 1, clean=False) for n in range(22)), _run("old", 1)]
    assert over_budget(runs, 24 * GIB) == []
    assert [str(run.directory) for run in over_budget(runs, 23 * GIB)] == ["old"]
    assert [str(run.directory) for run in over_budget(runs, 0)] == ["old", "failed21", "failed20"]


def test_shrunk_recording_reads_the_same_and_takes_less(root: Path) -> None:
    """Holes for empty pages; content and size stay."""
    directory = a_run(root, "run", box=Box(pid=1 << 30, host=HERE).at(5).crash())
    (path,) = (directory / "boxes").iterdir()
    content = path.read_bytes()
    with open(path, "r+b") as file:
        os.posix_fallocate(file.fileno(), 0, len(content))
        file.write(content)
    before, decoded = path.stat(), read_box(path)
    freed = shrink_box(path)
    after = path.stat()
    assert path.read_bytes() == content and after.st_size == before.st_size and read_box(path) == decoded
    assert freed > 0 and after.st_blocks * 512 == before.st_blocks * 512 - freed
    assert after.st_blocks < before.st_blocks / 2


def test_recordings_alone_can_be_removed(root: Path) -> None:
    """The rest of the run stays."""
    directory = a_run(root, "run")
    (directory / "report.json").write_text("{}")
    assert remove_boxes(directory) is None
    assert sorted(os.listdir(directory)) == ["boxes", "report.json", "run.json"] and not os.listdir(directory / "boxes")


def test_broken_lease_does_not_end_the_launcher(root: Path) -> None:
    """SIGIO would, in whichever thread it arrives; no signal stays behind."""
    directory = a_run(root, "run")
    (path,) = (directory / "boxes").iterdir()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    other = threading.Thread(target=time.sleep, args=(5,), daemon=True)
    other.start()
    writer = subprocess.Popen(
        [sys.executable, "-c", "import sys\nwhile True: open(sys.argv[1], 'r+b').close()", str(path)]
    )
    try:
        for _ in range(2000):
            assert box_state(path) is not None
    finally:
        writer.kill()
        writer.wait()
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before and not signal.sigpending()


@pytest.mark.parametrize(("text", "nbytes"), [("0", 0), ("512", 512), ("4K", 4096), ("5g", 5 * GIB), ("2MiB", 2 << 20)])
def test_sizes(text: str, nbytes: int) -> None:
    assert parse_size(text) == nbytes


@pytest.mark.parametrize("text", ["", "5X", "-1", "1.5G", "G"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no size"):
        parse_size(text)


def test_space_counts_what_is_on_the_disk(root: Path) -> None:
    """Holes take none."""
    assert space_of(root) == 0
    a_run(root, "run")
    assert space_of(root) == the_run(root).nbytes > 0


def test_only_what_is_empty_is_given_back(root: Path) -> None:
    """Bytes at the ends of pages, of the file and of holes stay where they are."""
    directory = a_run(root, "run", box=Box(pid=1 << 30, host=HERE).at(5).crash())
    (path,) = (directory / "boxes").iterdir()
    with open(path, "r+b") as file:
        for offset in (1 << 20, (1 << 21) + 4095, (1 << 22) - 1, 5_000_001):
            file.seek(offset)
            file.write(b"x")
        file.truncate(5_000_777)
        os.posix_fallocate(file.fileno(), 0, 5_000_777)
        file.seek(3 << 20)
        file.write(bytes(1 << 18))  # zeros that were written
    content = path.read_bytes()
    assert shrink_box(path) > 4 << 20
    assert path.read_bytes() == content
