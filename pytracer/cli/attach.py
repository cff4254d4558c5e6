"""`pytracer attach`: shows what a running job is doing, and which rank waits for which. Ends nothing."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pytracer._errors import InputError, UsageError
from pytracer._printable import shell_command
from pytracer.cli.progress import progress_bar
from pytracer.cli.terminal import show, show_json
from pytracer.report.live import LiveProcess, LiveReport

if TYPE_CHECKING:
    from pytracer.analyze.collectives.deadlock import Gone
    from pytracer.decode.types.snapshot import Process, Snapshot

LATEST = Path("runs/latest")
_BOXES = "boxes"

EXAMPLES = """\b
Examples:
  pytracer attach                     the newest run below runs/
  pytracer attach runs/latest --all   all threads, full stacks
  pytracer attach 4711                one process and its descendants, recorded or not
  pytracer attach 4711 --json | jq .waits
"""


@click.command("attach", epilog=EXAMPLES, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("target", metavar="[RUN|PID]", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON (docs/reference/launcher.md).")
@click.option("--all", "everything", is_flag=True, help="Show all threads and full stacks.")
@click.option("--no-native", is_flag=True, help="Omit native frames, which is faster.")
def command(target: str | None, as_json: bool, everything: bool, no_native: bool) -> int:
    """Show what a running job is doing: open collectives, ranks that have not entered them, stacks of all threads.

    RUN is a run directory, default: runs/latest. PID is a process, which is shown with its descendants. Recorded
    processes report their own stacks; those of others are taken by py-spy or pystack, if the extra `pytracer[stacks]`
    is installed. Each process is interrupted for some milliseconds.
    """
    from pytracer.render.live import render_live

    with progress_bar("Asking the processes", wanted=not as_json):
        report = live_report(target, native=not no_native)
    if as_json:
        show_json(to_json(report))
    else:
        show(render_live(report, everything=everything))
    return 0


def report_hang(recording: Path, seconds: float | None, gone: Gone | None = None, *, goes_on: bool = True) -> None:
    """Prints the report of a hang on stderr, with stacks, and stores it in the run directory.

    `gone`: whether a process has ended for certain; `goes_on`: whether the job does.
    """
    from pytracer.render.live import render_live

    report = live_report(str(recording), native=False, gone=gone)
    report.still_for_seconds = seconds
    store_hang(recording, report)
    end = "pytracer: the job goes on; nothing was ended\n" if goes_on else ""
    show("\npytracer: " + render_live(report) + end, error=True)


def recorded_state(recording: Path, gone: Gone | None = None) -> LiveReport:
    """The state of the job by its recordings alone: no process is asked anything.

    Raises:
        InputError: no process runs there.
    """
    report, _ = _of_run(recording, gone=gone)
    report.taken = _now()
    return report


def store_hang(recording: Path, report: LiveReport) -> None:
    """Writes hang.json."""
    from pytracer.launcher.run_directory import HANG_FILE, write_text

    write_text(recording / HANG_FILE, to_json(report))


def to_json(report: LiveReport) -> str:
    """The report as one object."""
    import msgspec

    return json.dumps(msgspec.to_builtins(report), indent=1) + "\n"


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")


def live_report(target: str | None, *, native: bool, gone: Gone | None = None) -> LiveReport:
    """The state of the job now.

    Raises:
        InputError: no process runs there, or permission is missing.
        UsageError: no target was given and there is no newest run.
    """
    from pytracer.cli.live_identity import is_recorder
    from pytracer.cli.live_request import request_stacks
    from pytracer.cli.live_stacks import kernel_threads, rss_bytes, take_stacks

    if target is None:
        if not LATEST.exists():
            raise UsageError(
                "no RUN or PID was given and there is no runs/latest here", "name one: pytracer attach PID"
            )
        target = str(LATEST)
    of_pid = target.isdigit() and not Path(target).exists()
    report, boxes = _of_pid(int(target)) if of_pid else _of_run(Path(target), gone=gone)
    report.taken = _now()
    for process in report.processes:
        process.rss = rss_bytes(process.pid)
        process.threads = kernel_threads(process.pid)
    ours = [item for item in report.processes if item.pid in boxes and is_recorder(item.pid, boxes[item.pid].path)]
    request_stacks([(item, boxes[item.pid]) for item in ours], native=native)
    if not of_pid:  # a pid that only a recording names is not stopped
        for item in report.processes:
            if item not in ours:
                item.notes.append("it does not write this black box, or may not be looked at: it is not asked")
    report.notes += take_stacks(report.processes if of_pid else ours, native=native)
    return report


def _of_run(
    directory: Path, only: set[int] | None = None, gone: Gone | None = None
) -> tuple[LiveReport, dict[int, Snapshot]]:
    """The running processes of a run by their recordings, and their snapshots by pid; `only` those with these pids."""
    from pytracer.analyze.collectives.deadlock import find_deadlock, has_end
    from pytracer.analyze.collectives.stall import find_waits, live_process
    from pytracer.decode.job.merge import load_job

    job = load_job(_recording(directory), symbols=False)
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    running = [process for process in job.processes if process.status_kind == "running" and _is_alive(process)]
    if only is not None:
        running = [process for process in running if process.snapshot.pid in only]
    if not running:
        elsewhere = any(process.snapshot.boot_id != boot_id for process in job.processes)
        hint = (
            "attach on the host that runs it"
            if elsewhere
            else f"`{shell_command('pytracer', 'inspect', str(directory))}` explains how it ended"
        )
        raise InputError(f"no process of {directory} runs on this machine", hint)
    now = time.monotonic_ns()
    order = {"rank": 0, "launcher": 1}
    running.sort(key=lambda item: (order.get(item.role, 2), item.rank or 0, item.snapshot.pid))
    local = [item for item in job.processes if item.snapshot.boot_id == boot_id]
    report = LiveReport(run=directory.resolve().name, directory=str(directory.resolve()))
    report.processes = [live_process(process, now) for process in running]
    report.waits = find_waits(local, now)
    report.deadlock = find_deadlock(replace(job, processes=tuple(local)), now, gone or has_end)
    if len(local) < len(job.processes):
        report.notes.append("processes of other hosts are in this run; they are not shown")
    return report, {process.snapshot.pid: process.snapshot for process in running}


def _is_alive(process: Process) -> bool:
    """Still; one that outlived the job may have ended since."""
    from pytracer.launcher.run_directory import start_ticks

    return process.outlived_mono_ns is None or start_ticks(process.snapshot.pid) == process.snapshot.start_ticks


def _recording(directory: Path) -> Path:
    """Where the run's files are being written: elsewhere if the run directory is on a network file system."""
    from pytracer.decode.files import MIB, read_regular
    from pytracer.decode.formats.plain_json import load_json

    if directory.is_dir() and not any((directory / _BOXES).glob("*")):
        try:
            record = load_json(read_regular(directory / "run.json", 16 * MIB))
        except (OSError, ValueError, RecursionError):
            record = None
        elsewhere = record.get("recording") if isinstance(record, dict) else None
        if isinstance(elsewhere, str) and "\0" not in elsewhere and Path(elsewhere).is_dir():
            return Path(elsewhere)
    return directory


def _of_pid(pid: int) -> tuple[LiveReport, dict[int, Snapshot]]:
    """One process and its descendants, with their recordings, if there are any."""
    below = _descendants(pid)
    if pid not in below:
        raise InputError(f"no process {pid} runs here", "look with `ps`, or name a run directory")
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except PermissionError:
        raise InputError(f"process {pid} may not be looked at", "run as the same user, or as root") from None
    except OSError:
        variables = []
    recorded = next((os.fsdecode(item[13:]) for item in variables if item.startswith(b"PYTRACER_DIR=")), None)
    report = LiveReport()
    boxes: dict[int, Snapshot] = {}
    if recorded is not None:
        try:
            report, boxes = _of_run(Path(recorded), set(below))
        except InputError as error:
            report.notes.append(str(error))
    else:
        report.notes.append(f"process {pid} is not recorded: no PYTRACER_DIR in its environment")
    known = {process.pid for process in report.processes}
    report.processes += [LiveProcess(item, parent) for item, parent in below.items() if item not in known]
    order = list(below)
    return replace(report, processes=sorted(report.processes, key=lambda item: order.index(item.pid))), boxes


def _descendants(pid: int) -> dict[int, int]:
    """A process and its descendants, with their parents, from the top down."""
    parents: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                words = Path(f"/proc/{name}/stat").read_text(errors="replace").rpartition(")")[2].split()
                if words[0] not in ("Z", "X"):
                    parents[int(name)] = int(words[1])
            except (OSError, ValueError, IndexError):
                continue
    if pid not in parents:
        return {}
    found = {pid: parents[pid]}
    todo = [pid]
    while todo:
        top = todo.pop(0)
        for child in sorted(item for item, parent in parents.items() if parent == top and item not in found):
            found[child] = top
            todo.append(child)
    return found
