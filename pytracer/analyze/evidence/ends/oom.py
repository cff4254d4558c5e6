"""Evidence from the launcher's counters about the kernel's OOM killer and one killed process.

The kernel counts each kill three times: in its log, with the pid; in the memory cgroup of the victim (version 2: and in
the ancestors); in /proc/vmstat for the whole machine. An unchanged count refutes as surely as a changed one proves, if
it is the victim's own cgroup, or the machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from pytracer._patterns import Pattern
from pytracer.analyze.platform.signals import SIGKILL
from pytracer.analyze.view import JobView, ProcessView
from pytracer.decode.types.host_counters import Counters, KernelLine, MemoryGroup, SeenProcess, Witness
from pytracer.report.job import Confidence

_KILLED = Pattern(r"Killed process (\d+) \(|oom-kill:.*,pid=(\d+)|oom_reaper: reaped process (\d+)")


class LogTrace(msgspec.Struct, frozen=True):
    """The kernel's log: it names the process, or has kills by pids of the host, is unreadable, overflowed, or has none.

    `line`: about the kill of the process; with "silent", of another one.
    """

    way: Literal["names-it", "host-pid", "unreadable", "overflowed", "silent"]
    line: KernelLine | None = None
    why: str | None = None


class GroupTrace(msgspec.Struct, frozen=True):
    """The memory cgroups: kills in the process's own one at `own_path`, in another `group`, or none.

    "uncounted": the own cgroup or its counter is missing. `own_kills` is None where it is not known. `elsewhere`: kills
    in all other cgroups of the run.
    """

    way: Literal["own", "elsewhere", "none", "uncounted", "no-groups", "too-late"]
    own_path: str | None = None
    own_kills: int | None = None
    group: MemoryGroup | None = None
    kills: int | None = None
    elsewhere: int = 0
    why: str | None = None


class MachineTrace(msgspec.Struct, frozen=True):
    """The machine's counter of kills; None where it is not known."""

    way: Literal["counted", "unreadable", "too-late"]
    kills: int | None = None
    why: str | None = None


class OomTrace(msgspec.Struct, frozen=True):
    """What speaks for the OOM killer: `confidence` None when nothing does; `excluded` when it certainly was not.

    `seen`: the process as the launcher saw it. `oom_words.py` makes the evidence.
    """

    confidence: Confidence | None
    excluded: bool
    log: LogTrace
    group: GroupTrace
    machine: MachineTrace
    witness: Witness
    seen: SeenProcess | None


def witness_of(job: JobView, view: ProcessView) -> Witness | None:
    """The view that its launcher had of a process, if both ran on the same machine."""
    launcher = job.job.launcher_of(view.process.snapshot)
    return launcher.witness if launcher is not None else None


def killed_by_sigkill(view: ProcessView) -> bool:
    """Whether the process ended by a SIGKILL."""
    return view.process.status_kind == "signaled" and view.process.signal == SIGKILL and view.crash is None


def oom_trace(job: JobView, view: ProcessView) -> OomTrace | None:
    """What the counters and the log have; None without them."""
    witness = witness_of(job, view)
    if witness is None:
        return None
    snapshot = view.process.snapshot
    seen = witness.process(snapshot.pid, snapshot.start_ticks)
    log, group, machine = _log(witness, snapshot.pid), _group(witness, seen), _machine(witness)
    confidence, excluded = _judge(job, log, group, machine, known=seen is not None)
    return OomTrace(confidence, excluded, log, group, machine, witness, seen)


def _judge(
    job: JobView, log: LogTrace, group: GroupTrace, machine: MachineTrace, *, known: bool
) -> tuple[Confidence | None, bool]:
    """How sure it was the OOM killer, and whether that is excluded."""
    if log.way == "names-it":
        return "certain", False
    if log.way == "host-pid":
        return "likely", False
    if group.own_kills:
        killed = sum(killed_by_sigkill(other) for other in job.views)
        return "certain" if killed <= group.own_kills else "likely", False
    # The own cgroup did not count it: true as far as it is known to be the own one.
    if machine.kills == 0 or (group.own_kills == 0 and known):
        return None, True
    return "likely" if group.elsewhere or machine.kills else None, False


def _log(witness: Witness, pid: int) -> LogTrace:
    log = witness.kernel_log
    found = _named(log.lines, pid) if witness.first_pid_namespace else None
    if found is not None:
        return LogTrace("names-it", found)
    if not log.readable:
        return LogTrace("unreadable", why=log.why)
    kills = [line for line in log.lines if _KILLED.search(line.text)]
    if kills and not witness.first_pid_namespace:
        return LogTrace("host-pid", kills[-1])
    if log.lost:
        return LogTrace("overflowed")
    return LogTrace("silent", kills[-1] if kills else None)


def _named(lines: Sequence[KernelLine], pid: int) -> KernelLine | None:
    found = [line for line in lines if (match := _KILLED.search(line.text)) and str(pid) in match.groups()]
    # The sentence with the sizes has more detail than the one with the constraint.
    return next((line for line in found if "Killed process" in line.text), next(iter(found), None))


def _group(witness: Witness, seen: SeenProcess | None) -> GroupTrace:
    if witness.after is None:
        return GroupTrace("too-late")
    if not witness.before.cgroups:
        return GroupTrace("no-groups", why=witness.before.cgroups_why)
    deltas = [(group, _kills(witness.before, group)) for group in witness.after.cgroups]
    own_path = seen.cgroup if seen is not None and seen.cgroup else witness.before.cgroups[0].path
    own, own_kills = next(((group, kills) for group, kills in deltas if group.path == own_path), (None, None))
    if own_kills:
        return GroupTrace("own", own_path, own_kills, own, own_kills)
    others = [(group, kills) for group, kills in deltas if kills]
    if others:
        elsewhere = sum(kills or 0 for _, kills in others)
        return GroupTrace("elsewhere", own_path, own_kills, *others[0], elsewhere)
    if own is None or own_kills is None:
        return GroupTrace("uncounted", own_path, why=own.why if own is not None else None)
    if not witness.ended:
        return GroupTrace("too-late")
    return GroupTrace("none", own_path, 0, own, 0)


def _kills(before: Counters, group: MemoryGroup) -> int | None:
    known = (old for old in before.cgroups if (old.version, old.path) == (group.version, group.path))
    old = next(known, None)
    if old is None or old.oom_kill is None or group.oom_kill is None:
        return None
    return max(0, group.oom_kill - old.oom_kill)


def _machine(witness: Witness) -> MachineTrace:
    before, after = witness.before, witness.after
    if before.vmstat_oom_kill is None:
        return MachineTrace("unreadable", why=before.vmstat_why)
    if after is None or after.vmstat_oom_kill is None:
        return MachineTrace("too-late")
    kills = after.vmstat_oom_kill - before.vmstat_oom_kill
    if kills <= 0 and not witness.ended:
        return MachineTrace("too-late")
    return MachineTrace("counted", max(0, kills))
