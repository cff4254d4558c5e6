"""Host counters that distinguish an OOM kill from another SIGKILL: cgroups, vmstat, pressure, free memory.

SIGKILL leaves nothing in the process, so the evidence is the change of these counters between two moments. Nothing here
raises: a value that cannot be read is None, with the reason in "why". docs/reference/launcher.md has the format.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import time
from collections.abc import Mapping
from pathlib import Path

from pytracer.launcher.json_object import JsonObject

ROOT = Path("/")
_UNLIMITED = 1 << 62  # version 1 writes the largest multiple of a page instead of "max"
_V1_FILES = {
    "current": "memory.usage_in_bytes",
    "peak": "memory.max_usage_in_bytes",
    "limit": "memory.limit_in_bytes",
    "limit_hits": "memory.failcnt",
}
_V2_FILES = {"current": "memory.current", "peak": "memory.peak", "limit": "memory.max"}
_KILLERS = ("earlyoom", "systemd-oomd", "oomd", "nohang")
# Variables that identify the scheduler, and the job to it. Also the identity of a container in Kubernetes.
_SCHEDULER_NAMES = (
    "SLURM_JOB_ID",
    "SLURM_STEP_ID",
    "PBS_JOBID",
    "LSB_JOBID",
    "FLUX_JOB_ID",
    "KUBERNETES_SERVICE_HOST",
    "POD_NAME",
    "POD_NAMESPACE",
    "HOSTNAME",
)


def counters(groups: Mapping[tuple[int, str], Path] | None = None, root: Path = ROOT) -> JsonObject:
    """All counters now.

    Args:
        groups: memory cgroups to read, as from `memory_groups`; None: those of this process.
        root: where /proc and /sys begin.
    """
    why = None
    if groups is None:
        groups, why = memory_groups("self", root)
    vmstat, vmstat_why = _number(root / "proc/vmstat", "oom_kill")
    meminfo = _table(root / "proc/meminfo")
    return {
        "mono_ns": time.monotonic_ns(),
        "cgroups": [read_group(version, path, directory) for (version, path), directory in groups.items()],
        "cgroups_why": why,
        "vmstat_oom_kill": vmstat,
        "vmstat_why": vmstat_why,
        "psi_memory": pressure(root),
        "mem_available": _kib(meminfo, "MemAvailable"),
        "swap_free": _kib(meminfo, "SwapFree"),
    }


def memory_groups(pid: int | str, root: Path = ROOT) -> tuple[dict[tuple[int, str], Path], str | None]:
    """The memory cgroups of a process, its own first, then the ancestors: (version, path) to directory.

    The type of the file system decides, not its mount point: on hybrid hosts /sys/fs/cgroup is a tmpfs, in which
    anybody may create files and nothing is limited.

    Returns:
        The groups, and why there is none (then empty) or None.
    """
    try:
        membership = (root / "proc" / str(pid) / "cgroup").read_text(encoding="utf-8", errors="surrogateescape")
        mountinfo = (root / "proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError as error:
        return {}, _why(error)
    mounts = _mounts(mountinfo)
    found: dict[tuple[int, str], Path] = {}
    for line in membership.splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        version = 1 if "memory" in controllers.split(",") else 2 if number == "0" and not controllers else 0
        for point, top in mounts.get(version, ()):
            inside = _below(path, top)
            if inside is None or not (base := root / point.lstrip("/")).is_dir():
                continue
            for part in (inside, *_parents(inside)):
                directory = base / part if part else base
                # The root of version 2 has no memory files, nor has a group without that controller.
                if (directory / ("memory.oom_control" if version == 1 else "memory.events")).exists():
                    found.setdefault((version, "/" + part), directory)
            break
    return (found, None) if found else ({}, "no memory cgroup is mounted here")


def read_group(version: int, path: str, directory: Path) -> JsonObject:
    """The counters of one memory cgroup."""
    group: JsonObject = {
        "version": version, "path": path, "oom_kill": None, "oom_group_kill": None, "oom": None, "max": None,
        "current": None, "peak": None, "limit": None, "limit_hits": None, "why": None,
    }  # fmt: skip
    try:
        events = directory / ("memory.oom_control" if version == 1 else "memory.events")
        words = _pairs(events.read_text(encoding="ascii", errors="replace"))
    except OSError as error:
        group["why"] = _why(error)
        return group
    names = ("oom_kill",) if version == 1 else ("oom_kill", "oom_group_kill", "oom", "max")
    group.update({name: words.get(name) for name in names})
    for name, file in (_V1_FILES if version == 1 else _V2_FILES).items():
        value, _ = _number(directory / file)
        group[name] = None if name == "limit" and value is not None and value >= _UNLIMITED else value
    return group


def pressure(root: Path = ROOT) -> dict[str, float] | None:
    """Pressure stall information of memory: some_avg10 ... full_total; None if the kernel has none."""
    try:
        text = (root / "proc/pressure/memory").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    found = {}
    for line in text.splitlines():
        kind, *items = line.split()
        for name, _, value in (item.partition("=") for item in items):
            with contextlib.suppress(ValueError):
                found[f"{kind}_{name}"] = float(value)
    return found or None


def free_memory(root: Path = ROOT) -> tuple[int | None, int | None]:
    """MemAvailable and SwapFree in bytes."""
    table = _table(root / "proc/meminfo")
    return _kib(table, "MemAvailable"), _kib(table, "SwapFree")


def usage(group: tuple[tuple[int, str], Path]) -> int | None:
    """Current usage of one memory cgroup, in bytes."""
    (version, _), directory = group
    return _number(directory / (_V1_FILES if version == 1 else _V2_FILES)["current"])[0]


def killers(root: Path = ROOT) -> list[JsonObject] | None:
    """Running programs that kill when memory is short; None if /proc cannot be listed."""
    found = []
    try:
        pids = [name for name in os.listdir(root / "proc") if name.isdigit()]
    except OSError:
        return None
    for pid in pids:
        with contextlib.suppress(OSError):
            name = (root / "proc" / pid / "comm").read_text(encoding="utf-8", errors="replace").strip()
            if name in _KILLERS:
                found.append({"pid": int(pid), "name": name})
    return found


def scheduler(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that identify this job to a scheduler."""
    return {name: environ[name][:200] for name in _SCHEDULER_NAMES if environ.get(name)}


def in_first_pid_namespace(root: Path = ROOT) -> bool | None:
    """Whether pids here are those of the kernel log. The inode is fixed: PROC_PID_INIT_INO of linux/proc_ns.h."""
    try:
        return os.readlink(root / "proc/self/ns/pid") == "pid:[4026531836]"
    except OSError:
        return None


def _mounts(mountinfo: str) -> dict[int, list[tuple[str, str]]]:
    """Mount points of memory cgroups by version, each with the group that is mounted there (proc(5))."""
    found: dict[int, list[tuple[str, str]]] = {}
    for line in mountinfo.splitlines():
        head, separator, tail = line.partition(" - ")
        fields, kind = head.split(" "), tail.split(" ")
        if not separator or len(fields) < 5:
            continue
        version = {"cgroup": 1, "cgroup2": 2}.get(kind[0], 0)
        if version == 2 or (version == 1 and "memory" in kind[-1].split(",")):
            found.setdefault(version, []).append((_plain(fields[4]), _plain(fields[3])))
    return found


def _plain(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)


def _below(path: str, top: str) -> str | None:
    """`path` relative to a mount of the group `top`, without the leading slash; None if it is elsewhere."""
    if ".." in path.split("/"):
        return None
    if top == "/":
        return path.strip("/")
    return path[len(top) :].strip("/") if path == top or path.startswith(top + "/") else None


def _parents(path: str) -> list[str]:
    parts = path.split("/") if path else []
    return ["/".join(parts[:count]) for count in range(len(parts) - 1, -1, -1)]


def _pairs(text: str) -> dict[str, int]:
    """Lines `name value`."""
    found = {}
    for line in text.splitlines():
        words = line.split()
        if len(words) >= 2 and words[1].isdigit():
            found[words[0].rstrip(":")] = int(words[1])
    return found


def _table(path: Path) -> dict[str, int]:
    try:
        return _pairs(path.read_text(encoding="ascii", errors="replace"))
    except OSError:
        return {}


def _kib(table: Mapping[str, int], name: str) -> int | None:
    return table[name] * 1024 if name in table else None


def _number(path: Path, name: str | None = None) -> tuple[int | None, str | None]:
    """A number that is the whole file, or that of line `name`; and why there is none."""
    try:
        text = path.read_text(encoding="ascii", errors="replace")
    except OSError as error:
        return None, _why(error)
    if name is not None:
        value = _pairs(text).get(name)
        return value, None if value is not None else f"the kernel does not count {name}"
    word = text.strip()
    return (int(word), None) if word.isdigit() else (None, None)


def _why(error: OSError) -> str:
    return f"{errno.errorcode.get(error.errno or 0, '?')}: {error.strerror}"
