"""`srun pytracer run`: several launchers that share one run, started with the variables of srun or mpirun by hand."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from pytracer.decode.job.merge import load_job
from pytracer.launcher.retention import find_runs, remove_run
from tests.conditions import needs_core
from tests.support.cli import clean_environment, pytracer

pytestmark = needs_core

TASKS = 4
FAULT = "import ctypes, os, time\nif os.environ['SLURM_PROCID'] == '2':\n    ctypes.string_at(0)\n"
REPORTED = "Rank 2 read through a null pointer"


def slurm(rank: int, step: int = 0, tasks: int = TASKS, **more: str) -> dict[str, str]:
    """The environment of one task of a Slurm step on this node."""
    return clean_environment(
        SLURM_JOB_ID="4711", SLURM_STEP_ID=str(step), SLURM_STEP_NUM_TASKS=str(tasks), SLURM_PROCID=str(rank),
        SLURM_NODEID="0", SLURM_STEP_TASKS_PER_NODE=str(tasks), SLURMD_NODENAME="left", **more,
    )  # fmt: skip


def start(environment: dict[str, str], *words: str | Path, cwd: Path) -> subprocess.Popen[str]:
    """`pytracer run WORDS` in one task."""
    command = [sys.executable, "-m", "pytracer", "run", *map(str, words)]
    return subprocess.Popen(
        command, env=environment, cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip


def ended(tasks: Sequence[subprocess.Popen[str]]) -> list[tuple[int, list[str]]]:
    """Status, and lines on stderr, of each task."""
    found = []
    for task in tasks:
        _, err = task.communicate(timeout=120)
        found.append((task.returncode, err.splitlines()))
    return found


def step(cwd: Path, *words: str | Path, **more: str) -> list[tuple[int, list[str]]]:
    """All tasks of one step."""
    return ended([start({**slurm(rank), **more}, *words, cwd=cwd) for rank in range(TASKS)])


def python(code: str) -> tuple[str, ...]:
    """A command."""
    return ("--", sys.executable, "-c", code)


def test_healthy_step_is_one_run_and_one_line(tmp_path: Path) -> None:
    """Not a run and a line per task; a second step in turn has a run of its own."""
    for number in (0, 1):
        tasks = [start(slurm(rank, number), *python("print(1)"), cwd=tmp_path) for rank in range(TASKS)]
        done = ended(tasks)
        assert [status for status, _ in done] == [0] * TASKS
        assert [line for _, lines in done for line in lines] == [f"pytracer: recorded in runs/slurm-4711.{number}"]
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == ["latest", "slurm-4711.0", "slurm-4711.1"]
    assert (tmp_path / "runs" / "latest").resolve().name == "slurm-4711.1"
    launchers = load_job(tmp_path / "runs" / "slurm-4711.0").launchers
    assert sorted(item.task.rank for item in launchers if item.task is not None) == [0, 1, 2, 3]
    assert {item.exit_code for item in launchers} == {0}


def test_first_task_that_fails_reports_the_whole_job(tmp_path: Path) -> None:
    """The others print nothing, and every task has the status of its own command."""
    code = FAULT + "time.sleep(1)\nraise SystemExit(int(os.environ['SLURM_PROCID']) * 10)"
    done = step(tmp_path, "-o", "run", *python(code))
    assert [status for status, _ in done] == [0, 10, 128 + signal.SIGSEGV, 30]
    assert [lines for rank, (_, lines) in enumerate(done) if rank != 2] == [[], [], []]
    text = "\n".join(done[2][1])
    assert REPORTED in text
    assert "rank 1" in text and "exit 10" in text and "exit 30" in text  # they recorded nothing themselves
    launchers = load_job(tmp_path / "run").launchers
    ends = {item.task.rank: (item.exit_code, item.signal) for item in launchers if item.task is not None}
    assert ends == {0: (0, None), 1: (10, None), 2: (None, signal.SIGSEGV), 3: (30, None)}


@pytest.mark.slow
def test_death_while_the_step_goes_on_is_told_once(tmp_path: Path) -> None:
    """By the launcher of its own task, also when it came and went between two looks."""
    child = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import ctypes; ctypes.string_at(0)'])"
    code = f"import os, time\nif os.environ['SLURM_PROCID'] == '2': {child}\ntime.sleep(10)"
    done = step(tmp_path, "-o", "run", *python(code))
    told = [sum(" died of SIGSEGV at " in line for line in lines) for _, lines in done]
    assert told == [0, 0, 1, 0]


def test_reporter_waits_a_bounded_time_for_the_others(tmp_path: Path) -> None:
    """The report names what still runs; the late task then adds one line, and its status."""
    code = FAULT + "time.sleep(60 if os.environ['SLURM_PROCID'] == '1' else 0)"
    tasks = [start(slurm(r), "-o", "run", "--task-wait", "1", *python(code), cwd=tmp_path) for r in range(TASKS)]
    began = time.monotonic()
    _, err = tasks[2].communicate(timeout=120)
    assert REPORTED in err
    assert "1 task was still running at the time of the report; `pytracer inspect run` makes it again" in err
    assert time.monotonic() - began < 50
    assert tasks[1].poll() is None
    tasks[1].send_signal(signal.SIGTERM)
    (status, lines), *_ = ended([tasks[1], tasks[0], tasks[3]])
    assert status == 128 + signal.SIGTERM
    assert lines == [
        "pytracer: rank 1 was ended by SIGTERM after the report; `pytracer inspect run` has it",
    ]


def test_killed_launcher_is_not_waited_for(tmp_path: Path) -> None:
    """It can write no end; on this machine that is known."""
    code = FAULT + "time.sleep(1000)"
    tasks = [start(slurm(rank, tasks=2), "-o", "run", *python(code), cwd=tmp_path) for rank in (1,)]
    until = time.monotonic() + 60
    while not list((tmp_path / "run").glob("run*.json")) and time.monotonic() < until:
        time.sleep(0.05)
    time.sleep(1)
    child = json.loads((tmp_path / "run" / "run.json").read_text())["child_pid"]
    tasks[0].kill()
    began = time.monotonic()
    try:
        ((status, lines),) = ended(
            [start(slurm(2, tasks=2), "-o", "run", "--task-wait", "100", *python(FAULT), cwd=tmp_path)]
        )
    finally:
        os.kill(child, signal.SIGKILL)
        ended(tasks)
    assert status == 128 + signal.SIGSEGV
    assert REPORTED in "\n".join(lines)
    assert time.monotonic() - began < 60


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    "other",
    [slurm(0, step=1), slurm(0, SLURM_RESTART_COUNT="1"), slurm(0), clean_environment()],
    ids=["another step", "requeued", "the same task again", "no task"],
)
def test_foreign_recording_is_refused(other: dict[str, str], tmp_path: Path) -> None:
    """As without Slurm: nothing is deleted that was not asked for."""
    step(tmp_path, "-o", "run", *python("pass"))
    before = sorted(path.name for path in (tmp_path / "run").iterdir())
    ((status, lines),) = ended([start(other, "-o", "run", *python("print(2)"), cwd=tmp_path)])
    assert status == 2
    assert lines == [
        f"pytracer: {tmp_path}/run already holds a recording; choose another directory, or --force to delete it"
    ]
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == before


@pytest.mark.quick(2)
@pytest.mark.parametrize("before", ["a step", "one launcher", "no launcher"])
def test_force_deletes_another_steps_recording_once(before: str, tmp_path: Path) -> None:
    """Whichever task is first deletes it; no task deletes what another one of its own step has recorded."""
    if before == "a step":
        step(tmp_path, "-o", "run", *python("pass"))
    else:
        pytracer("run", "-o", "run", *python("pass"), cwd=tmp_path)
    if before == "no launcher":
        (tmp_path / "run" / "run.json").unlink()
    tasks = [start(slurm(rank, 1), "-o", "run", "--force", *python("pass"), cwd=tmp_path) for rank in range(TASKS)]
    assert [status for status, _ in ended(tasks)] == [0] * TASKS
    launchers = load_job(tmp_path / "run").launchers
    steps = {item.task.step for item in launchers if item.task is not None}
    assert len(launchers) == TASKS and len(steps) == 1


def test_second_command_of_each_task_has_a_run_of_its_own(tmp_path: Path) -> None:
    """A script that runs two commands in turn: two runs, each of all tasks."""
    step(tmp_path, *python("pass"))
    step(tmp_path, *python("pass"))
    found = {path.name: len(load_job(path).launchers) for path in (tmp_path / "runs").glob("slurm-*")}
    assert found == {"slurm-4711.0": TASKS, "slurm-4711.0-2": TASKS}


def test_directory_that_nodes_do_not_share_gives_a_run_per_node(tmp_path: Path) -> None:
    """The report is of this node's tasks at once, and one line says how to read all; together they are one job."""
    for node, ranks in ((0, (0, 1)), (1, (2, 3))):
        place = {"SLURM_NODEID": str(node), "SLURM_STEP_TASKS_PER_NODE": "2(x2)", "SLURMD_NODENAME": f"n{node}"}
        (tmp_path / f"n{node}").mkdir()
        began = time.monotonic()
        words = ("-o", "run", "--task-wait", "100", *python(FAULT))
        done = ended([start({**slurm(rank), **place}, *words, cwd=tmp_path / f"n{node}") for rank in ranks])
        assert time.monotonic() - began < 60
    lines = done[0][1]
    assert REPORTED in "\n".join(lines)
    assert lines[-1] == (
        "pytracer: this report is of the 2 tasks on n1; the other 2 recorded on their own nodes: copy those "
        "directories here, and `pytracer inspect run COPY...` reads them as one job"
    )
    both = pytracer("inspect", "n0/run", "n1/run", cwd=tmp_path)
    assert both.returncode == 0, both.stderr
    assert REPORTED in both.stdout


def test_runs_of_steps_are_listed_and_removed_as_one(tmp_path: Path) -> None:
    """Finished when all tasks have ended; one that failed makes it a failed run."""
    code = "import os; raise SystemExit(int(os.environ['SLURM_PROCID']) == 3)"
    step(tmp_path, "--no-report", *python(code))
    (found,) = find_runs(tmp_path / "runs")
    assert (found.state, found.exit_code, found.interrupted) == ("finished", 1, False)
    assert remove_run(found) is None
    assert not (tmp_path / "runs" / "slurm-4711.0").exists()


def test_tasks_of_mpirun_share_a_run(tmp_path: Path) -> None:
    """Open MPI's variables instead of Slurm's."""
    names = {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_SIZE": "2", "OMPI_MCA_ess_base_jobid": "99"}
    tasks = [
        start(clean_environment(**names, OMPI_COMM_WORLD_RANK=str(rank)), *python("pass"), cwd=tmp_path)
        for rank in (0, 1)
    ]
    done = ended(tasks)
    assert [status for status, _ in done] == [0, 0]
    (run,) = (tmp_path / "runs").glob("mpirun-*")
    assert [line for _, lines in done for line in lines] == [f"pytracer: recorded in runs/{run.name}"]
    assert len(load_job(run).launchers) == 2
