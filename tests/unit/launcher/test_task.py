"""The task of srun or mpirun that a launcher is below, by environment variables."""

from __future__ import annotations

import pytest

from pytracer.launcher.task import task_of, tasks_per_node

STEP = {"SLURM_JOB_ID": "77", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "8", "SLURM_CLUSTER_NAME": "c"}
PLACE = {"SLURM_PROCID": "5", "SLURM_NODEID": "1", "SLURM_STEP_TASKS_PER_NODE": "4(x2)", "SLURMD_NODENAME": "right"}
OPEN_MPI = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}


def test_task_of_a_slurm_step() -> None:
    """Rank, tasks of the step and of this node."""
    task = task_of({**STEP, **PLACE})
    assert task is not None
    assert (task.launcher, task.rank, task.count, task.node, task.node_count) == ("srun", 5, 8, "right", 4)
    assert task.word == "slurm-77.0"


def test_tasks_of_a_step_have_one_key() -> None:
    """Whatever is a task's own is not in it."""
    keys = {task.key for rank in range(8) if (task := task_of({**STEP, **PLACE, "SLURM_PROCID": str(rank)}))}
    assert len(keys) == 1


@pytest.mark.parametrize(
    "other",
    [{"SLURM_STEP_ID": "1"}, {"SLURM_JOB_ID": "78"}, {"SLURM_RESTART_COUNT": "1"}, {"SLURM_STEP_NUM_TASKS": "4"}],
    ids=["step", "job", "requeue", "size"],
)
def test_other_steps_have_other_keys(other: dict[str, str]) -> None:
    """Two steps of a job, two jobs, and a job that was requeued under its number."""
    one, two = task_of({**STEP, **PLACE}), task_of({**STEP, **PLACE, **other})
    assert one is not None and two is not None
    assert one.key != two.key


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"RANK": "1", "WORLD_SIZE": "2"},
        {**STEP, "SLURM_STEP_ID": "4294967291", "SLURM_PROCID": "0"},
        {**STEP, "SLURM_STEP_NUM_TASKS": "1", "SLURM_PROCID": "0"},
    ],
    ids=["none", "RANK alone", "batch script", "one task"],
)
def test_no_task(environment: dict[str, str]) -> None:
    """RANK comes from torchrun, too, whose workers are below one launcher; a batch script runs once."""
    assert task_of(environment) is None


@pytest.mark.parametrize(
    "environment",
    [
        {**OPEN_MPI, "OMPI_MCA_ess_base_jobid": "8585217"},
        {"PMIX_RANK": "1", "PMIX_NAMESPACE": "prterun-host-1@1"},
        {"PMI_RANK": "1", "PMI_SIZE": "4", "PALS_APID": "b1"},
        {"PMI_RANK": "1", "PMI_SIZE": "4"},
    ],
    ids=["Open MPI", "PRRTE", "Cray", "hydra"],
)
def test_task_of_mpirun(environment: dict[str, str]) -> None:
    """Each launcher has a name for the job; one without is known by its daemon, the parent of all tasks."""
    task, again = task_of(environment), task_of({**environment, "SLURM_RESTART_COUNT": "1"})
    assert task is not None and again is not None
    assert (task.launcher, task.rank) == ("mpirun", 1)
    assert task.word.startswith("mpirun-")
    assert task.key != again.key and task.key == (task_of(environment) or again).key


def test_jobs_of_mpirun_differ() -> None:
    """By the name that mpirun gives them."""
    one = task_of({**OPEN_MPI, "OMPI_MCA_ess_base_jobid": "1"})
    two = task_of({**OPEN_MPI, "OMPI_MCA_ess_base_jobid": "2"})
    assert one is not None and two is not None
    assert one.key != two.key and one.word != two.word


def test_mpirun_in_a_slurm_job_counts_its_own_ranks() -> None:
    """Its daemons are tasks of a step: SLURM_PROCID is the node's number."""
    task = task_of({**STEP, **PLACE, **OPEN_MPI, "OMPI_MCA_ess_base_jobid": "1"})
    assert task is not None
    assert (task.launcher, task.rank, task.count, task.node_count) == ("mpirun", 1, 4, 2)


@pytest.mark.parametrize(
    ("text", "counts"),
    [("4(x2),1", [4, 4, 1]), ("2", [2]), ("", []), ("x", []), ("9" * 30, []), ("1(x999999999)", None)],
)
def test_tasks_per_node(text: str, counts: list[int] | None) -> None:
    """Slurm's short form; nonsense is no number, and no list without end."""
    found = tasks_per_node({"SLURM_STEP_TASKS_PER_NODE": text})
    assert found == counts if counts is not None else len(found) <= 1 << 16
