"""SIGKILL by elimination: each possible sender, and what was found, not found or could not be read about it.

SIGKILL leaves nothing in the process that it ends, and carries no sender. What is left to look at are counters of the
kernel, other processes of the job, and whoever manages jobs and memory on the machine.
"""

from __future__ import annotations

from collections.abc import Mapping

from pytracer._printable import shell_command, shell_word
from pytracer.analyze.deaths.order import is_interrupt
from pytracer.analyze.evidence.oom import FOUND, NOT_FOUND, NOT_READABLE, Line, OomTrace, witness_of
from pytracer.analyze.evidence.sent_signals import sent_signals
from pytracer.analyze.naming import name_words
from pytracer.analyze.platform.signals import SIGTERM
from pytracer.analyze.view import JobView, ProcessView
from pytracer.decode.types.host_counters import Killer

# Variable that a scheduler sets, its name, and the command that tells how it ended the job.
_SCHEDULERS = (
    ("SLURM_JOB_ID", "Slurm", "sacct -j {} --format=JobID,State,ExitCode,DerivedExitCode,MaxRSS"),
    ("PBS_JOBID", "PBS", "qstat -xf {}"),
    ("LSB_JOBID", "LSF", "bjobs -l {}"),
    ("FLUX_JOB_ID", "Flux", "flux job status {}"),
)


def elimination(job: JobView, view: ProcessView, trace: OomTrace | None) -> list[Line]:
    """All lines about one killed process: the kernel's OOM killer first, then who else could have sent it."""
    if trace is not None:
        lines = list(trace.lines)
    elif job.job.launcher is not None and job.job.launcher.witness is not None:
        lines = [Line(NOT_READABLE, "counters and log of the kernel on its host: the launcher ran on another one")]
    else:
        lines = [Line(NOT_READABLE, "counters and log of the kernel: no `pytracer run` was there to note them")]
    return [*lines, _agent_line(job, view), _scheduler_line(job, view), *_killer_lines(job, view)]


def other_candidates(job: JobView, view: ProcessView) -> bool:
    """Whether somebody beside the kernel is known who might have killed the process."""
    lines = [_agent_line(job, view), _scheduler_line(job, view), *_killer_lines(job, view)]
    return any(line.result == FOUND for line in lines)


def _agent_line(job: JobView, view: ProcessView) -> Line:
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
        return Line(NOT_FOUND, "no agent of torchrun started this process")
    if any(item.sender_pid == agent.process.snapshot.pid for item in sent_signals(view.process.snapshot, SIGTERM)):
        return Line(FOUND, "torchrun's agent had sent it SIGTERM before; what has not ended 30 s later, it kills")
    if is_interrupt(agent):
        return Line(FOUND, "torchrun's agent was asked to stop; it ends its workers by SIGTERM, 30 s later by SIGKILL")
    earlier = next((death for death in job.deaths if _before(death.late_ns, view)), None)
    if earlier is not None:
        who = name_words([earlier.view])
        return Line(FOUND, f"{who} had died before, after which torchrun's agent ends the others")
    return Line(NOT_FOUND, "torchrun's agent had no reason to end it: nothing else had died, nothing asked it to stop")


def _before(late_ns: int | None, view: ProcessView) -> bool:
    return late_ns is not None and view.ended_ns is not None and late_ns < view.ended_ns


def _scheduler_line(job: JobView, view: ProcessView) -> Line:
    witness = witness_of(job, view)
    given: Mapping[str, str] = {**view.process.snapshot.environment, **(witness.scheduler if witness else {})}
    for variable, name, question in _SCHEDULERS:
        if given.get(variable):
            asked = question.format(shell_word(given[variable]))
            return Line(FOUND, f"{name} runs this job and may have ended it; ask `{asked}`")
    if given.get("KUBERNETES_SERVICE_HOST"):
        pod = given.get("POD_NAME") or given.get("HOSTNAME") or "POD"
        question = shell_command("kubectl", "describe", "pod", pod)
        return Line(FOUND, f"Kubernetes runs this job and may have ended it; ask `{question}`")
    return Line(NOT_FOUND, "no scheduler shows in the environment (Slurm, PBS, LSF, Flux, Kubernetes)")


def _killer_lines(job: JobView, view: ProcessView) -> list[Line]:
    witness = witness_of(job, view)
    if witness is None:
        return []
    if witness.killers:
        return [Line(FOUND, _killer_words(killer)) for killer in witness.killers]
    if witness.killers is None or witness.first_pid_namespace is False:
        return [Line(NOT_READABLE, "whether earlyoom or systemd-oomd run on the host")]
    return [Line(NOT_FOUND, "neither earlyoom nor systemd-oomd runs on this machine")]


def _killer_words(killer: Killer) -> str:
    question = shell_command("journalctl", "-t", killer.name)
    return f"{killer.name} (process {killer.pid}) kills when memory gets short; ask `{question}`"
