"""Processes without a recording that failed: what their parents observed, as an almost empty `Snapshot`.

A process has a file once it recorded something (docs/reference/blackbox.md). One that was killed before is known from
the WAIT entry of its parent, and its name from the counters of the run. The command of a task of srun or mpirun is
known from the record of its launcher.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from dataclasses import replace

from pytracer.blackbox.run_counters import SeenProcess
from pytracer.decode.job.roles import Seen
from pytracer.decode.types.journal import Versions, Wait
from pytracer.decode.types.snapshot import LauncherRecord, Snapshot
from pytracer.decode.types.storage_table import StorageTable

_MOST = 32  # a program may kill thousands of its children


def unboxed(snapshots: Sequence[Snapshot], named: Seen, launchers: Sequence[LauncherRecord]) -> list[Snapshot]:
    """The processes without a recording that a signal ended, the earliest first, then failed commands of tasks.

    SIGPIPE is not listed.
    """
    boxed: dict[tuple[str, str, int], list[int]] = {}
    for s in snapshots:
        boxed.setdefault((s.host, s.boot_id, s.pid), []).append(s.created_mono_ns)
    found: list[tuple[int, Snapshot]] = []
    for parent, wait in _killed(snapshots):
        made = boxed.get((parent.host, parent.boot_id, wait.pid), [])
        seen = named.get((parent.host, wait.pid))
        if seen is None or any(created <= wait.mono_ns for created in made):
            continue
        if parent.created_mono_ns <= seen.started_mono_ns <= wait.mono_ns:
            found.append((wait.mono_ns, _snapshot(parent, seen, parent.pid, parent.start_ticks)))
    for launcher in launchers:
        first = next((s for s in snapshots if s.pid == launcher.child_pid), None)
        if launcher.witness is None or first is None:
            continue
        known = {pid for host, _, pid in boxed if host == launcher.host} | {s.pid for _, s in found}
        for item in launcher.witness.processes:
            seen = named.get((launcher.host, item.pid))
            if seen is None or item.signal is None or item.gone_mono_ns is None or item.pid in known:
                continue
            # Its parent was gone, too: the launcher saw it end.
            if first.created_mono_ns <= seen.started_mono_ns <= item.gone_mono_ns:
                found.append((item.gone_mono_ns, _snapshot(first, seen, seen.ppid, item.start_ticks)))
    tasks = _failed_tasks(snapshots, launchers)
    return [*(s for _, s in sorted(found, key=lambda item: item[0])[:_MOST]), *tasks]


def _failed_tasks(snapshots: Sequence[Snapshot], launchers: Sequence[LauncherRecord]) -> Iterator[Snapshot]:
    """The commands of tasks, each of them a rank, that failed before they recorded anything."""
    boxed = {(s.host, s.boot_id, s.pid) for s in snapshots}
    for launcher in launchers:
        task, pid = launcher.task, launcher.child_pid
        failed = launcher.exit_code or launcher.signal
        if task is None or pid is None or not failed or (launcher.host, launcher.boot_id, pid) in boxed:
            continue
        named = SeenProcess(pid, launcher.pid, launcher.started_mono_ns, "")
        given = {**snapshots[0].environment, "RANK": str(task.rank)}
        given |= {"WORLD_SIZE": str(task.count)} if task.count is not None else {}
        yield replace(
            _snapshot(snapshots[0], named, launcher.pid, 0),
            host=launcher.host,
            boot_id=launcher.boot_id,
            created_wall_ns=launcher.started_wall_ns,
            argv=launcher.command,
            environment=given,
        )


def _killed(snapshots: Sequence[Snapshot]) -> Iterator[tuple[Snapshot, Wait]]:
    for s in snapshots:
        for wait in s.waits:
            own = wait.mono_ns >= s.created_mono_ns  # else inherited by fork(): it is in the parent's recording
            if own and wait.signal is not None and wait.signal != signal.SIGPIPE:
                yield s, wait


def _snapshot(like: Snapshot, seen: SeenProcess, ppid: int, start_ticks: int) -> Snapshot:
    """`start_ticks`: of a process that only its parent saw, those of the parent; it started no sooner."""
    return Snapshot(
        path=like.path,
        version=like.version,
        pid=seen.pid,
        ppid=ppid,
        uid=like.uid,
        host=like.host,
        boot_id=like.boot_id,
        arch=like.arch,
        page_bytes=like.page_bytes,
        start_ticks=start_ticks,
        created_mono_ns=seen.started_mono_ns,
        created_wall_ns=like.created_wall_ns + (seen.started_mono_ns - like.created_mono_ns),
        state="RECORDING",
        exit_code=None,
        exit_mono_ns=None,
        step=None,
        step_source=None,
        preloaded=True,
        python_minor=None,
        argv=(seen.name,) if seen.name else (),
        environment=like.environment,
        rank=None,
        versions=Versions(),
        facts=(),
        events=(),
        threads=(),
        collectives=(),
        storages=StorageTable.of(),
        waits=(),
        crash=None,
        counts={},
        last_mono_ns=seen.started_mono_ns,
    )
