"""How long does the verdict of a large job take, and how much memory? `pytracer inspect --json`, by number of ranks.

    python benchmarks/merge.py                          8, 64, 512 and 1024 ranks
    python benchmarks/merge.py --ranks 64 --rounds 3
    python benchmarks/merge.py --quick                  8 and 64, one round
    python benchmarks/merge.py --json                   JSON on stdout

The jobs are synthetic: eight ranks to a host, each host with its own clock and torchrun agent, recordings of real
sizes, written sparsely to a temporary directory and deleted at once. One rank faults, all others lose their
connections. A run counts only when the verdict names that rank.

    seconds      of the whole command, from start to exit; it has one thread, so that on a busy machine its CPU seconds
                 are more reliable
    peak         resident memory of the command, at most (ru_maxrss)
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from support import output
from support.large_job import write_job
from support.measuring import half, machine, progress, spread

ROOT = Path(__file__).resolve().parent.parent
MB = 10**6
RANKS = (8, 64, 512, 1024)
TARGET = {8: (1.0, None), 1024: (10.0, 512 * 2**20)}  # seconds, bytes


@dataclass
class Row:
    """All rounds of one size."""

    ranks: int
    boxes: int = 0
    disk_bytes: int = 0
    seconds: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)
    peak_bytes: int = 0

    def document(self) -> dict[str, Any]:
        return {
            "ranks": self.ranks,
            "boxes": self.boxes,
            "disk_bytes": self.disk_bytes,
            "rounds": len(self.seconds),
            "seconds": spread(self.seconds),
            "cpu_seconds": spread(self.cpu_seconds),
            "peak_bytes": self.peak_bytes,
        }


def measure(ranks: int, rounds: int, parent: str | None) -> Row:
    """Creates the job, explains it `rounds` times, and deletes it."""
    row = Row(ranks)
    with tempfile.TemporaryDirectory(prefix="pytracer-bench-", dir=parent) as name:
        directory = Path(name)
        progress(f"{ranks} ranks: writing their boxes")
        victim = write_job(directory, ranks)
        status = [path.stat() for path in (directory / "boxes").iterdir()]
        row.boxes, row.disk_bytes = len(status), sum(item.st_blocks * 512 for item in status)
        for turn in range(rounds):
            progress(f"{ranks} ranks: round {turn + 1}/{rounds}")
            explain(directory, victim, row)
    progress("")
    return row


def explain(directory: Path, victim: int, row: Row) -> None:
    """One `pytracer inspect`; its use of time and memory goes into the row."""
    report = directory / "report"
    command = [sys.executable, "-m", "pytracer", "inspect", str(directory), "--json"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with report.open("wb") as out:
        since = time.monotonic()
        child = subprocess.Popen(command, stdout=out, env=environment)
        _, status, usage = os.wait4(child.pid, 0)
        row.seconds.append(time.monotonic() - since)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        sys.exit(f"merge: pytracer inspect ended with {child.returncode}")
    row.cpu_seconds.append(usage.ru_utime + usage.ru_stime)
    row.peak_bytes = max(row.peak_bytes, usage.ru_maxrss * 1024)
    found = json.loads(report.read_bytes())["verdict"]
    if found["rank"] != victim or found["class"] != "null-dereference":
        sys.exit(f"merge: rank {victim} faulted, the verdict is {found['class']}, rank {found['rank']}")


def table(rows: list[dict[str, Any]]) -> output.Table:
    heads = ("ranks", "boxes", "on disk", "seconds", "middle half", "CPU seconds", "peak", "rounds", "target")
    cells = [
        (
            str(row["ranks"]),
            str(row["boxes"]),
            f"{row['disk_bytes'] / MB:.0f} MB",
            f"{row['seconds']['median']:.2f}",
            half(row["seconds"]),
            f"{row['cpu_seconds']['median']:.2f}",
            f"{row['peak_bytes'] / MB:.0f} MB",
            str(row["rounds"]),
            met(row),
        )
        for row in rows
    ]
    return output.Table(heads, cells)


def met(row: dict[str, Any]) -> str:
    """The target of this size, if there is one, and whether it was met; a busy machine proves little."""
    seconds, nbytes = TARGET.get(row["ranks"], (None, None))
    if seconds is None:
        return ""
    words = f"{seconds:.0f} s" + (f", {nbytes / MB:.0f} MB" if nbytes else "")
    if nbytes is not None and row["peak_bytes"] > nbytes:
        return f"{words}: missed"
    if row["seconds"]["median"] <= seconds:
        return f"{words}: met"
    busy = os.getloadavg()[0] > (os.cpu_count() or 1) and row["cpu_seconds"]["median"] <= seconds
    return f"{words}: {'met in CPU seconds, the machine was busy' if busy else 'missed'}"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, action="append", help="this many; may be repeated")
    parser.add_argument("--rounds", type=int, default=3, help="of each (default 3)")
    parser.add_argument("--quick", action="store_true", help="8 and 64 ranks, one round")
    parser.add_argument("--directory", metavar="DIR", help="where the boxes are written for a while")
    output.add_arguments(parser)
    return parser.parse_args()


def main() -> int:
    given = arguments()
    sizes, rounds = (RANKS[:2], 1) if given.quick else (given.ranks or RANKS, max(given.rounds, 1))
    rows = [measure(ranks, rounds, given.directory).document() for ranks in sizes]
    where = {**machine(), "load": f"{os.getloadavg()[0]:.1f}"}
    output.deliver("merge", given, where, {"rows": rows}, [table(rows)])
    return 0


if __name__ == "__main__":
    sys.exit(main())
