"""What counters and log of the kernel have about one killed process, as evidence: found, not found or not readable."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal

from pytracer._text import size_words, time_words
from pytracer.analyze.evidence.ends.oom import GroupTrace, LogTrace, MachineTrace, OomTrace
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.host_counters import MemoryGroup, Witness
from pytracer.report.job import Evidence

SearchResult = Literal["found", "not found", "not readable"]
_PRESSED_SHARE = 0.01  # share of the run's time stalled on memory that is worth mentioning


def searched(result: SearchResult, sentence: str) -> str:
    """A sentence about a source that was examined."""
    return f"{result}: {sentence}"


def oom_evidence(view: ProcessView, trace: OomTrace) -> list[Evidence]:
    """The log, the counters, and what there was to kill for."""
    return [
        _log(view, trace.log),
        _group(trace.group),
        _machine(trace.machine),
        *_pressure(trace.witness),
        *_memory(view, trace),
    ]


def _log(view: ProcessView, log: LogTrace) -> Evidence:
    text = _short(log.line.text) if log.line is not None else ""
    pid = view.process.snapshot.pid
    result: SearchResult
    if log.way == "names-it":
        result, words = "found", f'the kernel\'s log says "{text}"'
    elif log.way == "host-pid":
        result, words = "found", f'the kernel\'s log says "{text}", with a pid of the host, not of this container'
    elif log.way == "unreadable":
        result, words = "not readable", f"the kernel's log ({log.why or 'no reason is known'})"
    elif log.way == "overflowed":
        result, words = "not readable", "the kernel's log overflowed while the job ran"
    else:
        other = f'; it names others, e.g. "{text}"' if text else ""
        result, words = "not found", f"the kernel's log has no line about a kill of process {pid}{other}"
    return Evidence("kernel-log", searched(result, words), result=result, pid=pid, text=text or None)


def _short(text: str) -> str:
    return re.sub(r", UID:.*| nodemask=.*?(?=oom_memcg|$)", "", text).strip()[:200]


def _group(found: GroupTrace) -> Evidence:
    group, path = found.group, found.own_path
    result: SearchResult
    if found.way == "too-late":
        result, words = "not readable", _too_late("the counters of the memory cgroup")
    elif found.way == "no-groups":
        result, words = "not readable", f"memory cgroups ({found.why or 'none was found'})"
    elif found.way == "uncounted" or group is None:
        why = found.why or "the counter does not exist"
        result, words = "not readable", f"OOM kills of the memory cgroup {path} ({why})"
    elif found.way == "none":
        result, words = "not found", f"no OOM kill was counted in the memory cgroup {path}{_limit_words(group)}"
    else:
        kills = f"{found.kills or 0} process{'es' * (found.kills != 1)} in {group.path}{_limit_words(group)}"
        not_here = f", and nothing in {path}, where this one ran" if found.own_kills == 0 else ""
        result, words = "found", f"the OOM killer took {kills}{not_here}"
    return Evidence(
        "memory-limit",
        searched(result, words),
        result=result,
        path=group.path if group is not None else path,
        count=found.kills,
        nbytes=group.peak if group is not None else None,
        limit=group.limit if group is not None else None,
    )


def _limit_words(group: MemoryGroup) -> str:
    if group.limit is None:
        return " (no limit)"
    peak = f", at most {size_words(group.peak)} used" if group.peak is not None else ""
    return f" (limit {size_words(group.limit)}{peak})"


def _machine(found: MachineTrace) -> Evidence:
    result: SearchResult
    if found.way == "unreadable":
        result, words = "not readable", f"OOM kills of the machine ({found.why or 'no such counter'})"
    elif found.way == "too-late":
        result, words = "not readable", _too_late("the machine's count of OOM kills")
    elif found.kills:
        told = f"{found.kills} on this machine while the job ran, which may have met any process (/proc/vmstat)"
        result, words = "found", f"OOM kills: {told}"
    else:
        result, words = "not found", "no OOM kill on this machine while the job ran (/proc/vmstat)"
    return Evidence("oom-count", searched(result, words), result=result, count=found.kills)


def _too_late(what: str) -> str:
    return f"{what} after the death: the launcher died, too"


def _pressure(witness: Witness) -> Iterator[Evidence]:
    before, after = witness.before, witness.after
    result: SearchResult = "not readable"
    if before.psi_memory is None:
        words = "memory pressure (this kernel has no /proc/pressure)"
        yield Evidence("memory-pressure", searched(result, words), result=result)
    elif after is not None and after.psi_memory is not None:
        stalled = 1000 * (after.psi_memory.get("some_total", 0) - before.psi_memory.get("some_total", 0))
        pressed = stalled > _PRESSED_SHARE * max(1, after.mono_ns - before.mono_ns)
        result = "found" if pressed else "not found"
        words = f"processes of this machine waited {time_words(int(stalled))} for memory while the job ran"
        yield Evidence(
            "memory-pressure",
            searched(result, f"memory pressure: {words}"),
            result=result,
            duration_ns=int(stalled),
        )


def _memory(view: ProcessView, trace: OomTrace) -> Iterator[Evidence]:
    """Not evidence of a kill, but of what there was to kill for."""
    seen = trace.seen
    if seen is not None and seen.rss is not None:
        ended = view.process.ended_mono_ns or seen.gone_mono_ns
        before = max(0, ended - seen.alive_mono_ns) if ended else None
        when = f"{time_words(before)} before its end was seen" if before is not None else "at last"
        yield Evidence(
            "memory-use",
            searched("found", f"it held {size_words(seen.rss)} of memory {when}"),
            result="found",
            pid=seen.pid,
            nbytes=seen.rss,
            duration_ns=before,
        )
    last = next((item for item in reversed(trace.witness.samples) if item.mem_available is not None), None)
    if last is not None and last.mem_available is not None:
        words = f"the machine had {size_words(last.mem_available)} of memory left at last"
        yield Evidence("memory-use", searched("found", words), result="found", nbytes=last.mem_available, state="free")
