"""Deaths that leave no record in the process: what the launcher records from outside, on real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from pytracer.analyze.engine import build_report
from pytracer.decode.job.merge import load_job
from pytracer.report.job import Verdict
from tests.conditions import needs_core, needs_exit_by_pidfd, needs_native
from tests.support.crash import PROGRAMS, Ended, environment, torchrun, traced_run
from tests.support.memory_cgroup import NoMemoryCgroup, enter, memory_cgroup

pytestmark = needs_core

SLEEPER = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(60)"]


def launcher_file(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / "run.json").read_text(encoding="utf-8"))
    return found


def verdict_of(ended: Ended) -> Verdict:
    assert ended.report.verdict is not None
    return ended.report.verdict


def test_kill_9_is_no_oom_kill_where_counters_can_be_read(tmp_path: Path) -> None:
    """The kernel's counters did not change, so another process sent it; the sender is unknown: it is not recorded."""
    killer = "sleep 0.3; LD_PRELOAD= sh -c 'kill -9 $PPID'; sleep 9"
    done = traced_run("sh", "-c", killer, run=tmp_path / "run")
    assert done.status == 137
    verdict = verdict_of(done)
    counted = launcher_file(done.run)["witness"]["before"]["vmstat_oom_kill"]
    expected = ("external-kill", "likely") if counted is not None else ("unknown", "unknown")
    assert (verdict.class_, verdict.confidence) == expected
    assert all(item.split(":")[0] in ("found", "not found", "not readable") for item in verdict.evidence or [])


def test_shell_that_kills_itself_is_named(tmp_path: Path) -> None:
    """It noted that before; there is no Python line."""
    done = traced_run("sh", "-c", "sleep 0.3; kill -9 $$", run=tmp_path / "run")
    verdict = verdict_of(done)
    assert (verdict.class_, verdict.confidence) == ("external-kill", "certain")
    assert "ended itself by SIGKILL." in (verdict.summary or "")


@needs_native
def test_kill_9_of_one_rank_names_that_rank(tmp_path: Path) -> None:
    """The other rank loses its peer and dies as a consequence."""
    job = torchrun(PROGRAMS / "rank_that_is_late.py", "0", "kill")
    done = traced_run(*job, run=tmp_path / "run")
    verdict = verdict_of(done)
    assert verdict.rank == 1
    assert verdict.class_ in ("external-kill", "unknown")
    primary = {item.rank: item.primary for item in done.report.processes or [] if item.rank is not None}
    assert primary == {0: False, 1: True}


def test_oom_kill_inside_a_memory_cgroup_is_certain(tmp_path: Path) -> None:
    """A container's limit: the cgroup counts one kill, and it is the launcher's own cgroup."""
    try:
        with memory_cgroup() as group:
            command = [sys.executable, "-m", "pytracer", "run", "-o", str(tmp_path / "run"), "--"]
            job = [sys.executable, str(PROGRAMS / "memory_eater.py")]
            process = subprocess.run(
                [*command, *job], env=environment(), cwd=tmp_path, capture_output=True, text=True, timeout=100,
                check=False, preexec_fn=lambda: enter(group),
            )  # fmt: skip
    except NoMemoryCgroup as reason:
        pytest.skip(f"no memory cgroup can be made here: {reason}")
    assert process.returncode == 137, process.stderr
    report = build_report(load_job(tmp_path / "run"))
    assert report.verdict is not None
    assert (report.verdict.class_, report.verdict.confidence) == ("oom-kill", "certain"), report.verdict
    assert any(f"{group.name} (limit 200.0 MiB" in item for item in report.verdict.evidence or [])
    assert "was ended by the kernel's OOM killer" in process.stderr


def test_oom_kill_in_a_cgroup_of_the_jobs_own_is_seen(tmp_path: Path) -> None:
    """The job is in a cgroup that the launcher is not in, as a scheduler's steps are."""
    try:
        with memory_cgroup() as group:
            script = f"echo $$ > {group}/cgroup.procs; exec {sys.executable} {PROGRAMS / 'memory_eater.py'} 1.5"
            done = traced_run("sh", "-c", script, run=tmp_path / "run")
    except NoMemoryCgroup as reason:
        pytest.skip(f"no memory cgroup can be made here: {reason}")
    assert done.status == 137
    verdict = verdict_of(done)
    assert (verdict.class_, verdict.confidence) == ("oom-kill", "certain"), verdict


def test_killed_launcher_leaves_counters_and_boxes(tmp_path: Path) -> None:
    """run.json holds what was known before; the report rests on the recordings alone, and states what is missing."""
    run = tmp_path / "run"
    command = [sys.executable, "-m", "pytracer", "run", "-o", str(run), "--", *SLEEPER]
    with subprocess.Popen(command, env=environment(), cwd=tmp_path, stdout=subprocess.PIPE, text=True) as launcher:
        assert launcher.stdout is not None
        assert launcher.stdout.readline() == "up\n"
        child = launcher_file(run)["child_pid"]
        launcher.kill()
        launcher.wait()
        os.kill(child, signal.SIGKILL)
        until = time.monotonic() + 20
        while load_job(run).processes[0].status_kind == "running" and time.monotonic() < until:
            time.sleep(0.1)
    known = launcher_file(run)
    assert known["witness"]["ended"] is False
    assert known["witness"]["before"]["mono_ns"] > 0
    job = load_job(run)
    assert [process.status_kind for process in job.processes] == ["vanished"]
    report = build_report(job)
    assert report.verdict is not None
    assert report.verdict.class_ == "unknown"
    assert any("the launcher died, too" in item for item in report.verdict.evidence or [])


@needs_exit_by_pidfd
def test_end_of_a_process_without_a_parent_is_seen(tmp_path: Path) -> None:
    """Its parent was killed, init reaped it: the launcher's descriptor still has its exit status."""
    done = traced_run(sys.executable, PROGRAMS / "lost_grandchild.py", run=tmp_path / "run")
    seen = launcher_file(done.run)["witness"]["processes"]
    assert {item.get("how") for item in seen if item.get("signal") == 9} <= {"pidfd", "zombie"}
    ends = [(item.status_kind, item.signal, item.reported_by) for item in done.job.processes]
    assert ("signaled", 9, "launcher") in ends


@pytest.mark.slow
def test_orphans_keep_their_parent_unless_asked(tmp_path: Path) -> None:
    """Without --subreaper getppid() is as untraced; with it, the launcher's pid."""
    parents = {}
    for options in ((), ("--subreaper",)):
        run = tmp_path / f"run{len(options)}"
        done = traced_run(sys.executable, PROGRAMS / "lost_grandchild.py", run=run, options=options)
        parents[options] = int(done.stdout.split()[1]), launcher_file(run)["pid"]
    assert parents[()][0] != parents[()][1]
    parent, launcher = parents[("--subreaper",)]
    assert parent == launcher
    seen = launcher_file(tmp_path / "run1")["witness"]["processes"]
    assert [item["signal"] for item in seen if item.get("how") == "reaped"] == [9]


def test_usage_and_memory_of_the_job_are_kept(tmp_path: Path) -> None:
    """Largest memory, times, and samples of what was free."""
    code = "import time; x = b'x' * (64 << 20); time.sleep(0.7)"
    done = traced_run(sys.executable, "-c", code, run=tmp_path / "run")
    record = launcher_file(done.run)
    assert record["usage"]["maxrss"] > 64 << 20
    assert record["usage"]["user_seconds"] >= 0
    (seen,) = [item for item in record["witness"]["processes"] if item["pid"] == record["child_pid"]]
    assert seen["rss_peak"] > 64 << 20
    assert record["witness"]["samples"][-1]["mem_available"] > 0
    assert len(record["witness"]["samples"]) <= 30
