"""`pytracer runs`: the runs below runs/, their verdicts, and the removal of old ones."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from pathlib import Path

import click
import msgspec

from pytracer._errors import InputError, UsageError
from pytracer._paths import RUNS
from pytracer._printable import one_line
from pytracer._text import count_words, size_words
from pytracer.cli.terminal import show, show_json
from pytracer.decode.files import read_regular
from pytracer.launcher.retention import FoundRun, find_runs, parse_size, remove_run, surplus
from pytracer.launcher.run_directory import REPORT_FILE

EXAMPLES = """\b
Examples:
  pytracer runs                                   the runs below runs/, the newest first
  pytracer runs --prune --keep 20                 keep the 20 newest
  pytracer runs --prune --max-size 5G --dry-run   what would go, the oldest first
  pytracer runs /scratch/job/runs --json | jq '.runs[] | select(.verdict != "clean")'
"""
_LARGEST_REPORT = 256 << 20
_UNITS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))
_SUMMARY = 50


class _Verdict(msgspec.Struct, rename={"class_": "class"}):
    class_: str | None = None
    summary: str | None = None


class _Report(msgspec.Struct):
    """What is read of a stored report."""

    verdict: _Verdict | None = None


@click.command("runs", epilog=EXAMPLES, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("root", metavar="[DIR]", required=False, default=RUNS, type=click.Path(path_type=Path))
@click.option("--prune", is_flag=True, help="Remove old finished runs; needs --keep, --max-size or both.")
@click.option("--keep", metavar="N", type=click.IntRange(min=0), help="With --prune: keep the N newest runs.")
@click.option("--max-size", metavar="SIZE", help="With --prune: remove the oldest until at most SIZE is left, e.g. 5G.")
@click.option("--dry-run", is_flag=True, help="With --prune: only show what would be removed.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(root: Path, prune: bool, keep: int | None, max_size: str | None, dry_run: bool, as_json: bool) -> int:
    """List the runs in DIR, by default runs/, with verdict, size on the disk and age; remove old ones.

    Removed is only what is provably a finished run of yours: a directory with nothing but files of a run, of which no
    process records any more. Everything else stays, with the reason (docs/guide/disk-space.md).
    """
    if not prune and (keep is not None or max_size is not None or dry_run):
        raise UsageError("--keep, --max-size and --dry-run are for --prune", "add --prune")
    if prune and keep is None and max_size is None:
        raise UsageError("--prune needs a limit", "give --keep N, --max-size SIZE or both")
    try:
        most_bytes = parse_size(max_size) if max_size is not None else None
    except ValueError as error:
        raise UsageError(str(error), "give --max-size a number with K, M, G or T, e.g. 5G") from error
    try:
        runs = find_runs(root)
    except FileNotFoundError:
        raise InputError(f"there is no {root}", "name the directory that holds the runs") from None
    except NotADirectoryError:
        raise InputError(f"{root} is not a directory", "name the directory that holds the runs") from None
    gone = surplus(runs, keep, most_bytes) if prune else []
    failed = {} if dry_run else {run.directory: why for run in gone if (why := remove_run(run)) is not None}
    if as_json:
        show_json(_json(runs, gone, failed, dry_run))
    elif prune:
        show("".join(f"{line}\n" for line in _pruned(runs, gone, failed, dry_run)))
    else:
        show("".join(f"{line}\n" for line in _table(runs)))
    return 1 if failed else 0


def verdict_of(run: FoundRun) -> tuple[str, str]:
    """Class and summary of the stored report; without one, how the command ended."""
    if run.state == "running":
        return "running", ""
    if run.has_report:
        found = _stored(run.directory / REPORT_FILE)
        if found is not None:
            return found
    if run.interrupted:
        return "unknown", "its end was not recorded"
    if run.signal is not None:
        return "unknown", f"ended by signal {run.signal}, no report"
    if run.exit_code:
        return "unknown", f"exit status {run.exit_code}, no report"
    return "clean", ""


def _stored(path: Path) -> tuple[str, str] | None:
    try:
        verdict = msgspec.json.decode(read_regular(path, _LARGEST_REPORT), type=_Report).verdict or _Verdict()
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return verdict.class_ or "unknown", verdict.summary or ""


def _table(runs: list[FoundRun]) -> list[str]:
    if not runs:
        return ["no runs"]
    width = shutil.get_terminal_size((100, 24)).columns if sys.stdout.isatty() or os.environ.get("COLUMNS") else 100
    rows = [(run, *verdict_of(run)) for run in runs]
    names = max(len(one_line(run.directory.name)) for run in runs)
    classes = max(len(one_line(verdict)) for _, verdict, _ in rows)
    lines = []
    for run, verdict, summary in rows:
        line = f"{one_line(run.directory.name):<{names}}  {one_line(verdict):<{classes}}  "
        line += f"{size_words(run.nbytes):>9}  {_age(run):>11}  {one_line(summary or run.why)}"
        line = line.rstrip()
        lines.append(line if len(line) <= max(width, 60) else f"{line[: max(width, 60) - 3]}...")
    total = size_words(sum(run.nbytes for run in runs))
    return [*lines, f"{count_words(len(runs), 'run')}, {total}"]


def _pruned(runs: list[FoundRun], gone: list[FoundRun], failed: dict[Path, str], dry_run: bool) -> list[str]:
    done = [run for run in gone if run.directory not in failed]
    verb = "would remove" if dry_run else "removed"
    lines = [f"{verb} {one_line(str(run.directory))}, {size_words(run.nbytes)}" for run in done]
    lines += [f"kept {one_line(str(path))}: {one_line(why)}" for path, why in failed.items()]
    lines += [f"kept {one_line(str(run.directory))}: {one_line(run.why)}" for run in runs if run.state != "finished"]
    total = size_words(sum(run.nbytes for run in done))
    left = size_words(sum(run.nbytes for run in runs if run not in done))
    lines.append(f"{verb} {count_words(len(done), 'run')}, {total}; {len(runs) - len(done)} left, {left}")
    return lines


def _age(run: FoundRun) -> str:
    seconds = max(0, int(time.time() - run.began_wall_ns / 1e9))
    return next((f"{seconds // unit} {word} ago" for unit, word in _UNITS if seconds >= 2 * unit), f"{seconds} s ago")


def _json(runs: list[FoundRun], gone: list[FoundRun], failed: dict[Path, str], dry_run: bool) -> str:
    items = []
    for run in runs:
        verdict, summary = ("", "") if run in gone and not dry_run and run.directory not in failed else verdict_of(run)
        removed = run in gone and run.directory not in failed
        items.append(
            {
                "directory": str(run.directory),
                "state": run.state,
                "why": run.why or None,
                "verdict": verdict or None,
                "summary": summary or None,
                "exit_code": run.exit_code,
                "signal": run.signal,
                "bytes": run.nbytes,
                "started_wall_ns": run.began_wall_ns,
                "command": run.command or None,
                "removed": removed and not dry_run,
                "surplus": removed,
                "problem": failed.get(run.directory),
            }
        )
    return json.dumps({"schema": "pytracer-runs", "version": 1, "runs": items}, indent=2) + "\n"
