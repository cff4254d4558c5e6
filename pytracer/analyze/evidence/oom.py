"""Evidence from the launcher's counters about the kernel's OOM killer and one killed process.

The kernel counts each kill three times: in its log, with the pid; in the memory cgroup of the victim (version 2: and in
the ancestors); in /proc/vmstat for the whole machine. An unchanged count refutes as surely as a changed one proves, if
it is the victim's own cgroup, or the machine.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from pytracer._text import size_words, time_words
from pytracer.analyze.platform.signals import SIGKILL
from pytracer.analyze.view import JobView, ProcessView
from pytracer.decode.types.host_counters import Counters, KernelLine, MemoryGroup, SeenProcess, Witness
from pytracer.report.job import Confidence

FOUND, NOT_FOUND, NOT_READABLE = "found", "not found", "not readable"
_KILLED = re.compile(r"Killed process (\d+) \(|oom-kill:.*,pid=(\d+)|oom_reaper: reaped process (\d+)")
_PRESSED_SHARE = 0.01  # share of the run's time stalled on memory that is worth mentioning


@dataclass(frozen=True)
class Line:
    """One examined source: `result` is "found", "not found" or "not readable"."""

    result: str
    says: str

    def __str__(self) -> str:
        return f"{self.result}: {self.says}"


@dataclass(frozen=True)
class OomTrace:
    """What speaks for the OOM killer: `confidence` None when nothing does; `excluded` when it certainly was not."""

    confidence: Confidence | None
    excluded: bool
    lines: tuple[Line, ...]


def witness_of(job: JobView, view: ProcessView) -> Witness | None:
    """The launcher's view of a process, if both ran on the same machine."""
    launcher, snapshot = job.job.launcher, view.process.snapshot
    if launcher is None or (launcher.host, launcher.boot_id) != (snapshot.host, snapshot.boot_id):
        return None
    return launcher.witness


def killed_by_sigkill(view: ProcessView) -> bool:
    """Whether the process ended by a SIGKILL."""
    return view.process.status_kind == "signaled" and view.process.signal == SIGKILL and view.crash is None


def oom_trace(job: JobView, view: ProcessView) -> OomTrace | None:
    """All evidence of the counters; None without them."""
    witness = witness_of(job, view)
    if witness is None:
        return None
    snapshot = view.process.snapshot
    seen = witness.process(snapshot.pid, snapshot.start_ticks)
    log, named = _log_line(witness, view)
    group, in_own, elsewhere = _group_line(witness, seen)
    machine, kills = _machine_line(witness)
    lines = (log, group, machine, *_pressure_lines(witness), *_memory_lines(witness, seen, view))
    if named:
        return OomTrace(named, False, lines)
    if in_own:
        killed = sum(killed_by_sigkill(other) for other in job.views)
        return OomTrace("certain" if killed <= in_own else "likely", False, lines)
    # The own cgroup did not count it: true as far as it is known to be the own one.
    if kills == 0 or (in_own == 0 and seen is not None):
        return OomTrace(None, True, lines)
    return OomTrace("likely" if elsewhere or kills else None, False, lines)


def _log_line(witness: Witness, view: ProcessView) -> tuple[Line, Confidence | None]:
    """The kernel's log, and the confidence that it gives when it names the process."""
    pid = view.process.snapshot.pid
    found = _named(witness.kernel_log.lines, pid) if witness.first_pid_namespace else None
    if found is not None:
        return Line(FOUND, f'the kernel\'s log says "{_short(found.text)}"'), "certain"
    if not witness.kernel_log.readable:
        return Line(NOT_READABLE, f"the kernel's log ({witness.kernel_log.why or 'no reason is known'})"), None
    kills = [line for line in witness.kernel_log.lines if _KILLED.search(line.text)]
    if kills and not witness.first_pid_namespace:
        told = f'the kernel\'s log says "{_short(kills[-1].text)}", with a pid of the host, not of this container'
        return Line(FOUND, told), "likely"
    if witness.kernel_log.lost:
        return Line(NOT_READABLE, "the kernel's log overflowed while the job ran"), None
    other = f'; it names others, e.g. "{_short(kills[-1].text)}"' if kills else ""
    return Line(NOT_FOUND, f"the kernel's log has no line about a kill of process {pid}{other}"), None


def _named(lines: Sequence[KernelLine], pid: int) -> KernelLine | None:
    found = [line for line in lines if (match := _KILLED.search(line.text)) and str(pid) in match.groups()]
    # The sentence with the sizes has more detail than the one with the constraint.
    return next((line for line in found if "Killed process" in line.text), next(iter(found), None))


def _short(text: str) -> str:
    return re.sub(r", UID:.*| nodemask=.*?(?=oom_memcg|$)", "", text).strip()[:200]


def _group_line(witness: Witness, seen: SeenProcess | None) -> tuple[Line, int | None, int]:
    """The cgroups: a line, kills in the own one (None: not known), kills in any other of the run."""
    if witness.after is None:
        return Line(NOT_READABLE, _too_late("the counters of the memory cgroup")), None, 0
    if not witness.before.cgroups:
        return Line(NOT_READABLE, f"memory cgroups ({witness.before.cgroups_why or 'none was found'})"), None, 0
    deltas = [(group, _kills(witness.before, group)) for group in witness.after.cgroups]
    own_path = seen.cgroup if seen is not None and seen.cgroup else witness.before.cgroups[0].path
    own = next(((group, kills) for group, kills in deltas if group.path == own_path), None)
    if own is not None and own[1]:
        return Line(FOUND, f"the OOM killer took {_kill_words(*own)}"), own[1], 0
    others = [(group, kills) for group, kills in deltas if kills]
    if others:
        said = f"the OOM killer took {_kill_words(*others[0])}"
        if own is not None and own[1] == 0:
            said += f", and nothing in {own_path}, where this one ran"
        return Line(FOUND, said), own[1] if own else None, sum(kills or 0 for _, kills in others)
    if own is None or own[1] is None:
        why = (own[0].why if own else None) or "the counter does not exist"
        return Line(NOT_READABLE, f"OOM kills of the memory cgroup {own_path} ({why})"), None, 0
    if not witness.ended:
        return Line(NOT_READABLE, _too_late("the counters of the memory cgroup")), None, 0
    return Line(NOT_FOUND, f"no OOM kill was counted in the memory cgroup {own_path}{_limit_words(own[0])}"), 0, 0


def _kills(before: Counters, group: MemoryGroup) -> int | None:
    known = (old for old in before.cgroups if (old.version, old.path) == (group.version, group.path))
    old = next(known, None)
    if old is None or old.oom_kill is None or group.oom_kill is None:
        return None
    return max(0, group.oom_kill - old.oom_kill)


def _kill_words(group: MemoryGroup, kills: int | None) -> str:
    return f"{kills or 0} process{'es' * (kills != 1)} in {group.path}{_limit_words(group)}"


def _limit_words(group: MemoryGroup) -> str:
    if group.limit is None:
        return " (no limit)"
    peak = f", at most {size_words(group.peak)} used" if group.peak is not None else ""
    return f" (limit {size_words(group.limit)}{peak})"


def _machine_line(witness: Witness) -> tuple[Line, int | None]:
    """The machine's counter: a line and the kills, None when they are not known."""
    before, after = witness.before, witness.after
    if before.vmstat_oom_kill is None:
        return Line(NOT_READABLE, f"OOM kills of the machine ({before.vmstat_why or 'no such counter'})"), None
    if after is None or after.vmstat_oom_kill is None:
        return Line(NOT_READABLE, _too_late("the machine's count of OOM kills")), None
    kills = after.vmstat_oom_kill - before.vmstat_oom_kill
    if kills > 0:
        told = f"{kills} on this machine while the job ran, which may have met any process (/proc/vmstat)"
        return Line(FOUND, f"OOM kills: {told}"), kills
    if not witness.ended:
        return Line(NOT_READABLE, _too_late("the machine's count of OOM kills")), None
    return Line(NOT_FOUND, "no OOM kill on this machine while the job ran (/proc/vmstat)"), 0


def _too_late(what: str) -> str:
    return f"{what} after the death: the launcher died, too"


def _pressure_lines(witness: Witness) -> list[Line]:
    before, after = witness.before, witness.after
    if before.psi_memory is None:
        return [Line(NOT_READABLE, "memory pressure (this kernel has no /proc/pressure)")]
    if after is None or after.psi_memory is None:
        return []
    stalled_ns = 1000 * (after.psi_memory.get("some_total", 0) - before.psi_memory.get("some_total", 0))
    words = f"processes of this machine waited {time_words(int(stalled_ns))} for memory while the job ran"
    pressed = stalled_ns > _PRESSED_SHARE * max(1, after.mono_ns - before.mono_ns)
    return [Line(FOUND if pressed else NOT_FOUND, f"memory pressure: {words}")]


def _memory_lines(witness: Witness, seen: SeenProcess | None, view: ProcessView) -> list[Line]:
    """Not evidence of a kill, but of what there was to kill for."""
    lines = []
    if seen is not None and seen.rss is not None:
        ended = view.process.ended_mono_ns or seen.gone_mono_ns
        when = f"{time_words(max(0, ended - seen.alive_mono_ns))} before its end was seen" if ended else "at last"
        lines.append(Line(FOUND, f"it held {size_words(seen.rss)} of memory {when}"))
    last = next((item for item in reversed(witness.samples) if item.mem_available is not None), None)
    if last is not None and last.mem_available is not None:
        lines.append(Line(FOUND, f"the machine had {size_words(last.mem_available)} of memory left at last"))
    return lines
