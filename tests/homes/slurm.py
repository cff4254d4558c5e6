"""A Slurm cluster of its own on loopback: munged, slurmctld and two slurmds of this host, in a temporary directory.

Nothing of an installed Slurm's configuration or keys is used, no port is fixed, and each daemon is ended by its pid.

    with slurm_cluster() as slurm:
        slurm.srun("-n4", "hostname")
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

DAEMONS = ("munged", "slurmctld", "slurmd")
CLIENTS = ("srun", "sbatch", "scancel", "scontrol", "sinfo", "squeue")
NODES = ("left", "right")
CPUS = 4
_STARTED_SECONDS = 60.0
_ENDED_SECONDS = 10.0
_PATH = os.pathsep.join(["/usr/sbin", "/sbin", os.environ.get("PATH", "/usr/bin:/bin")])


def why_not() -> str | None:
    """Why there can be no cluster here; None if there can."""
    missing = [name for name in (*DAEMONS, *CLIENTS) if shutil.which(name, path=_PATH) is None]
    if missing:
        return f"no {', '.join(missing)}: apt-get install --no-install-recommends slurmctld slurmd slurm-client munge"
    if os.geteuid() != 0:
        return "slurmd starts tasks as their users: it needs root"
    return None


@dataclass
class Slurm:
    """A running cluster. `environment`: what its commands need."""

    directory: Path
    environment: dict[str, str]

    def run(
        self, *words: object, timeout: float = 120.0, env: Mapping[str, str] | None = None, cwd: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        """A command of Slurm; its streams as text."""
        return subprocess.run(
            [str(word) for word in words],
            env={**self.environment, **(env or {})},
            cwd=cwd,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
            check=False,
        )

    def logs(self) -> str:
        """The last lines of all daemons."""
        parts = []
        for path in sorted(self.directory.glob("*.log")):
            parts.append(f"{path.name}:\n" + "\n".join(path.read_text(errors="replace").splitlines()[-30:]))
        return "\n".join(parts)


@contextlib.contextmanager
def slurm_cluster(*, memory_limits: bool = False) -> Iterator[Slurm]:
    """A cluster until the block ends.

    Args:
        memory_limits: tasks live in cgroups whose memory is limited to what their step asked for (`--mem`).
    """
    directory = Path(tempfile.mkdtemp(prefix="slurm-", dir="/tmp"))
    directory.chmod(0o755)
    environment = {**os.environ, "PATH": _PATH, "SLURM_CONF": str(directory / "slurm.conf")}
    for name in [name for name in environment if name.startswith(("SLURM_", "SBATCH_", "OMPI_", "PMI"))]:
        if name != "SLURM_CONF":
            del environment[name]
    slurm = Slurm(directory, environment)
    started: list[subprocess.Popen[bytes]] = []
    try:
        _configure(directory, memory_limits)
        munge = ["munged", "-F", f"--key-file={directory}/munge.key", f"--socket={directory}/munge.socket"]
        munge += [f"--{name}-file={directory}/munge.{name}" for name in ("pid", "seed")]
        started.append(_start(slurm, "munged", [*munge, f"--log-file={directory}/munged.log", "--num-threads=1"]))
        _wait_for("munged", slurm, (directory / "munge.socket").exists)
        started.append(_start(slurm, "slurmctld", ["slurmctld", "-D", "-i"]))
        for node in NODES:
            started.append(_start(slurm, f"slurmd.{node}", ["slurmd", "-D", "-N", node]))
        _wait_for("its nodes", slurm, lambda: _idle(slurm) == len(NODES))
        yield slurm
    finally:
        _end_jobs(slurm)
        for process in reversed(started):
            _end(process)
        shutil.rmtree(directory, ignore_errors=True)


def _configure(directory: Path, memory_limits: bool) -> None:
    key = os.open(directory / "munge.key", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(key, "wb") as file:
        file.write(secrets.token_bytes(128))
    ports = _free_ports(1 + len(NODES))
    for name in ("state", *(f"spool.{node}" for node in NODES)):
        (directory / name).mkdir()
    track = "cgroup" if memory_limits else "linuxproc"
    lines = [
        "ClusterName=homes",
        f"SlurmctldHost={socket.gethostname()}(127.0.0.1)",
        "SlurmUser=root",
        f"SlurmctldPort={ports[0]}",
        f"StateSaveLocation={directory}/state",
        f"SlurmdSpoolDir={directory}/spool.%n",
        f"SlurmctldPidFile={directory}/slurmctld.pid",
        f"SlurmdPidFile={directory}/slurmd.%n.pid",
        "AuthType=auth/munge",
        f"AuthInfo=socket={directory}/munge.socket",
        "CredType=cred/munge",
        f"ProctrackType=proctrack/{track}",
        f"TaskPlugin=task/{'cgroup' if memory_limits else 'none'}",
        "JobAcctGatherType=jobacct_gather/none",
        "AccountingStorageType=accounting_storage/none",
        "SelectType=select/cons_tres",
        "SelectTypeParameters=CR_CPU_Memory",
        "DefMemPerCPU=100",
        "SlurmdParameters=config_overrides",  # more CPUs than there are
        "SwitchType=switch/none",
        "MpiDefault=none",
        "KillWait=12",
        "OverTimeLimit=0",
        "ReturnToService=2",
        "SchedulerParameters=batch_sched_delay=0,sched_interval=1",
        "RequeueExit=99",
        "PropagateResourceLimits=NONE",
        *(
            f"NodeName={node} NodeHostname={socket.gethostname()} NodeAddr=127.0.0.1 Port={port} CPUs={CPUS} "
            "RealMemory=2000 State=UNKNOWN"
            for node, port in zip(NODES, ports[1:], strict=True)
        ),
        f"PartitionName=all Nodes={','.join(NODES)} Default=YES MaxTime=60 State=UP OverSubscribe=NO",
    ]
    (directory / "slurm.conf").write_text("\n".join(lines) + "\n")
    groups = ["CgroupAutomount=no", f"CgroupMountpoint={_CGROUPS}", "CgroupPlugin=cgroup/v1"]
    limits = ["ConstrainRAMSpace=yes", "ConstrainSwapSpace=yes", "AllowedSwapSpace=0"]
    (directory / "cgroup.conf").write_text("\n".join([*groups, *(limits if memory_limits else [])]) + "\n")


_CGROUPS = "/sys/fs/cgroup"


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for item in sockets:
            item.bind(("127.0.0.1", 0))
        return [int(item.getsockname()[1]) for item in sockets]


def _start(slurm: Slurm, name: str, words: list[str]) -> subprocess.Popen[bytes]:
    with open(slurm.directory / f"{name}.out.log", "wb") as log:
        return subprocess.Popen(
            words, env=slurm.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )


def _idle(slurm: Slurm) -> int:
    done = slurm.run("sinfo", "-h", "-N", "-o", "%T", timeout=30)
    return done.stdout.split().count("idle")


def _wait_for(what: str, slurm: Slurm, ready: object) -> None:
    assert callable(ready)
    until = time.monotonic() + _STARTED_SECONDS
    while not ready():
        if time.monotonic() > until:
            raise RuntimeError(f"Slurm: {what} did not start within {_STARTED_SECONDS:.0f} s\n{slurm.logs()}")
        time.sleep(0.1)


def _end_jobs(slurm: Slurm) -> None:
    """What is left of jobs, while the daemons that can end them still run."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        if not slurm.run("squeue", "-h", timeout=10).stdout.strip():
            return
        slurm.run("scancel", "--signal=KILL", "--full", "--user=root", timeout=10)
        slurm.run("scancel", "--user=root", timeout=10)
        until = time.monotonic() + _ENDED_SECONDS
        while time.monotonic() < until and slurm.run("squeue", "-h", timeout=10).stdout.strip():
            time.sleep(0.2)


def _end(process: subprocess.Popen[bytes]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is not None:
            return
        process.send_signal(number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_ENDED_SECONDS)


def main() -> int:
    """`python -m tests.homes.slurm COMMAND...` runs a command with a cluster around it."""
    reason = why_not()
    if reason is not None:
        print(reason, file=sys.stderr)
        return 1
    with slurm_cluster(memory_limits="--memory-limits" in sys.argv[1:2]) as slurm:
        words = [word for word in sys.argv[1:] if word != "--memory-limits"]
        return subprocess.run(words or ["sinfo"], env=slurm.environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
