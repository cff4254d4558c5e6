"""SIGKILL by elimination: each possible sender, and what was found, not found or could not be read about it.

SIGKILL leaves no record in the process that it ends, and has no sender. The remaining evidence are counters of the
kernel, other processes of the job, and programs that manage jobs and memory on the machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal

import msgspec

from pytracer._printable import shell_command, shell_word
from pytracer.analyze.deaths.order import is_interrupt
from pytracer.analyze.evidence.ends.oom import OomTrace, witness_of
from pytracer.analyze.evidence.ends.oom_words import SearchResult, oom_evidence, searched
from pytracer.analyze.evidence.ends.sent_signals import sent_signals
from pytracer.analyze.kin import parent_of
from pytracer.analyze.naming import name_words
from pytracer.analyze.platform.signals import SIGTERM
from pytracer.analyze.view import Death, JobView, ProcessView
from pytracer.report.job import Evidence

# Variable that a scheduler sets, its name, and the command that shows how it ended the job.
_SCHEDULERS = (
    ("SLURM_JOB_ID", "Slurm", "sacct -j {} --format=JobID,State,ExitCode,DerivedExitCode,MaxRSS"),
    ("PBS_JOBID", "PBS", "qstat -xf {}"),
    ("LSB_JOBID", "LSF", "bjobs -l {}"),
    ("FLUX_JOB_ID", "Flux", "flux job status {}"),
)

_GRACE_NS = 25_000_000_000  # torchrun's agent waits 30 s between SIGTERM and SIGKILL


class _Agent(msgspec.Struct, frozen=True):
    """torchrun's agent, and why it may have killed the process: it had sent SIGTERM, had to stop, or saw a death."""

    view: ProcessView | None = None
    reason: Literal["sent-sigterm", "stopped", "saw-death"] | None = None
    earlier: Death | None = None


class _Scheduler(msgspec.Struct, frozen=True):
    """A scheduler, the variable by which it is known, and the command that shows how it ended the job."""

    name: str
    variable: str
    question: str


def elimination(job: JobView, view: ProcessView, trace: OomTrace | None) -> list[Evidence]:
    """All that was searched about one killed process: the kernel's OOM killer first, then who else could have sent it.

    Each begins with the result: found, not found or not readable.
    """
    kernel = oom_evidence(view, trace) if trace is not None else [_no_kernel(job)]
    return [*kernel, _agent_evidence(_agent(job, view)), _scheduler_evidence(job, view), *_killers(job, view)]


def other_candidates(job: JobView, view: ProcessView) -> bool:
    """Whether other possible senders than the kernel are known."""
    witness = witness_of(job, view)
    killers = bool(witness.killers) if witness is not None else False
    return bool(view.senders) or killers or _agent(job, view).reason is not None or _scheduler(job, view) is not None


def time_limit_of_parent(job: JobView, view: ProcessView) -> ProcessView | None:
    """The parent, if it ended with subprocess.TimeoutExpired after the child: then it had killed it."""
    parent = parent_of(job, view)
    if parent is None or not parent.raised or parent.exception is None:
        return None
    return parent if (parent.exception.type or "").endswith("TimeoutExpired") else None


def _no_kernel(job: JobView) -> Evidence:
    words = "counters and log of the kernel: no `pytracer run` was there to note them"
    if any(launcher.witness is not None for launcher in job.job.launchers):
        words = "counters and log of the kernel on its host: the launcher ran on another one"
    return Evidence("kernel-log", searched("not readable", words), result="not readable")


def _agent(job: JobView, view: ProcessView) -> _Agent:
    """torchrun's agent sends SIGTERM, and SIGKILL 30 s later, once a worker failed or it was asked to stop itself."""
    agent = next(
        (
            item
            for item in job.views
            if item.process.role == "launcher" and item.process.snapshot.pid == view.process.snapshot.ppid
        ),
        None,
    )
    if agent is None:
        return _Agent()
    if any(item.sender_pid == agent.process.snapshot.pid for item in sent_signals(view.process.snapshot, SIGTERM)):
        return _Agent(agent, "sent-sigterm")
    if is_interrupt(agent):
        return _Agent(agent, "stopped")
    earlier = next((death for death in job.deaths if _is_reason(death, view)), None)
    return _Agent(agent, "saw-death" if earlier is not None else None, earlier)


def _is_reason(death: Death, view: ProcessView) -> bool:
    """Whether the agent may have killed a process for that death: it waits for 30 s after SIGTERM.

    The end of a killed process is known from its parent, later than its peers noticed it.
    """
    if death.primary is False or death.view.index == view.index or death.lost_peer:
        return False  # who lost a peer may have lost this one
    return death.late_ns is not None and view.ended_ns is not None and view.ended_ns - death.late_ns >= _GRACE_NS


def _agent_evidence(found: _Agent) -> Evidence:
    pid = found.view.process.snapshot.pid if found.view is not None else None
    result: SearchResult = "found" if found.reason is not None else "not found"
    if found.view is None:
        words = "no agent of torchrun started this process"
    elif found.reason == "sent-sigterm":
        words = "torchrun's agent had sent it SIGTERM before; what has not ended 30 s later, it kills"
    elif found.reason == "stopped":
        words = "torchrun's agent was asked to stop; it ends its workers by SIGTERM, 30 s later by SIGKILL"
    elif found.earlier is not None:
        words = f"{name_words([found.earlier.view])} had died before, after which torchrun's agent ends the others"
    else:
        words = (
            "torchrun's agent had no reason to end it: no other worker had failed on its own, nothing asked it to stop"
        )
    return Evidence("agent", searched(result, words), result=result, pid=pid, state=found.reason)


def _scheduler(job: JobView, view: ProcessView) -> _Scheduler | None:
    witness = witness_of(job, view)
    given: Mapping[str, str] = {**view.process.snapshot.environment, **(witness.scheduler if witness else {})}
    for variable, name, question in _SCHEDULERS:
        if given.get(variable):
            return _Scheduler(name, variable, question.format(shell_word(given[variable])))
    if given.get("KUBERNETES_SERVICE_HOST"):
        pod = given.get("POD_NAME") or given.get("HOSTNAME") or "POD"
        return _Scheduler("Kubernetes", "KUBERNETES_SERVICE_HOST", shell_command("kubectl", "describe", "pod", pod))
    return None


def _scheduler_evidence(job: JobView, view: ProcessView) -> Evidence:
    found = _scheduler(job, view)
    if found is None:
        words = "no scheduler shows in the environment (Slurm, PBS, LSF, Flux, Kubernetes)"
        return Evidence("scheduler", searched("not found", words), result="not found")
    words = f"{found.name} runs this job and may have ended it; ask `{found.question}`"
    return Evidence(
        "scheduler",
        searched("found", words),
        result="found",
        name=found.name,
        variable=found.variable,
        text=found.question,
    )


def _killers(job: JobView, view: ProcessView) -> Iterator[Evidence]:
    witness = witness_of(job, view)
    if witness is None:
        return
    for killer in witness.killers or ():
        question = shell_command("journalctl", "-t", killer.name)
        words = f"{killer.name} (process {killer.pid}) kills when memory gets short; ask `{question}`"
        found = searched("found", words)
        yield Evidence("memory-killer", found, result="found", name=killer.name, pid=killer.pid, text=question)
    if witness.killers:
        return
    if witness.killers is None or witness.first_pid_namespace is False:
        words = "whether earlyoom or systemd-oomd run on the host"
        yield Evidence("memory-killer", searched("not readable", words), result="not readable")
    else:
        words = "neither earlyoom nor systemd-oomd runs on this machine"
        yield Evidence("memory-killer", searched("not found", words), result="not found")
