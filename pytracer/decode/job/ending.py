"""How a process ended: as its own recording has it, as another one saw it, or not at all yet."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pytracer._library_files import of_multiprocessing
from pytracer.blackbox.schema import ON_FETCH, ON_PRINT, ON_PUT, ON_TASK
from pytracer.decode.job.roles import Standing
from pytracer.decode.types.host_counters import SeenProcess, Usage, Witness
from pytracer.decode.types.journal import Fact, Rank, SeenSignal, UncaughtException, Wait
from pytracer.decode.types.snapshot import Crash, LauncherRecord, Process, Reporter, Snapshot, StatusKind

_PID = re.compile(r"\.(\d{1,10})(?:\.\d+)?\.blackbox$")
_ENDED_BY_HANDLER_NS = 10_000_000_000  # a handler of the program that ends it in its own way does so within this time
_ENDED_BY_SIGNAL_NS = 1_000_000_000  # other threads go on while the handler writes the stacks
_ONE_LOOK_NS = 1_000_000_000  # the last one of a launcher, at all processes
_SIGABRT = 6
_SHARER = of_multiprocessing("resource_sharer")
_SURE_TO_DIE = "OTHER_THREADS"  # the handler's step that follows the last chance of the program's own handler


class Waits:
    """Ends of children, as observed by any process on the same host."""

    def __init__(self, snapshots: Iterable[Snapshot]) -> None:
        self._found: dict[tuple[str, str, int], list[Wait]] = {}
        for s in snapshots:
            for wait in s.waits:
                if wait.mono_ns >= s.created_mono_ns:  # else inherited by fork(): it is in the parent's recording
                    self._found.setdefault((s.host, s.boot_id, wait.pid), []).append(wait)

    def of(self, s: Snapshot) -> Wait | None:
        """The first end after the file was created: pids are reused."""
        candidates = self._found.get((s.host, s.boot_id, s.pid), [])
        later = [w for w in candidates if w.mono_ns >= s.created_mono_ns]
        return min(later, key=lambda w: w.mono_ns) if later else None


def ended_process(
    s: Snapshot, standing: Standing, waits: Waits, launchers: Sequence[LauncherRecord], alive: Mapping[int, int]
) -> Process:
    """A process of the job: what it was, and how it ended, as far as that is known.

    Args:
        s: its last recording.
        standing: its place among the others.
        waits: the ends that other processes saw.
        launchers: those of the run.
        alive: start times of the processes that were alive before their files were read, by pid.
    """
    seen = _seen_end(s, waits, launchers)
    if s.crash is not None and not s.crash.repaired and _survived(s, s.crash, seen):
        s = replace(s, crash=replace(s.crash, repaired=True))
    kind, exit_code, signal, reported_by, ended = _end(s, seen, alive)
    if kind == "vanished":
        gone = (found.gone_mono_ns for _, found in _witnessed(s, launchers))
        ended = next((moment for moment in gone if moment is not None), None)
    outlived = _outlived(s, launchers) if kind in ("vanished", "running") else None
    if outlived is not None:
        kind, ended = "running", None
    exception = _exception(s) if exit_code or signal else None
    if kind == "exited" and exit_code and exception is not None:
        kind = "exception"
    return Process(
        snapshot=s,
        role=standing.role,
        rank=standing.rank,
        local_rank=standing.local_rank,
        world_size=standing.world_size,
        status_kind=kind,
        exit_code=exit_code,
        signal=signal,
        reported_by=reported_by,
        ended_mono_ns=ended,
        exception=exception.data if exception else None,
        exception_mono_ns=exception.mono_ns if exception else None,
        parent_rank=standing.parent_rank,
        attempt=standing.attempt,
        usage=seen.usage if seen is not None else None,
        running_mono_ns=time.monotonic_ns() if kind == "running" and outlived is None else None,
        outlived_mono_ns=outlived,
    )


_End = tuple[StatusKind, int | None, int | None, Reporter | None, int | None]  # exit code, signal; when


@dataclass(frozen=True)
class _Seen:
    """A process's end as another process saw it."""

    exit_code: int | None
    signal: int | None
    mono_ns: int
    by: Reporter
    usage: Usage | None = None


def _seen_end(s: Snapshot, waits: Waits, launchers: Sequence[LauncherRecord]) -> _Seen | None:
    wait = waits.of(s)
    if wait is not None:
        return _Seen(wait.exit_code, wait.signal, wait.mono_ns, "black-box", wait.usage)
    launcher = next((item for item in launchers if item.ended_mono_ns is not None and _is_child(s, item)), None)
    if launcher is None or launcher.ended_mono_ns is None:
        return _seen_by_witness(s, launchers)
    if launcher.signal is None and launcher.exit_code is None:
        return None
    exit_code = launcher.exit_code if launcher.signal is None else None
    return _Seen(exit_code, launcher.signal, launcher.ended_mono_ns, "launcher", launcher.usage)


def _seen_by_witness(s: Snapshot, launchers: Sequence[LauncherRecord]) -> _Seen | None:
    """The end of a process without a traced parent that reaped it: the parent was killed, or is not traced."""
    for _, found in _witnessed(s, launchers):
        if found.gone_mono_ns is not None and (found.exit_code is not None or found.signal is not None):
            code = found.exit_code if found.signal is None else None
            return _Seen(code, found.signal, found.gone_mono_ns, "launcher")
    return None


def _witnessed(s: Snapshot, launchers: Sequence[LauncherRecord]) -> Iterator[tuple[Witness, SeenProcess]]:
    """What each launcher of its machine saw, and what of a process: a launcher may have been killed with its task."""
    for launcher in launchers:
        if launcher.witness is not None and (s.host, s.boot_id) == (launcher.host, launcher.boot_id):
            found = launcher.witness.process(s.pid, s.start_ticks)
            if found is not None:
                yield launcher.witness, found


def _outlived(s: Snapshot, launchers: Sequence[LauncherRecord]) -> int | None:
    """When a process was last seen alive, after the commands of all launchers that saw it had ended.

    Its own end, if it was not recorded, came later and is not what ended the job: Ray's workers go on for a while.
    """
    seen: list[int] = []
    for witness, found in _witnessed(s, launchers):
        last_look = witness.samples[-1].mono_ns if witness.ended and witness.samples else None
        if found.gone_mono_ns is not None or last_look is None or found.alive_mono_ns < last_look - _ONE_LOOK_NS:
            return None
        seen.append(found.alive_mono_ns)
    return max(seen, default=None)


def _survived(s: Snapshot, crash: Crash, seen: _Seen | None) -> bool:
    """Whether the process went on after its crash was written, and ended differently.

    The handler cannot always know: abort() and raise(SIGABRT) look alike to it, and a program's own handler may leave
    by siglongjmp(). Another end does not prove it, either: a handler may end the process with _exit() or abort(), and a
    slowly dying process may be killed.
    """
    if any(event.tid == crash.tid and event.mono_ns > crash.mono_ns for event in s.events):
        return seen is None or seen.signal != crash.signal
    if seen is None or seen.signal == crash.signal:
        return False
    if seen.exit_code == 0:
        return True
    if _SURE_TO_DIE in crash.steps_done:
        return False
    at = s.exit_mono_ns if seen.signal is None and s.exit_mono_ns else seen.mono_ns
    prompt = at - crash.mono_ns <= _ENDED_BY_HANDLER_NS
    if seen.signal is None or (seen.signal == _SIGABRT and crash.code > 0):
        return not prompt
    return crash.complete and not (prompt and crash.code > 0)


def _end(s: Snapshot, seen: _Seen | None, alive: Mapping[int, int]) -> _End:
    if s.crash is not None and not s.crash.repaired and s.crash.signal > 0:
        return "signaled", seen.exit_code if seen else None, s.crash.signal, "handler", s.crash.mono_ns
    if seen is not None and seen.signal is not None:
        return "signaled", None, seen.signal, seen.by, seen.mono_ns
    if seen is not None:
        return "exited", seen.exit_code, None, seen.by, s.exit_mono_ns or seen.mono_ns
    if s.exit_code is not None:
        return "exited", s.exit_code, None, "black-box", s.exit_mono_ns
    if _was_running(s, alive):
        return "running", None, None, None, None
    fatal = _fatal_signal(s)
    if fatal is not None:
        return "signaled", None, fatal.data.signal, "black-box", fatal.mono_ns
    return "vanished", None, None, None, None


def _fatal_signal(s: Snapshot) -> Fact[SeenSignal] | None:
    """The signal whose default action ended a process whose end was not recorded.

    Not in process 1, for which the default action is to ignore it; not when the process went on to record something.
    """
    own = [f for f in s.recorded(SeenSignal) if f.mono_ns >= s.created_mono_ns and not f.data.handled]
    if not own or s.pid == 1 or (s.last_mono_ns or 0) > own[-1].mono_ns + _ENDED_BY_SIGNAL_NS:
        return None
    return own[-1]


def _is_child(s: Snapshot, launcher: LauncherRecord) -> bool:
    return s.pid == launcher.child_pid and s.host == launcher.host and s.boot_id == launcher.boot_id


def alive_processes(files: Iterable[Path]) -> dict[int, int]:
    """Start times, by pid, of the processes that are alive before their files are read: what these lack is no end."""
    pids = {int(found[1]) for file in files if (found := _PID.search(file.name)) is not None}
    return {pid: ticks for pid in pids if (ticks := _start_ticks(pid)) is not None}


def _was_running(s: Snapshot, alive: Mapping[int, int]) -> bool:
    """The same process was alive on this machine when its file was read: same boot, pid and start time."""
    try:
        boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return False
    return boot_id == s.boot_id and s.start_ticks in (alive.get(s.pid), _start_ticks(s.pid))


def _start_ticks(pid: int) -> int | None:
    """When a process of this machine started; None if it has ended."""
    if pid <= 0:
        return None
    try:
        # The command name, in parentheses, may hold spaces and parentheses itself (proc(5)).
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        return int(fields[19]) if fields[0] not in ("Z", "X") else None
    except (OSError, ValueError, IndexError):
        return None


def _exception(s: Snapshot) -> Fact[UncaughtException] | None:
    """The uncaught exception that began the end: the main thread's if there is one, else the last.

    With the time when it was first seen, which may be long before it reached the top: `finally` runs in between.
    """
    facts = s.recorded(UncaughtException)
    handed = (ON_FETCH, ON_PUT, ON_TASK, ON_PRINT)
    own = [f for f in facts if f.mono_ns >= s.created_mono_ns and f.data.on_its_way not in handed and not _goes_on(f)]
    main = [f for f in own if f.data.thread in (None, "MainThread")]
    candidates = main or own
    top = next((f for f in reversed(candidates) if not f.data.on_its_way), None)
    first = next((f for f in candidates if f.data.on_its_way and not _went_on(s, f.mono_ns)), None)
    if first is None or (top is not None and top.mono_ns < first.mono_ns):
        return top
    same = top is not None and (top.data.type, top.data.message) == (first.data.type, first.data.message)
    return replace(first, data=top.data) if top is not None and same else first


def _goes_on(fact: Fact[UncaughtException]) -> bool:
    """Whether it was of multiprocessing's thread that sends descriptors: it calls sys.excepthook itself, and goes on.

    CPython 3.10 to 3.14, multiprocessing/resource_sharer.py.
    """
    stack = fact.data.python_stack
    return any(f.file.endswith(_SHARER) and f.function.endswith("_serve") for f in stack)


def _went_on(s: Snapshot, mono_ns: int) -> bool:
    """Whether the process worked with its peers after a moment: then an exception of that moment was caught."""
    later = (f for f in s.recorded(Rank) if f.mono_ns > mono_ns and not f.data.left)
    return any(later) or any((c.scheduled_ns or 0) > mono_ns for c in s.collectives)
