"""How long does the verdict of a job of thousands of ranks take, from the digests of its nodes, and is it right?

    python benchmarks/scale.py                          1,024 and 10,240 ranks
    python benchmarks/scale.py --ranks 102400
    python benchmarks/scale.py --quick                  1,024 ranks, one job
    python benchmarks/scale.py --torchfrtrace           also torch's analyzer, on the same collectives
    python benchmarks/scale.py --json                   JSON on stdout

Each job is made from the recordings of a real one of four ranks (`support/scaled_job.py`): eight ranks to a node, a
group for each node besides the default one, clocks that differ by seconds. The truth is known: which rank it was, and
what happened to it. `pytracer inspect FOLDER` reads the digests, and no recording.

    seconds      of the whole command, from start to exit, as text; most of it has one thread
    peak         resident memory of the command, at most (ru_maxrss)
    bytes        of all digests, and of one node's, on average
    verdict      right: class and rank are true; else what it said
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from support import output
from support.measuring import machine, progress
from support.scaled_job import RANKS_PER_NODE, TRUTHS, Truth, real_job, write_digests
from support.torch_analyzer import Analyzed, analyze, write_dumps

from pytracer.decode.types.snapshot import Job

ROOT = Path(__file__).resolve().parent.parent
RANKS = (1024, 10_240)
KB, MB = 10**3, 10**6


@dataclass
class Row:
    """One job of one size."""

    ranks: int
    truth: str
    seconds: float
    cpu_seconds: float
    peak_bytes: int
    digest_bytes: int
    node_bytes: int
    verdict: str
    peer: Analyzed | None = None


def measure(job: Job, truth: Truth, ranks: int, parent: str | None, *, peer: bool = False) -> Row:
    """Makes the digests, explains them, and deletes them."""
    with tempfile.TemporaryDirectory(prefix="pytracer-bench-", dir=parent) as name:
        folder = Path(name) / "digests"
        progress(f"{ranks} ranks, {truth.name}: writing the digests")
        guilty, nbytes = write_digests(job, truth, ranks, folder)
        count = len(list(folder.iterdir()))
        progress(f"{ranks} ranks, {truth.name}")
        seconds, cpu, peak, _ = inspect(folder)
        verdict = json.loads(inspect(folder, "--json")[3])["verdict"]
        analyzed = None
        if peer:
            progress(f"{ranks} ranks, {truth.name}: torchfrtrace")
            analyzed = analyze(Path(name) / "dumps", write_dumps(folder, Path(name) / "dumps"))
    right = verdict["class"] in truth.classes and (verdict["rank"] == guilty or not truth.guilty)
    words = f"{verdict['class']} ({verdict['confidence']}), rank {verdict['rank']}"
    said = f"right: {words}" if right else f"WRONG: {words}: {verdict['summary']}"
    return Row(ranks, truth.name, seconds, cpu, peak, nbytes, nbytes // count, said, analyzed)


def inspect(folder: Path, *options: str) -> tuple[float, float, int, bytes]:
    """One `pytracer inspect`: seconds, CPU seconds, peak memory, stdout."""
    report = folder.parent / "report"
    command = [sys.executable, "-m", "pytracer", "inspect", str(folder), *options]
    with report.open("wb") as out:
        since = time.monotonic()
        child = subprocess.Popen(command, stdout=out, env={**os.environ, "PYTHONPATH": str(ROOT)})
        _, status, usage = os.wait4(child.pid, 0)
        seconds = time.monotonic() - since
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        sys.exit(f"scale: pytracer inspect ended with {child.returncode}")
    return seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024, report.read_bytes()


def table(rows: list[dict[str, Any]]) -> output.Table:
    heads = ("ranks", "what happens", "seconds", "CPU seconds", "peak", "digests", "of a node", "verdict")
    return output.Table(
        heads,
        [
            (
                str(row["ranks"]), row["truth"], f"{row['seconds']:.1f}", f"{row['cpu_seconds']:.1f}",
                f"{row['peak_bytes'] / MB:.0f} MB", f"{row['digest_bytes'] / MB:.1f} MB",
                f"{row['node_bytes'] / KB:.1f} KB", row["verdict"],
            )
            for row in rows
        ],
    )  # fmt: skip


def peer_table(rows: list[dict[str, Any]]) -> output.Table:
    heads = ("torchfrtrace, ranks", "what happens", "seconds", "CPU seconds", "peak", "dumps", "end")
    return output.Table(
        heads,
        [
            (
                str(row["ranks"]), row["truth"], f"{peer['seconds']:.1f}", f"{peer['cpu_seconds']:.1f}",
                f"{peer['peak_bytes'] / MB:.0f} MB", f"{peer['dump_bytes'] / MB:.0f} MB",
                f"{peer['end']}: {peer['says'][:60]}",
            )
            for row in rows if (peer := row["peer"])
        ],
    )  # fmt: skip


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, action="append", help="this many; may be repeated")
    parser.add_argument("--only", metavar="WORD", help="only the jobs whose name contains WORD")
    parser.add_argument("--quick", action="store_true", help="1,024 ranks, one job")
    parser.add_argument("--torchfrtrace", action="store_true", help="also torch's analyzer, on dumps of all ranks")
    parser.add_argument("--directory", metavar="DIR", help="where the digests are written for a while")
    output.add_arguments(parser)
    return parser.parse_args()


def main() -> int:
    given = arguments()
    sizes = RANKS[:1] if given.quick else given.ranks or RANKS
    truths = [item for item in TRUTHS if given.only is None or given.only in item.name]
    jobs: dict[str, Job] = {}
    rows = []
    for truth in truths[:1] if given.quick else truths:
        with tempfile.TemporaryDirectory(prefix="pytracer-bench-", dir=given.directory) as name:
            if truth.function not in jobs:
                progress(f"{truth.name}: the real job")
                jobs[truth.function] = real_job(truth, Path(name))
        for ranks in sizes:
            whole = ranks - ranks % RANKS_PER_NODE
            row = measure(jobs[truth.function], truth, whole, given.directory, peer=given.torchfrtrace)
            rows.append(asdict(row))
    progress("")
    where = {**machine(), "load": f"{os.getloadavg()[0]:.1f}"}
    output.deliver(
        "scale", given, where, {"rows": rows}, [table(rows), *([peer_table(rows)] if given.torchfrtrace else ())]
    )
    return 1 if any(row["verdict"].startswith("WRONG") for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
