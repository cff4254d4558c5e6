"""What the launcher records while it waits: memory, live processes, and how each traced process ended.

A sample takes about a millisecond, every two seconds. The job does not notice: processes are held by descriptors
(pidfd_open(2)), which keep no process from ending and no parent from reaping it. Nothing here raises.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from pytracer.blackbox import codec, schema
from pytracer.blackbox.run_counters import NBYTES, PREFIX, SeenProcess, unpack
from pytracer.launcher import host_counters
from pytracer.launcher.dying import wait_for_the_dying
from pytracer.launcher.json_object import JsonObject
from pytracer.launcher.kernel_log import KernelLog
from pytracer.launcher.run_directory import BOX_SUFFIX, Run, boot_id, start_ticks
from pytracer.launcher.seen_process import Seen, look_at
from pytracer.launcher.unseen import Unseen

_FIRST_LOOKS = (0.1, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0)  # a job may die young
LOOK_SECONDS = 2.0
KEEP_SECONDS = 30.0  # how often run.json is written, in case the launcher dies, too
_SAMPLES = 30
_MOST_PROCESSES = 512
_MOST_HELD = 256  # descriptors; the usual limit is 1024
_MOST_GROUPS = 32
_YOUNGEST_NS = 100_000_000  # most commands have ended by then

_DEEPEST = 64  # processes below each other
_DYING_SECONDS = 2.0  # 100 GB take longer to free, and are then seen alive
_PATIENCE = 2  # looks that an ended process may take until its parent reaps it, and its recording is seen

_Groups = dict[tuple[int, str], Path]
Identity = tuple[int, int]  # pid, start time in ticks


class Watch:
    """Samples a run from outside."""

    def __init__(self, run: Run, save: Callable[[], None]) -> None:
        self._boxes = run.boxes if run.directory == run.recording else run.recording / "boxes"
        self._boot_id = boot_id() if run.task is not None else None  # tasks of other nodes may share the directory
        self._counters_file = run.recording / (PREFIX + socket.gethostname().replace("/", "_"))
        self._save = save
        self._seen: dict[str, Seen] = {}
        self._ignored: set[str] = set()
        self._counted: set[str] = set()  # processes without a recording that were examined
        self._groups: _Groups
        self._groups, self._groups_why = host_counters.memory_groups("self")
        self._own = next(iter(self._groups.items()), None)
        self._samples: deque[JsonObject] = deque(maxlen=_SAMPLES)
        self._log = KernelLog()
        self._before = self._counters()
        self._after: JsonObject | None = None
        self._killers: list[JsonObject] | None = None
        self._ended = False
        self._began = self._saved = time.monotonic()
        self._orphans: list[Seen] = []
        self.unseen = Unseen()
        self._writers: set[Identity] = set()
        self._taken: set[Identity] = set()

    def seconds_to_next(self) -> float:
        """Seconds until the next sample."""
        age = time.monotonic() - self._began
        return next((moment - age for moment in _FIRST_LOOKS if moment > age), LOOK_SECONDS)

    def look(self) -> None:
        """One sample; now and then run.json is written."""
        with contextlib.suppress(Exception):  # an error in monitoring must not end the launcher
            self._look()
        self.unseen.look()
        if time.monotonic() - self._saved >= KEEP_SECONDS:
            self._saved = time.monotonic()
            self._after = self._counters()
            self._save()

    def finish(self) -> None:
        """The last sample, after the job ended."""
        with contextlib.suppress(Exception):
            wait_for_the_dying([(seen.pid, seen.descriptor) for seen in self.running()], _DYING_SECONDS)
            self._look()
            self._log.finish()
            self._killers = host_counters.killers()
            for seen in self._seen.values():
                if seen.descriptor >= 0:
                    os.close(seen.descriptor)
                    seen.descriptor = -1
        self._after = self._counters()
        self._ended = True

    def take_ended(self, *, last: bool = False) -> list[Identity]:
        """The processes with recordings that ended since the last call, but for those that exited with status 0.

        One whose status is not known yet is returned later, unless this is the `last` call; and the job's first process
        only by that: its end is that of the job, however late the launcher comes to see it.
        """
        found = []
        for seen in [*self._seen.values(), *self._orphans]:
            identity = seen.pid, seen.start_ticks
            if seen.gone_mono_ns is None or identity in self._taken or (seen.pid == self.unseen.child and not last):
                continue
            seen.looks_gone += 1
            known = seen.how is not None and identity in self._writers
            if known or seen.exit_code == 0 or seen.looks_gone > _PATIENCE or last:
                self._taken.add(identity)
                if seen.exit_code != 0 and identity in self._writers:
                    found.append(identity)
        for identity in self._writers - self._taken - self._held():
            if identity[0] == self.unseen.child and not last:
                continue
            self._taken.add(identity)  # it had ended when its recording was first seen
            found.append(identity)
        return found

    def _held(self) -> set[Identity]:
        return {(seen.pid, seen.start_ticks) for seen in [*self._seen.values(), *self._orphans]}

    def ended(self, seconds: float) -> frozenset[tuple[int, int]]:
        """Pids and start times of the processes that ended at least so long ago."""
        until = time.monotonic_ns() - int(seconds * 1e9)
        return frozenset(
            (seen.pid, seen.start_ticks)
            for seen in [*self._seen.values(), *self._orphans]
            if seen.gone_mono_ns is not None and seen.gone_mono_ns <= until
        )

    def running(self) -> list[Seen]:
        """The processes that are held and have not ended."""
        return [seen for seen in self._seen.values() if seen.gone_mono_ns is None and seen.descriptor >= 0]

    def note_orphan(self, pid: int, status: int, command: list[str], start_ticks: int) -> None:
        """An adopted child: its parent died before it."""
        now = time.monotonic_ns()
        orphan = Seen(pid, start_ticks, -1, now, now, gone_mono_ns=now, command=command)
        orphan.ended(status, "reaped")
        self._orphans = [*self._orphans, orphan][-_MOST_PROCESSES:]

    def as_dict(self) -> JsonObject:
        """The value of "witness" in run.json."""
        return {
            "before": self._before,
            "after": self._after,
            "ended": self._ended,
            "kernel_log": self._log.as_dict(),
            "samples": list(self._samples),
            "processes": [seen.as_dict() for seen in [*self._seen.values(), *self._orphans]],
            "killers": self._killers,
            "scheduler": host_counters.scheduler(os.environ),
            "first_pid_namespace": host_counters.in_first_pid_namespace(),
            "unseen": self.unseen.as_list(),
        }

    def _counters(self) -> JsonObject:
        try:
            now = host_counters.counters(self._groups)
            now["cgroups_why"] = self._groups_why
            return now
        except Exception as error:  # as above
            return {"mono_ns": time.monotonic_ns(), "cgroups_why": f"{type(error).__name__}: {error}"}

    def _look(self) -> None:
        self._log.look()
        self._meet()
        for seen in self._seen.values():
            if seen.how is None and seen.descriptor >= 0:
                look_at(seen)
        available, swap = host_counters.free_memory()
        sample: JsonObject = {"mono_ns": time.monotonic_ns(), "mem_available": available, "swap_free": swap}
        sample["cgroup_current"] = host_counters.usage(self._own) if self._own else None
        sample["rss"] = sum(seen.rss or 0 for seen in self._seen.values() if seen.gone_mono_ns is None)
        self._samples.append(sample)

    def _meet(self) -> None:
        """Starts to hold new processes: those with recordings, and those that have run for a while without one."""
        self._meet_boxed()
        counted = counted_processes(self._counters_file)
        self._counted &= {f"{process.pid} {process.started_mono_ns}" for process in counted}
        for process in counted:
            name = f"{process.pid} {process.started_mono_ns}"
            age = time.monotonic_ns() - process.started_mono_ns
            if name in self._counted or age < _YOUNGEST_NS:
                continue
            self._counted.add(name)
            ticks = start_ticks(process.pid) if _is_ours(process.pid) else None
            seen = self._hold(process.pid, ticks) if ticks is not None and self._has_room() else None
            if seen is not None:
                seen.command = [process.name]
                self._seen[name] = seen

    def _meet_boxed(self) -> None:
        for name in os.listdir(self._boxes):
            if name in self._seen or name in self._ignored or not name.endswith(BOX_SUFFIX):
                continue
            if not self._has_room():
                return
            writer = box_writer(self._boxes / name)
            if writer is None:
                continue  # it is being created
            pid, ppid, ticks, boot = writer
            # One that has ended already has a parent only in its recording.
            if self._boot_id is None or (boot == self._boot_id and (_is_below_this(pid) or _is_below_this(ppid))):
                self._writers.add((pid, ticks))
            seen = self._hold(pid, ticks) if self._boot_id in (None, boot) else None
            if seen is None:
                self._ignored.add(name)
                continue
            self._seen[name] = seen
            self._note_group(seen)

    def _has_room(self) -> bool:
        """For one more. Of many, the one that exited with status 0 first is forgotten: servers run for months."""
        if len(self._seen) < _MOST_PROCESSES:
            return True
        clean = [(seen.gone_mono_ns or 0, name) for name, seen in self._seen.items() if seen.exit_code == 0]
        if not clean:
            return False
        name = min(clean)[1]
        seen = self._seen.pop(name)
        self._taken.add((seen.pid, seen.start_ticks))
        self._ignored.add(name)
        return True

    def _hold(self, pid: int, ticks: int) -> Seen | None:
        """The live process that writes a recording; None if it has ended or its pid was reused."""
        if any(seen.pid == pid and seen.start_ticks == ticks for seen in self._seen.values()):
            return None  # it executed another program; its descriptor remains valid
        held = sum(seen.descriptor >= 0 for seen in self._seen.values())
        try:
            descriptor = os.pidfd_open(pid) if held < _MOST_HELD else -1
        except OSError:
            return None
        if start_ticks(pid) != ticks:
            if descriptor >= 0:
                os.close(descriptor)
            return None
        now = time.monotonic_ns()
        return Seen(pid, ticks, descriptor, now, now)

    def _note_group(self, seen: Seen) -> None:
        """A process may run in another cgroup than the launcher; that one is sampled from then on."""
        groups, _ = host_counters.memory_groups(seen.pid)
        first = next(iter(groups), None)
        seen.cgroup = first[1] if first else None
        for key, directory in groups.items():
            if key not in self._groups and len(self._groups) < _MOST_GROUPS:
                self._groups[key] = directory
                self._before.setdefault("cgroups", []).append(host_counters.read_group(*key, directory))


def box_writer(path: Path) -> tuple[int, int, int, str] | None:
    """Pid, parent, start time and boot of a recording's process; None while it is created: the magic comes first."""
    header = codec.layout(schema.FILE_HEADER)
    try:
        with open(path, "rb") as file:
            data = file.read(header.nbytes)
    except OSError:
        return None
    if len(data) != header.nbytes or not data.startswith(schema.MAGIC):
        return None
    if header.number("state", data) == schema.State.CREATING:
        return None
    at, nbytes = header.offsets["boot_id"], len(boot_id())
    boot = data[at : at + nbytes].decode("ascii", "replace")
    return header.number("pid", data), header.number("ppid", data), header.number("start_ticks", data), boot


def _is_below_this(pid: int) -> bool:
    """Whether a process descends from this launcher: other launchers tell of their own."""
    for _ in range(_DEEPEST):
        if pid <= 1:
            return False
        if pid == os.getpid():
            return True
        try:
            text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
            pid = int(text.rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            return False
    return False


def counted_processes(path: Path) -> list[SeenProcess]:
    """The last processes of the run on this host, as they counted themselves; the job may have forged them."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return []
    try:
        found = unpack(os.pread(descriptor, NBYTES, 0)) if os.fstat(descriptor).st_size == NBYTES else None
    except OSError:
        return []
    finally:
        os.close(descriptor)
    return found[1] if found is not None else []


def _is_ours(pid: int) -> bool:
    try:
        return os.stat(f"/proc/{pid}").st_uid == os.geteuid()
    except OSError:
        return False
