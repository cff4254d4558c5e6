"""Ranks, launchers and attempts, from the environments that launchers give."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytracer.blackbox.ranks import Identity, identity_of
from pytracer.decode.job.identity import job_keys, launcher_name
from pytracer.decode.job.merge import load_job
from pytracer.decode.types.snapshot import Job
from tests.support.synth import Box, write_run

TORCHRUN = ("/env/bin/python", "/env/bin/torchrun", "train.py")
SLURM = {"SLURM_JOB_ID": "77", "SLURM_STEP_ID": "0", "SLURM_NTASKS": "2"}


def worker(pid: int, rank: int, attempt: int = 0, ppid: int = 100, at: float = 0, run: str = "r") -> Box:
    environment = {
        "RANK": str(rank), "LOCAL_RANK": str(rank % 2), "WORLD_SIZE": "2",
        "TORCHELASTIC_RUN_ID": run, "TORCHELASTIC_RESTART_COUNT": str(attempt),
    }  # fmt: skip
    return Box(pid=pid, ppid=ppid, environment=environment, created_ns=5_000_000_000 + int(at * 1e9))


def standing(job: Job) -> dict[int, tuple[str, int | None, int | None, int | None]]:
    return {p.snapshot.pid: (p.role, p.rank, p.parent_rank, p.attempt) for p in job.processes}


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "4"}, Identity(3, 1, 4, None)),
        ({**SLURM, "SLURM_PROCID": "1", "SLURM_LOCALID": "0"}, Identity(1, 0, 2, "srun")),
        ({"SLURM_JOB_ID": "77", "SLURM_PROCID": "0", "SLURM_NTASKS": "4"}, None),
        ({**SLURM, "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1"}, None),
        ({**SLURM, "SLURM_PROCID": "0", "RANK": "1", "WORLD_SIZE": "8"}, Identity(1, None, 8, None)),
        (
            {"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "0", "OMPI_COMM_WORLD_SIZE": "3"},
            Identity(2, 0, 3, "mpirun"),
        ),
        ({"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1"}, Identity(1, 1, 2, "mpirun")),
        ({"PMIX_RANK": "5", "PMIX_NAMESPACE": "prte-1"}, Identity(5, None, None, "mpirun")),
        # Daemons of mpirun, one per node, are tasks of a Slurm step, too; srun's own PMI counts its tasks.
        (
            {**SLURM, "SLURM_PROCID": "1", "OMPI_COMM_WORLD_RANK": "6", "OMPI_COMM_WORLD_SIZE": "8"},
            Identity(6, None, 8, "mpirun"),
        ),
        ({**SLURM, "SLURM_PROCID": "1", "PMI_RANK": "6", "PMI_SIZE": "8"}, Identity(6, None, 8, "mpirun")),
        ({**SLURM, "SLURM_PROCID": "1", "PMI_RANK": "1", "PMI_SIZE": "2"}, Identity(1, None, 2, "srun")),
        ({"RANK": "-1"}, None),
        ({"RANK": "9" * 12}, None),
        ({}, None),
    ],
)
def test_rank_is_read_from_the_launchers_variables(environment: dict[str, str], expected: Identity | None) -> None:
    """torchrun and operators, Slurm's steps but not its batch script, MPI; a job of one process is no rank."""
    assert identity_of(environment) == expected


def test_ranks_of_slurm_need_no_process_group(tmp_path: Path) -> None:
    """They died before init_process_group; what one of them started is its child."""
    ranks = [Box(pid=101 + i, ppid=1, environment={**SLURM, "SLURM_PROCID": str(i)}) for i in range(2)]
    child = Box(pid=110, ppid=102, argv=("sh",), environment={**SLURM, "SLURM_PROCID": "1"})
    job = load_job(write_run(tmp_path, *ranks, child))
    assert standing(job) == {
        101: ("rank", 0, None, None), 102: ("rank", 1, None, None), 110: ("child", None, 1, None),
    }  # fmt: skip
    assert launcher_name(job.processes) == "srun"


def test_agent_that_srun_started_is_no_rank(tmp_path: Path) -> None:
    """srun gives the agent rank 1 of its own; the worker with RANK 1 is the rank, even where the agent is alone."""
    environment = {**SLURM, "SLURM_PROCID": "1"}
    agent = Box(pid=100, ppid=1, argv=TORCHRUN, environment=environment)
    ranks = [worker(101, 1)]
    assert standing(load_job(write_run(tmp_path / "a", agent, *ranks))) == {
        100: ("launcher", None, None, None), 101: ("rank", 1, None, 0),
    }  # fmt: skip
    assert standing(load_job(write_run(tmp_path / "b", agent))) == {100: ("launcher", None, None, None)}


def test_restarts_are_attempts(tmp_path: Path) -> None:
    """Two workers die and are started again; a DataLoader worker belongs to the attempt of its rank."""
    agent = Box(pid=100, ppid=1, argv=TORCHRUN)
    first = [worker(101, 0), worker(102, 1)]
    second = [worker(103, 0, 1, at=5), worker(104, 1, 1, at=5.1)]
    loader = worker(105, 1, 1, ppid=104, at=6)
    job = load_job(write_run(tmp_path, agent, *first, *second, loader))
    assert standing(job) == {
        100: ("launcher", None, None, None),
        101: ("rank", 0, None, 0), 102: ("rank", 1, None, 0),
        103: ("rank", 0, None, 1), 104: ("rank", 1, None, 1),
        105: ("child", None, 1, 1),
    }  # fmt: skip
    assert launcher_name(job.processes) == "torchrun"


def test_restart_that_another_host_asked_for_is_an_attempt(tmp_path: Path) -> None:
    """The agent's own count stays 0 then: the same local rank comes again."""
    agent = Box(pid=100, ppid=1, argv=TORCHRUN)
    job = load_job(
        write_run(tmp_path, agent, worker(101, 0), worker(102, 1), worker(103, 0, at=5), worker(104, 1, at=5))
    )
    assert [standing(job)[pid][3] for pid in (101, 102, 103, 104)] == [0, 0, 1, 1]


def test_mp_spawn_is_named(tmp_path: Path) -> None:
    """Ranks without a launcher's variables whose parent launched nothing else."""
    job = load_job(write_run(tmp_path, Box(pid=100, ppid=1), *(Box(pid=101 + i, ppid=100).rank(i) for i in range(2))))
    assert launcher_name(job.processes) == "mp.spawn"


def test_ranks_of_an_operator_are_named_after_kubernetes(tmp_path: Path) -> None:
    """RANK without torchrun, in a pod."""
    pod = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "RANK": "0", "WORLD_SIZE": "2"}
    assert launcher_name(load_job(write_run(tmp_path, Box(environment=pod))).processes) == "kubernetes"


def test_jobs_are_told_apart_by_what_their_launcher_calls_them() -> None:
    """The run id, unless it is torchrun's default, else the address of the store."""
    master = {"MASTER_ADDR": "n0", "MASTER_PORT": "29500"}
    assert job_keys({"TORCHELASTIC_RUN_ID": "x", **master}) == {"run id x"}
    assert job_keys({"TORCHELASTIC_RUN_ID": "none", **master}) == {"master n0:29500"}
    assert job_keys(SLURM) == {"Slurm step 77.0"}
    assert job_keys({}) == frozenset()


def spawned(pid: int, rank: int, at: float) -> Box:
    """A rank of mp.spawn that lives for one second."""
    box = Box(pid=pid, ppid=100, created_ns=5_000_000_000 + int(at * 1e9)).rank(rank)
    return box.at(1000).exit(0)


def attempts(*boxes: Box, directory: Path) -> dict[int, int | None]:
    job = load_job(write_run(directory, Box(pid=100, ppid=1), *boxes))
    return {p.snapshot.pid: p.attempt for p in job.processes if p.role == "rank"}


def test_jobs_in_turn_are_numbered(tmp_path: Path) -> None:
    """A sweep: the second job is larger than the first."""
    first = [spawned(101, 0, 0), spawned(102, 1, 0.1)]
    second = [spawned(103, 0, 5), spawned(104, 1, 5.1), spawned(105, 2, 5.2)]
    assert attempts(*first, *second, directory=tmp_path) == {101: 0, 102: 0, 103: 1, 104: 1, 105: 1}


def test_jobs_side_by_side_are_not_taken_apart(tmp_path: Path) -> None:
    """The second one began before the first had ended."""
    boxes = [spawned(101, 0, 0), spawned(102, 1, 0.1), spawned(103, 0, 0.5), spawned(104, 1, 0.6)]
    assert set(attempts(*boxes, directory=tmp_path).values()) == {None}


def srun_rank(pid: int, rank: int, at: float, host: str, lasts: float = 1, **variables: str) -> Box:
    """A rank of srun, with nobody recorded above it."""
    environment = {**SLURM, "SLURM_PROCID": str(rank), "SLURM_STEP_NUM_TASKS": "2", **variables}
    where: dict[str, Any] = {"host": host, "boot_id": f"000000{host[-1]}0-0000-4000-8000-000000000000"}
    created_ns = 5_000_000_000 + int(at * 1e9)
    box = Box(pid=pid, ppid=7, environment=environment, created_ns=created_ns, start_ticks=created_ns // 10**7, **where)
    return box.versions(python="3.11.7").at(lasts * 1000).exit(0)


@pytest.mark.parametrize("again", ["n0", "n2"])
def test_requeued_job_is_a_job_of_its_own(again: str, tmp_path: Path) -> None:
    """Slurm keeps the number, so both are recorded into one directory; the second one on the same or other hosts."""
    first = [srun_rank(101, 0, 0, "n0"), srun_rank(102, 1, 0.1, "n1")]
    second = [
        srun_rank(201, 0, 60, again, SLURM_RESTART_COUNT="1"),
        srun_rank(202, 1, 60.1, "n1", SLURM_RESTART_COUNT="1"),
    ]
    assert attempts(*first, *second, directory=tmp_path) == {101: 0, 102: 0, 201: 1, 202: 1}


def test_job_of_the_same_name_on_other_hosts_is_told_apart_by_time(tmp_path: Path) -> None:
    """Nothing says requeued; all of the first had ended."""
    first = [srun_rank(101, 0, 0, "n0"), srun_rank(102, 1, 0.1, "n1")]
    second = [srun_rank(201, 0, 60, "n2"), srun_rank(202, 1, 60.1, "n3")]
    assert attempts(*first, *second, directory=tmp_path) == {101: 0, 102: 0, 201: 1, 202: 1}


def test_two_jobs_at_once_in_one_directory_are_told_apart_by_name(tmp_path: Path) -> None:
    """The same PYTRACER_DIR on purpose."""
    first = [srun_rank(101, 0, 0, "n0", lasts=50), srun_rank(102, 1, 0.1, "n1", lasts=50)]
    second = [srun_rank(201, 0, 20, "n2", SLURM_JOB_ID="78"), srun_rank(202, 1, 20.1, "n3", SLURM_JOB_ID="78")]
    assert attempts(*first, *second, directory=tmp_path) == {101: 0, 102: 0, 201: 1, 202: 1}


def test_one_job_on_several_hosts_is_not_taken_apart(tmp_path: Path) -> None:
    """The look-alike: its ranks start a minute apart."""
    boxes = [srun_rank(101, 0, 0, "n0", lasts=100), srun_rank(102, 1, 60, "n1", lasts=40)]
    assert set(attempts(*boxes, directory=tmp_path).values()) == {None}


def test_groups_of_ranks_below_one_program_are_one_job(tmp_path: Path) -> None:
    """The look-alike: a trainer and its samplers, each with a rank 0 and a store of its own."""
    boxes = [
        Box(pid=pid, ppid=100, environment={"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "n0", "MASTER_PORT": port})
        for pid, port in ((101, "29500"), (102, "29600"))
    ]
    assert set(attempts(*boxes, directory=tmp_path).values()) == {None}


def test_torchrun_in_a_loop_counts_on(tmp_path: Path) -> None:
    """Each agent counts its own restarts from 0."""
    agents = [Box(pid=100, ppid=1, argv=TORCHRUN).at(2000).exit(0), Box(pid=200, ppid=1, argv=TORCHRUN)]
    first = [worker(101, 0).at(1000).exit(0), worker(102, 1).at(1000).exit(0)]
    second = [worker(201, 0, ppid=200, at=5), worker(202, 1, ppid=200, at=5)]
    job = load_job(write_run(tmp_path, *agents, *first, *second))
    assert [standing(job)[pid][3] for pid in (101, 102, 201, 202)] == [0, 0, 1, 1]


def test_wrapper_in_another_pid_namespace_is_no_second_rank(tmp_path: Path) -> None:
    """bubblewrap's child is process 2 of its own namespace, so nothing links it to bubblewrap, which has its RANK."""
    environment = {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2"}
    wrapper = Box(pid=4711, ppid=100, argv=("bwrap", "python"), environment=environment, python_minor=0, start_ticks=50)
    rank = Box(pid=2, ppid=1, environment=environment, start_ticks=60)
    found = standing(load_job(write_run(tmp_path / "both", wrapper, rank)))
    assert {pid: words[:2] for pid, words in found.items()} == {4711: ("process", None), 2: ("rank", 1)}


def test_rank_that_runs_no_python_is_one(tmp_path: Path) -> None:
    """A program in C++ below torchrun; and of two of them none is a wrapper of the other."""
    environment = {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2"}
    ranks = [Box(pid=pid, ppid=100, argv=("a.out",), environment=environment, python_minor=0) for pid in (5, 6)]
    assert [words[:2] for words in standing(load_job(write_run(tmp_path, *ranks))).values()] == [("rank", 1)] * 2
