"""The launcher without some resource: the command runs, and its status is returned."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.conditions import needs_core, needs_namespaces
from tests.support.cli import call, clean_environment, only_line, pytracer

pytestmark = needs_core

RUN = f"{sys.executable} -m pytracer run"


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-", ">/dev/full", "2>/dev/full"])
@pytest.mark.parametrize(("script", "status"), [("exit 3", 3), ("kill -SEGV $$", 139)])
@pytest.mark.quick(4)
def test_closed_and_full_streams_change_nothing(closed: str, script: str, status: int, tmp_path: Path) -> None:
    """The status is the command's, also when the report cannot be written; none of it goes to stdout."""
    done = call("sh", "-c", f"{RUN} -- sh -c '{script}' {closed}", cwd=tmp_path)
    assert done.returncode == status
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    if "2>" in closed:
        assert done.stderr == ""


def test_reader_of_the_output_that_has_gone_changes_nothing(tmp_path: Path) -> None:
    """A closed pipe on stderr does not end the launcher."""
    read_end, write_end = os.pipe()
    os.close(read_end)
    process = subprocess.run(
        [sys.executable, "-m", "pytracer", "run", "--", "sh", "-c", "kill -SEGV $$"], cwd=tmp_path,
        env=clean_environment(), stderr=write_end, stdout=subprocess.PIPE, check=False,
    )  # fmt: skip
    os.close(write_end)
    assert process.returncode == 139


@pytest.mark.parametrize("limit", [5, 6, 7, 9, 12, 20])
@pytest.mark.quick(2)
def test_few_descriptors_are_enough(limit: int, tmp_path: Path) -> None:
    """Python needs five to start; with one more the run is recorded, and its status is right with any number."""
    done = call("sh", "-c", f"ulimit -n {limit}; exec {RUN} --no-report -- sh -c 'exit 3'", cwd=tmp_path)
    assert done.returncode == 3, done.stderr
    assert "Traceback" not in done.stderr


@needs_namespaces
def test_full_disk_lets_the_command_run_unrecorded(tmp_path: Path) -> None:
    """One line reports it; the command runs in an unchanged environment."""
    script = f"mount -t tmpfs -o size=64k none {tmp_path}; cd {tmp_path}; {RUN} -- sh -c 'echo [$LD_PRELOAD]; exit 3'"
    done = call("unshare", "-rm", "sh", "-c", script, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (3, "[]\n")
    line = only_line(done)
    assert line.startswith("pytracer: COMMAND runs unrecorded: the disk of ")
    assert "-o DIR" in line


@needs_namespaces
def test_disk_that_fills_up_meanwhile_keeps_the_status(tmp_path: Path) -> None:
    """run.json and report.json cannot be written at the end: at most a line each."""
    fill = "(dd if=/dev/zero of=fill bs=1M 2>/dev/null; :); kill -SEGV $$"
    script = f"mount -t tmpfs -o size=90m none {tmp_path}; cd {tmp_path}; {RUN} -- sh -c '{fill}'"
    done = call("unshare", "-rm", "sh", "-c", script, cwd=tmp_path)
    assert done.returncode == 139, done.stderr
    assert "Traceback" not in done.stderr
    assert "please report it" not in done.stderr


@pytest.mark.parametrize("arguments", [(), ("-o", "/proc/no/such")])
def test_directory_that_cannot_be_written_lets_the_command_run(arguments: tuple[str, ...], tmp_path: Path) -> None:
    """Under a file, in /proc: one line with the next step."""
    (tmp_path / "runs").touch()
    done = pytracer("run", *arguments, "--", "sh", "-c", "echo [$LD_PRELOAD]; exit 3", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (3, "[]\n")
    assert "COMMAND runs unrecorded: cannot write" in only_line(done)


def test_unrecorded_command_that_cannot_start_keeps_its_status(tmp_path: Path) -> None:
    """127 and 126 are passed on."""
    (tmp_path / "runs").touch()
    (tmp_path / "headless").write_text("true\n", encoding="utf-8")
    (tmp_path / "headless").chmod(0o755)
    assert pytracer("run", "--", "./headless", cwd=tmp_path).returncode == 126


def test_directory_that_is_deleted_meanwhile_keeps_the_status(tmp_path: Path) -> None:
    """The run directory, or the current directory with it: lines on stderr and nothing else."""
    for what in ("runs", "."):
        (tmp_path / "work").mkdir()
        script = f"rm -rf {tmp_path / 'work' / what}; exit 3"
        done = pytracer("run", "--", "sh", "-c", script, cwd=tmp_path / "work")
        assert done.returncode == 3
        assert "Traceback" not in done.stderr
        assert "please report it" not in done.stderr
        subprocess.run(["rm", "-rf", tmp_path / "work"], check=True)


def test_current_directory_that_is_gone_lets_the_command_run(tmp_path: Path) -> None:
    """The command runs although there is no directory to record into."""
    script = f"mkdir gone && cd gone && rmdir ../gone && {RUN} -- true"
    done = call("sh", "-c", script, cwd=tmp_path)
    assert done.returncode == 0
    assert "COMMAND runs unrecorded: the current directory does not exist any more" in done.stderr


def test_job_outlives_a_killed_launcher(tmp_path: Path) -> None:
    """SIGKILL of the launcher ends nothing else: the job keeps its streams, and run.json lists the live processes."""
    script = "echo $$; read word; echo $word; exit 3"
    process = subprocess.Popen(
        [sys.executable, "-m", "pytracer", "run", "--quiet", "--", "sh", "-c", script], cwd=tmp_path,
        env=clean_environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    job = int(process.stdout.readline())
    file = tmp_path / "runs" / "latest" / "run.json"
    while json.loads(file.read_text(encoding="utf-8"))["child_pid"] is None:
        time.sleep(0.01)  # the job may be quicker than the launcher, which writes that once it has started it
    process.kill()
    assert process.wait() == -signal.SIGKILL
    os.kill(job, 0)
    process.stdin.write("hello\n")
    process.stdin.flush()
    assert process.stdout.read() == "hello\n"  # until the job has ended
    process.stdin.close()
    process.stdout.close()
    record = json.loads(file.read_text(encoding="utf-8"))
    assert (record["child_pid"], record["exit_code"], record["ended_mono_ns"]) == (job, None, None)


@needs_namespaces
def test_launcher_as_first_process_reaps_orphans_and_passes_signals_on(tmp_path: Path) -> None:
    """As PID 1 of a container: no zombies remain, SIGTERM reaches the job, and the status is the job's."""
    job = "trap 'exit 5' TERM; (sleep 0.1 & ) ; echo ready; sleep 60 & wait"
    process = subprocess.Popen(
        ["unshare", "-rpf", "--mount-proc", sys.executable, "-m", "pytracer", "run", "--quiet", "--no-report", "--",
         "sh", "-c", job],
        cwd=tmp_path, env=clean_environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    (launcher,) = _children(process.pid)
    shell = min(pid for pid in _children(launcher) if _name(pid) == "sh")  # the orphan may not be "sleep" yet
    until = time.monotonic() + 20
    while "Z" in {_state(pid) for pid in _children(launcher)} or any(_name(p) == "sleep" for p in _children(launcher)):
        assert time.monotonic() < until, "a zombie stays below the launcher"
        time.sleep(0.05)
    os.kill(launcher, signal.SIGTERM)
    process.communicate()
    assert process.returncode == 5
    assert not Path(f"/proc/{shell}").exists()


def _children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()]


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except OSError:
        return ""
