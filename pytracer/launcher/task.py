"""The task of `srun` or `mpirun` that a launcher runs in: `srun pytracer run ...` starts one launcher per task.

The tasks of one step share a run directory. They find it without a word to each other, by a key that is the same in all
tasks of a step and in no other one: two steps of a job differ, and so does a job that was requeued under its number.
"""

from __future__ import annotations

import hashlib
import os
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pytracer.blackbox.ranks import number, slurm_step, task_identity
from pytracer.launcher.json_object import JsonObject
from pytracer.launcher.run_directory import boot_id, start_ticks

# Variables with the job's name, of launchers whose job is no Slurm step: Open MPI, PRRTE, Cray's PALS and ALPS, PMI-1.
_JOB_NAMES = (
    "PMIX_NAMESPACE",
    "OMPI_MCA_ess_base_jobid",
    "OMPI_MCA_orte_precondition_transports",
    "PALS_APID",
    "ALPS_APP_ID",
    "PMI_JOBID",
    "PMI_PORT",
)
_SCHEDULER_NAMES = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "FLUX_JOB_ID")
_PER_NODE = re.compile(r"(\d+)(?:\(x(\d+)\))?")


@dataclass(frozen=True)
class Task:
    """One task of a step.

    `key` names the step; `word` too, short enough for the name of a directory. `count`: the tasks of the step,
    `node_count` those on this node. None: the launcher has no variable for it.
    """

    launcher: str
    key: str
    word: str
    rank: int
    count: int | None
    node: str
    node_count: int | None

    def as_dict(self) -> JsonObject:
        """For the launcher's record."""
        return {
            "launcher": self.launcher, "step": self.key, "rank": self.rank, "count": self.count,
            "node": self.node, "node_count": self.node_count,
        }  # fmt: skip


def task_of(environment: Mapping[str, str]) -> Task | None:
    """The task that the environment names; None outside of srun and mpirun, and for a step of one task."""
    identity = task_identity(environment)
    if identity is None or identity.launcher is None:
        return None
    again = number(environment.get("SLURM_RESTART_COUNT")) or 0
    if identity.launcher == "srun":
        job, step = environment.get("SLURM_JOB_ID") or environment.get("SLURM_JOBID", ""), slurm_step(environment)
        names = [environment.get(name, "") for name in ("SLURM_CLUSTER_NAME", "SLURM_JOB_START_TIME")]
        word = f"slurm-{job}.{step}" + (f"-requeue{again}" if again else "")
    else:
        names = [f"{name}={environment[name]}" for name in _JOB_NAMES if environment.get(name)]
        names = names or [_parent()]
        names += [f"{name}={environment[name]}" for name in _SCHEDULER_NAMES if environment.get(name)]
        word = f"mpirun-{_digest(' '.join([*names, str(again)]))}"
    key = " ".join([identity.launcher, word, *filter(None, names), f"requeue {again}", f"tasks {identity.world_size}"])
    return Task(
        identity.launcher,
        key,
        re.sub(r"[^A-Za-z0-9._-]+", "_", word)[:80],
        identity.rank,
        identity.world_size,
        environment.get("SLURMD_NODENAME") or socket.gethostname(),
        _node_count(environment, identity.launcher),
    )


def _parent() -> str:
    """A launcher that names no job: its daemon on this node is the parent of all tasks here."""
    pid = os.getppid()
    return f"{socket.gethostname()} {boot_id()} {pid} {start_ticks(pid)}"


def _node_count(environment: Mapping[str, str], launcher: str) -> int | None:
    if launcher == "mpirun":
        names = ("OMPI_COMM_WORLD_LOCAL_SIZE", "MV2_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "PMI_LOCAL_SIZE")
        return next((value for name in names if (value := number(environment.get(name))) is not None), None)
    node, counts = number(environment.get("SLURM_NODEID")), tasks_per_node(environment)
    return counts[node] if node is not None and node < len(counts) else None


def tasks_per_node(environment: Mapping[str, str]) -> list[int]:
    """`2(x3),1` is [2, 2, 2, 1]; empty if it is not known."""
    counts: list[int] = []
    for item in environment.get("SLURM_STEP_TASKS_PER_NODE", "").split(","):
        match = _PER_NODE.fullmatch(item)
        if match is None or len(item) > 20 or len(counts) > 1 << 16:
            return []
        counts += [int(match[1])] * min(int(match[2] or 1), 1 << 16)
    return counts


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def launcher_lives(record: Mapping[str, object]) -> bool:
    """Whether the launcher that wrote a record may still run: on another machine nobody can know that it does not."""
    if record.get("boot_id") != boot_id() or record.get("host") != socket.gethostname():
        return True
    pid = record.get("pid")
    if not isinstance(pid, int) or start_ticks(pid) != record.get("start_ticks"):
        return False
    try:
        state = Path("/proc", str(pid), "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return False
    return state[0] not in ("Z", "X")
