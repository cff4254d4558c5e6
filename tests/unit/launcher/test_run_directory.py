"""Run directories, the environment of a job, run.json."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from pytracer import _paths as paths
from pytracer._errors import RecordingError, UsageError
from pytracer.launcher import run_directory
from tests.conditions import needs_core, needs_user

MOUNTS = """\
22 1 259:2 / / rw,relatime shared:1 - ext4 /dev/root rw
30 22 0:26 / /home rw - nfs4 server:/home rw
31 22 0:27 / /data\\040set rw - fuse.sshfs host:/ rw
32 30 0:28 / /home/local rw master:2 - xfs /dev/sdb rw
33 22 0:29 / /homework rw - lustre mgs:/x rw
"""


@pytest.mark.parametrize(
    ("path", "kind", "remote"),
    [
        ("/tmp/x", "ext4", False),
        ("/home/me/runs", "nfs4", True),
        ("/home", "nfs4", True),
        ("/home/local/me", "xfs", False),
        ("/homework/me", "lustre", True),
        ("/data set/me", "fuse.sshfs", True),
    ],
)
def test_file_system_is_the_one_of_the_deepest_mount_point(path: str, kind: str, remote: bool, tmp_path: Path) -> None:
    """A path belongs to the longest mount point above it, and network kinds are known."""
    table = tmp_path / "mountinfo"
    table.write_text(MOUNTS, encoding="utf-8")
    assert paths.file_system(Path(path), table) == kind
    assert paths.is_remote(kind) is remote


@pytest.mark.parametrize(
    ("command", "word"),
    [
        ("python train.py", "train"),
        ("python -m torch.distributed.run --nproc-per-node 2 src/train.py --x a.py", "train"),
        ("python -m package.module x.py", "package.module"),
        ("torchrun -m package.train", "package.train"),
        ("sh -c x.py", "sh"),
        ("/usr/bin/env", "env"),
        ("python -c pass", "python"),
        ("./..", "run"),
    ],
)
def test_command_word_tells_runs_apart(command: str, word: str) -> None:
    """A run is named for its script or module, else for its program."""
    assert paths.command_word(command.split()) == word


def test_command_word_is_safe_in_a_file_name() -> None:
    """For any name of the script, the word has no separator."""
    assert paths.command_word(["python", "a b/ü c.py"]) == "c"
    assert paths.command_word(["x" * 100]) == "x" * 40


def test_new_run_is_private_and_latest_points_at_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run directories are 0700; `runs/latest` moves to the newest."""
    monkeypatch.chdir(tmp_path)
    first = run_directory.create_run(["a"])
    second = run_directory.create_run(["b"])
    for run in (first, second):
        assert run.recording == run.directory == Path(os.path.abspath(run.directory))
        assert stat.S_IMODE(run.directory.stat().st_mode) == 0o700
        assert stat.S_IMODE(run.boxes.stat().st_mode) == 0o700
    assert (tmp_path / "runs" / "latest").resolve() == second.directory
    assert os.readlink(tmp_path / "runs" / "latest") == second.directory.name


def test_runs_of_one_second_get_names_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same command, pid and second do not collide."""
    monkeypatch.chdir(tmp_path)
    assert len({run_directory.create_run(["a"]).directory for _ in range(3)}) == 3


@pytest.mark.parametrize("make", [Path.mkdir, Path.touch])
def test_latest_that_is_no_link_is_left_alone(make: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory or file called `latest` is the user's."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    make(tmp_path / "runs" / "latest")  # type: ignore[operator]
    run = run_directory.create_run(["a"])
    assert "left alone" in run.notes[0]
    assert not (tmp_path / "runs" / "latest").is_symlink()


def test_output_with_a_recording_needs_force(tmp_path: Path) -> None:
    """An old recording is deleted only when asked, and nothing else with it."""
    run_directory.create_run(["a"], tmp_path / "out")
    (tmp_path / "out" / "boxes" / "h.1.blackbox").touch()
    (tmp_path / "out" / "notes.txt").touch()
    with pytest.raises(UsageError, match="already holds a recording"):
        run_directory.create_run(["a"], tmp_path / "out")
    run_directory.create_run(["a"], tmp_path / "out", force=True)
    assert not list((tmp_path / "out" / "boxes").iterdir())
    assert (tmp_path / "out" / "notes.txt").exists()


def test_output_that_is_a_file_is_refused(tmp_path: Path) -> None:
    """-o FILE is a mistake, with a next step."""
    (tmp_path / "out").touch()
    with pytest.raises(UsageError, match="not a directory"):
        run_directory.create_run(["a"], tmp_path / "out")
    with pytest.raises(RecordingError, match="-o DIR"):
        run_directory.create_run(["a"], tmp_path / "out" / "below")


@needs_user
def test_directory_without_write_permission_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No permission: one line with the next step."""
    (tmp_path / "locked").mkdir(mode=0o500)
    monkeypatch.chdir(tmp_path / "locked")
    with pytest.raises(RecordingError, match="cannot write"):
        run_directory.create_run(["a"])


def test_full_disk_is_refused_before_the_job_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A black box that cannot be preallocated is useless."""
    room = os.statvfs(tmp_path)
    full = os.statvfs_result((*room[:4], 0, *room[5:]))
    monkeypatch.setattr(os, "statvfs", lambda _: full)
    with pytest.raises(RecordingError, match="is full: 0 MiB left"):
        run_directory.create_run(["a"], tmp_path / "out")


def test_boxes_of_a_network_directory_are_written_locally_and_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On NFS recordings are written to a local directory first, and a message reports it."""
    kinds = {str(tmp_path / "out"): "nfs4"}
    monkeypatch.setattr(run_directory, "file_system", lambda path: kinds.get(str(path), "ext4"))
    run = run_directory.create_run(["a"], tmp_path / "out")
    assert run.recording != run.directory
    assert "is on nfs4" in run.notes[0]
    (run.recording / "boxes" / "h.99999999.blackbox").write_bytes(b"data")
    done = run_directory.collect_boxes(run)
    assert (tmp_path / "out" / "boxes" / "h.99999999.blackbox").read_bytes() == b"data"
    assert done.notes == ()
    assert not run.recording.exists()


def test_box_of_a_running_process_is_copied_and_kept(tmp_path: Path) -> None:
    """A process that outlives the launcher continues to write to the same file."""
    (tmp_path / "local" / "boxes").mkdir(parents=True)
    (tmp_path / "out").mkdir()
    box = tmp_path / "local" / "boxes" / f"h.{os.getpid()}.blackbox"
    box.write_bytes(b"data")
    done = run_directory.collect_boxes(run_directory.Run(tmp_path / "out", tmp_path / "local"))
    assert box.exists()
    assert (done.boxes / box.name).exists()
    assert "still run" in done.notes[0]


@needs_core
def test_environment_puts_the_core_first_and_once(tmp_path: Path) -> None:
    """Another preloaded library stays; a nested run does not preload twice."""
    core = str(run_directory.core_library())
    run = run_directory.Run(tmp_path, tmp_path)
    base = {"LD_PRELOAD": "/lib/libother.so", "HOME": "/h"}
    first = run_directory.environment(run, "light", base)
    assert first["LD_PRELOAD"] == f"{core}:/lib/libother.so"
    assert first["PYTRACER_DIR"] == str(tmp_path)
    assert first["PYTRACER_LEVEL"] == "light"
    assert first["PYTRACER_LAUNCHER"] == "1"
    assert run_directory.environment(run, "light", first)["LD_PRELOAD"] == first["LD_PRELOAD"]
    assert base == {"LD_PRELOAD": "/lib/libother.so", "HOME": "/h"}


@needs_core
@pytest.mark.parametrize("runtime", ["libasan.so.8", "/usr/lib/clang/libclang_rt.asan-x86_64.so"])
def test_environment_leaves_the_runtime_of_address_sanitizer_first(runtime: str, tmp_path: Path) -> None:
    """It aborts a process in which another library precedes it."""
    base = {"LD_PRELOAD": f"/lib/libother.so {runtime}"}
    made = run_directory.environment(run_directory.Run(tmp_path, tmp_path), "light", base)
    assert made["LD_PRELOAD"] == f"{runtime}:{run_directory.core_library()}:/lib/libother.so"


def test_core_that_is_not_built_is_refused_with_the_next_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the library there is nothing to preload."""
    monkeypatch.setattr(paths, "_PACKAGE", tmp_path)
    with pytest.raises(RecordingError, match=r"is not built.*pip install"):
        run_directory.core_library()


def test_core_below_a_path_with_a_space_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loader splits LD_PRELOAD at spaces and colons."""
    package = tmp_path / "my programs"
    package.mkdir()
    (package / "libpytracer_core.so").touch()
    monkeypatch.setattr(paths, "_PACKAGE", package)
    with pytest.raises(RecordingError, match="cannot carry"):
        run_directory.core_library()


def test_level_comes_from_the_option_then_the_environment() -> None:
    """An option wins over PYTRACER_LEVEL; a wrong word there is named."""
    assert run_directory.checked_level(None, {}) == "default"
    assert run_directory.checked_level(None, {"PYTRACER_LEVEL": "ops"}) == "ops"
    assert run_directory.checked_level("light", {"PYTRACER_LEVEL": "ops"}) == "light"
    with pytest.raises(UsageError, match="'loud'"):
        run_directory.checked_level(None, {"PYTRACER_LEVEL": "loud"})


def test_run_file_is_replaced_whole(tmp_path: Path) -> None:
    """run.json has all that the launcher knows, mode 0600, and no temporary file remains."""
    run = run_directory.Run(tmp_path, tmp_path)
    record = run_directory.start_record(["python", "x.py"])
    run_directory.write_record(run, record)
    run_directory.write_record(run, {**record, "exit_code": 3})
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]
    assert stat.S_IMODE((tmp_path / "run.json").stat().st_mode) == 0o600
    loaded = json.loads((tmp_path / "run.json").read_text(encoding="utf-8"))
    assert loaded["schema"] == "pytracer-run"
    assert loaded["command"] == ["python", "x.py"]
    assert loaded["exit_code"] == 3
    assert loaded["boot_id"]
