"""Identity from launchers' environment variables: rank, size, the job's name, the attempt.

A launcher identifies a process by variables, which its children inherit; `roles.py` decides which process is meant.
torchrun inside an `srun` step leaves both sets: RANK takes precedence (`blackbox/ranks.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from pytracer.blackbox.ranks import identity_of, number, slurm_step
from pytracer.decode.types.snapshot import Process

AGENTS = ("torchrun", "torch.distributed.run", "torch.distributed.launch", "torch/distributed/run.py")


def job_keys(environment: Mapping[str, str]) -> frozenset[str]:
    """Names of the job that its processes share on all hosts."""
    keys = set()
    run_id = environment.get("TORCHELASTIC_RUN_ID", "none")
    if run_id != "none":  # torchrun's default
        keys.add(f"run id {run_id}")
    elif environment.get("MASTER_ADDR") and environment.get("MASTER_PORT"):
        keys.add(f"master {environment['MASTER_ADDR']}:{environment['MASTER_PORT']}")
    step = slurm_step(environment)
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
    if word == "mpirun" and any(slurm_step(item) for item in environments):
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


def runs_agent(argv: Sequence[str]) -> bool:
    """Whether a process is torchrun itself: not `timeout 600 torchrun ...`, which only starts it."""
    program = argv[0].rpartition("/")[2] if argv else ""
    return is_agent(argv) and (program.startswith("python") or any(word in program for word in AGENTS))
