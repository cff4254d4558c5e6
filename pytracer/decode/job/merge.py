"""All recordings of a run as one `Job`.

`roles.py` decides which process is a rank, a launcher, or a child; `ending.py` how each ended.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pytracer._errors import InputError
from pytracer._garbage import without_collections
from pytracer._printable import shell_command
from pytracer.decode.formats.gpu_core import read_gpu_cores
from pytracer.decode.job.ending import Waits, alive_processes, ended_process
from pytracer.decode.job.inherited import with_inherited_frees
from pytracer.decode.job.launcher import RUN_FILE, read_launchers
from pytracer.decode.job.roles import decide_roles
from pytracer.decode.job.run_counters import read_run_counters, unrecorded
from pytracer.decode.job.unboxed import unboxed
from pytracer.decode.job.unseen import unseen_damage
from pytracer.decode.recording.reader import LAST_COLLECTIVES, read_box
from pytracer.decode.symbols.stored import SYMBOLS_FILE, read_symbols
from pytracer.decode.symbols.symbolize import symbolize
from pytracer.decode.types.devices import GpuCore
from pytracer.decode.types.snapshot import Damage, Job, LauncherRecord, Snapshot

SUFFIX = ".blackbox"
FULL_BOXES = 32
MOST_BOXES = 1 << 16  # of a run: 1,024 ranks with 60 workers each
COLLECTIVES_IN_ALL = 1 << 16  # of partially read recordings: all of them up to 64 ranks
Progress = Callable[[int, int], None]


@dataclass
class _Lineage:
    """The recordings of one process, oldest first: each but the last was replaced by exec()."""

    boxes: list[Snapshot] = field(default_factory=list)

    @property
    def last(self) -> Snapshot:
        return self.boxes[-1]


def load_job(
    path: str | os.PathLike[str], progress: Progress | None = None, *, symbols: bool = True, light: bool = False
) -> Job:
    """Reads all recordings of a run.

    Args:
        path: a run directory, a directory with `*.blackbox` files, or one such file.
        progress: called with (files read, files in all) after each file.
        symbols: fill in function names of native frames.
        light: of more than `FULL_BOXES` recordings, read only how each process ended; `detail.py` reads the rest of
            the suspects. A thousand ranks then take seconds and a few hundred MB.

    Returns:
        The job; its processes in the order of their files' creation. Unreadable files among readable ones are in
        `Job.damage`.

    Raises:
        InputError: `path` is missing, has no recording, or none of them can be read.
    """
    target = Path(path)
    damage: list[Damage] = []
    directory, files = _find(target, damage)
    alive = alive_processes(files)
    with without_collections():
        snapshots = _read_all(files, damage, progress, light=light and len(files) > FULL_BOXES)
    launchers = read_launchers(directory, damage) if target.is_dir() else []
    launcher = next(iter(launchers), None)
    counters = read_run_counters(directory) if target.is_dir() else []
    damage.extend(unrecorded(counters))
    damage.extend(unseen_damage(launchers))
    if symbols:
        snapshots = symbolize(snapshots, read_symbols(directory / SYMBOLS_FILE, damage) if target.is_dir() else None)
    seen = {(item.host, process.pid): process for item in counters for process in item.seen}
    snapshots = [*snapshots, *unboxed(snapshots, seen, launchers)]
    snapshots = with_inherited_frees(snapshots)
    lineages = _lineages(snapshots)
    waits = Waits(snapshots)
    roles = decide_roles([lineage.boxes for lineage in lineages], seen)
    processes = [
        ended_process(lineage.last, standing, waits, launchers, alive)
        for lineage, standing in zip(lineages, roles, strict=True)
    ]
    processes.sort(key=lambda p: (p.snapshot.created_wall_ns, p.snapshot.pid))
    for snapshot in snapshots:
        damage.extend(snapshot.damage)
    replaced = tuple(b.path for lineage in lineages for b in lineage.boxes[:-1])
    cores = _gpu_cores(directory, launcher) if target.is_dir() else ()
    return Job(
        os.path.realpath(directory),
        launcher,
        tuple(processes),
        tuple(dict.fromkeys(damage)),
        replaced,
        gpu_cores=cores,
        more_launchers=tuple(launchers[1:]),
    )


def _gpu_cores(directory: Path, launcher: LauncherRecord | None) -> tuple[GpuCore, ...]:
    if launcher is None or launcher.gpu_core is None:
        return ()
    return read_gpu_cores(directory, launcher.gpu_core.file, launcher.started_wall_ns)


def _find(target: Path, damage: list[Damage]) -> tuple[Path, list[Path]]:
    if not target.is_dir():
        if not target.exists() and target.is_symlink():
            raise InputError(f"{target} points to {os.readlink(target)}, which does not exist", "name another run")
        # The user's own link is followed; links that lie in a run directory are not.
        return target.parent, [Path(os.path.realpath(target)) if target.is_symlink() else target]
    try:
        files = [path for folder in (target / "boxes", target) if folder.is_dir() for path in _boxes(folder, damage)]
    except OSError as error:
        raise InputError(f"{target} cannot be read: {error.strerror}", "check its permissions") from None
    if not files:
        runs = sorted(p.parent for p in target.glob("*/boxes") if not p.parent.is_symlink())
        if runs:
            raise InputError(f"{target} holds {_runs(len(runs))}, not one", f"name one, for example {runs[-1]}")
        if (target / RUN_FILE).is_file():
            hint = "no process of that run was recorded: see `pytracer doctor`"
        else:
            hint = "name a run directory such as runs/latest; `pytracer run -- COMMAND` makes one"
        raise InputError(f"no black boxes in {target}", hint)
    return target, sorted(files, key=_natural)


def _boxes(folder: Path, damage: list[Damage]) -> list[Path]:
    with os.scandir(folder) as entries:
        found = [folder / entry.name for entry in entries if entry.name.endswith(SUFFIX)]
    if len(found) > MOST_BOXES:
        what = f"it holds {len(found)} black boxes, of which {MOST_BOXES} are read"
        damage.append(Damage(folder.name, 0, what))
    return sorted(found, key=_natural)[:MOST_BOXES]


def _runs(count: int) -> str:
    return "a run" if count == 1 else f"{count} runs"


def _natural(path: Path) -> tuple[tuple[int, int, str], ...]:
    """`h.9.blackbox` before `h.10.blackbox`."""
    return tuple((0, int(p), "") if p.isdigit() else (1, 0, p) for p in re.findall(r"\d{1,18}|\D+", path.name))


def _read_all(files: Sequence[Path], damage: list[Damage], progress: Progress | None, *, light: bool) -> list[Snapshot]:
    snapshots: list[Snapshot] = []
    errors: list[InputError] = []
    kept = max(LAST_COLLECTIVES, COLLECTIVES_IN_ALL // len(files))
    for done, file in enumerate(files, 1):
        try:
            snapshots.append(read_box(file, light=light, last_collectives=kept))
        except InputError as error:
            errors.append(error)
            damage.append(Damage(file.name, 0, Exception.__str__(error)))
        if progress is not None:
            progress(done, len(files))
    if not snapshots:
        if len(errors) == 1:
            raise errors[0]
        message = f"none of the {len(files)} black boxes in {files[0].parent} can be read; the first: {errors[0]}"
        raise InputError(message, f"see `{shell_command('pytracer', 'dump', str(files[0]))}`")
    return snapshots


def _lineages(snapshots: Iterable[Snapshot]) -> list[_Lineage]:
    found: dict[tuple[str, str, int, int], _Lineage] = {}
    for s in sorted(snapshots, key=lambda s: s.created_mono_ns):
        key = (s.host, s.boot_id, s.pid, s.start_ticks)
        if s.pid == 0:  # the header was truncated: these cannot be distinguished
            key = (s.path, "", 0, 0)
        found.setdefault(key, _Lineage()).boxes.append(s)
    return list(found.values())
