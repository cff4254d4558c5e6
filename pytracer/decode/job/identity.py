"""Identity from launchers' environment variables: rank, size, the job's name, the attempt.

A launcher identifies a process by variables, which its children inherit; `roles.py` decides which process is meant.
torchrun inside an `srun` step leaves both sets: RANK takes precedence.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pytracer.decode.types.snapshot import Process

AGENTS = ("torchrun", "torch.distributed.run", "torch.distributed.launch", "torch/distributed/run.py")


@dataclass(frozen=True)
class Identity:
    """A rank according to the environment. `launcher`: the source; None for plain RANK."""

    rank: int
    local_rank: int | None
    world_size: int | None
    launcher: str | None


# Launcher, then its names for rank, rank on this host, number of ranks. The first name that is set counts.
# Slurm: srun(1). Open MPI: mpirun(1). PMI_*: MPICH and Intel MPI (hydra). PMIX_*: PRRTE; it has no size.
_FAMILIES: tuple[tuple[str | None, tuple[str, ...], tuple[str, ...], tuple[str, ...]], ...] = (
    (None, ("RANK",), ("LOCAL_RANK",), ("WORLD_SIZE",)),
    ("srun", ("SLURM_PROCID",), ("SLURM_LOCALID",), ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS")),
    ("mpirun", ("OMPI_COMM_WORLD_RANK",), ("OMPI_COMM_WORLD_LOCAL_RANK",), ("OMPI_COMM_WORLD_SIZE",)),
    ("mpirun", ("MV2_COMM_WORLD_RANK",), ("MV2_COMM_WORLD_LOCAL_RANK",), ("MV2_COMM_WORLD_SIZE",)),
    ("mpirun", ("PMI_RANK", "PMIX_RANK"), ("MPI_LOCALRANKID",), ("PMI_SIZE",)),
)


def identity_of(environment: Mapping[str, str]) -> Identity | None:
    """The rank that the environment names; None when it names none.

    A job of one process is none: `srun` and `mpirun` set their variables for every program, RANK is set for ranks.
    The batch script of a Slurm job has a SLURM_PROCID, too, but is no step.
    """
    for launcher, ranks, local_ranks, sizes in _FAMILIES:
        rank = _first(environment, ranks)
        if rank is None or (launcher == "srun" and not _slurm_step(environment)):
            continue
        size = _first(environment, sizes)
        if launcher is not None and size == 1:
            continue
        return Identity(rank, _first(environment, local_ranks), size, launcher)
    return None


def job_keys(environment: Mapping[str, str]) -> frozenset[str]:
    """Names of the job that its processes share on all hosts."""
    keys = set()
    run_id = environment.get("TORCHELASTIC_RUN_ID", "none")
    if run_id != "none":  # torchrun's default
        keys.add(f"run id {run_id}")
    elif environment.get("MASTER_ADDR") and environment.get("MASTER_PORT"):
        keys.add(f"master {environment['MASTER_ADDR']}:{environment['MASTER_PORT']}")
    step = _slurm_step(environment)
    if environment.get("SLURM_JOB_ID") and step:
        keys.add(f"Slurm step {environment['SLURM_JOB_ID']}.{step}")
    if environment.get("PMIX_NAMESPACE"):
        keys.add(f"MPI job {environment['PMIX_NAMESPACE']}")
    # Slurm requeues a job under its old number.
    again = number(environment.get("SLURM_RESTART_COUNT"))
    return frozenset(f"{key}, requeued {again} times" if again else key for key in keys)


def restart_count(environment: Mapping[str, str]) -> int | None:
    """How often torchrun's agent had restarted its workers when it started this one."""
    return number(environment.get("TORCHELASTIC_RESTART_COUNT"))


def launcher_name(processes: Iterable[Process]) -> str | None:
    """The launcher of the ranks: "torchrun", "srun", "mpirun", "mp.spawn" or "kubernetes"; None if unknown."""
    found = list(processes)
    ranks = [process for process in found if process.role == "rank"]
    environments = [process.snapshot.environment for process in ranks or found]
    if any("TORCHELASTIC_RUN_ID" in item for item in environments) or any(
        process.role == "launcher" and is_agent(process.snapshot.argv) for process in found
    ):
        return "torchrun"
    if ranks and all(_is_spawned(process, found) for process in ranks):
        return "mp.spawn"
    named = [identity.launcher for item in environments if (identity := identity_of(item)) is not None]
    word = next((launcher for launcher in named if launcher), None)
    if word == "mpirun" and any(_slurm_step(item) for item in environments):
        return "srun"  # its PMI plugin sets the variables of MPI
    if word is None and any("KUBERNETES_SERVICE_HOST" in item for item in environments):
        return "kubernetes"
    return word


def _is_spawned(rank: Process, processes: Iterable[Process]) -> bool:
    """Whether multiprocessing started a rank: by spawn, or by fork from a parent that set no environment."""
    box = rank.snapshot
    if "--multiprocessing-fork" in box.argv:
        return True
    return identity_of(box.environment) is None and any(
        p.role == "launcher"
        and (p.snapshot.host, p.snapshot.boot_id, p.snapshot.pid) == (box.host, box.boot_id, box.ppid)
        for p in processes
    )  # fmt: skip


def is_agent(argv: Iterable[str]) -> bool:
    """Whether a command line is that of torchrun."""
    return any(word in argument for argument in list(argv)[:4] for word in AGENTS)


def number(text: str | None) -> int | None:
    """A small decimal number, as in RANK=3; anything else is None."""
    return int(text) if text is not None and len(text) <= 9 and text.isascii() and text.isdigit() else None


def _slurm_step(environment: Mapping[str, str]) -> str | None:
    step = environment.get("SLURM_STEP_ID") or environment.get("SLURM_STEPID")
    return None if step in (None, "", "4294967291", "batch") else step  # SLURM_BATCH_SCRIPT: 0xfffffffb


def _first(environment: Mapping[str, str], names: Iterable[str]) -> int | None:
    return next((value for name in names if (value := number(environment.get(name))) is not None), None)
