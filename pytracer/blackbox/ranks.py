"""Which rank a process is, by the variables of the launcher that started it; for the reader and for `pytracer run`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Identity:
    """A rank according to the environment. `launcher`: the source; None for plain RANK."""

    rank: int
    local_rank: int | None
    world_size: int | None
    launcher: str | None


_Names = tuple[str, ...]
_Family = tuple[str | None, _Names, _Names, _Names]
# Launcher, then its names for rank, rank on this host, number of ranks. The first name that is set counts.
# Slurm: srun(1). Open MPI: mpirun(1). PMI_*: MPICH, Intel MPI (hydra) and Cray. PMIX_*: PRRTE; it has no size.
_PLAIN: _Family = (None, ("RANK",), ("LOCAL_RANK",), ("WORLD_SIZE",))
_SRUN: _Family = (
    "srun", ("SLURM_PROCID",), ("SLURM_LOCALID",), ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS")
)  # fmt: skip
_OPEN_MPI: _Family = (
    "mpirun", ("OMPI_COMM_WORLD_RANK",), ("OMPI_COMM_WORLD_LOCAL_RANK",), ("OMPI_COMM_WORLD_SIZE",)
)  # fmt: skip
_MVAPICH: _Family = (
    "mpirun", ("MV2_COMM_WORLD_RANK",), ("MV2_COMM_WORLD_LOCAL_RANK",), ("MV2_COMM_WORLD_SIZE",)
)  # fmt: skip
_PMI: _Family = ("mpirun", ("PMI_RANK", "PMIX_RANK"), ("MPI_LOCALRANKID", "PMI_LOCAL_RANK"), ("PMI_SIZE",))


def identity_of(environment: Mapping[str, str]) -> Identity | None:
    """The rank that the environment names; None when it names none.

    A job of one process is none: `srun` and `mpirun` set their variables for every program, RANK is set for ranks.
    """
    return _identity(environment, (_PLAIN, *_launchers(environment)))


def task_identity(environment: Mapping[str, str]) -> Identity | None:
    """The same without RANK: the task of `srun` or `mpirun` that this process is, or is below."""
    return _identity(environment, _launchers(environment))


def slurm_step(environment: Mapping[str, str]) -> str | None:
    """The number of the Slurm step; None outside of one. The batch script of a job is none."""
    step = environment.get("SLURM_STEP_ID") or environment.get("SLURM_STEPID")
    return None if step in (None, "", "4294967291", "batch") else step  # SLURM_BATCH_SCRIPT: 0xfffffffb


def number(text: str | None) -> int | None:
    """A small decimal number, as in RANK=3; anything else is None."""
    return int(text) if text is not None and len(text) <= 9 and text.isascii() and text.isdigit() else None


def _launchers(environment: Mapping[str, str]) -> tuple[_Family, ...]:
    """The families of srun and mpirun, the one that counts first.

    Below mpirun in a Slurm job, SLURM_PROCID is that of mpirun's daemon, one per node; srun itself sets none of Open
    MPI's variables, but those of PMI, whose size is then its own.
    """
    tasks = _first(environment, _SRUN[3])
    ranks = _first(environment, _PMI[3])
    hydra = ranks is not None and tasks is not None and ranks != tasks
    return (_OPEN_MPI, _MVAPICH, *((_PMI, _SRUN) if hydra else (_SRUN, _PMI)))


def _identity(environment: Mapping[str, str], families: Iterable[_Family]) -> Identity | None:
    for launcher, ranks, local_ranks, sizes in families:
        rank = _first(environment, ranks)
        if rank is None or (launcher == "srun" and not slurm_step(environment)):
            continue
        size = _first(environment, sizes)
        if launcher is not None and size == 1:
            continue
        return Identity(rank, _first(environment, local_ranks), size, launcher)
    return None


def _first(environment: Mapping[str, str], names: Iterable[str]) -> int | None:
    return next((value for name in names if (value := number(environment.get(name))) is not None), None)
