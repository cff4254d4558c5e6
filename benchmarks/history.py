"""How long do questions over a million deaths take? `pytracer history`, as commands, cold and warm.

    python benchmarks/history.py                        10^6 deaths in 1.2 * 10^6 runs of a year: a minute to make them
    python benchmarks/history.py --deaths 100000
    python benchmarks/history.py --quick                20,000 deaths, one round
    python benchmarks/history.py --json                 JSON on stdout

The runs are synthetic, with known truth (tests/support/fleet.py): 500 hosts of which one is bad, 3,000 causes of which
one became more frequent with a version, one compacted file a day. A round counts only when the answer is the truth.

    cold         the whole command, with the store's pages dropped from the page cache (posix_fadvise)
    warm         the whole command again
    CPU          seconds of the warm one, of all threads: on a busy machine more reliable
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from support import output
from support.measuring import half, machine, progress, spread

from pytracer.history.store import Store
from tests.support.fleet import BAD_HOST, REGRESSION, Fleet

ROOT = Path(__file__).resolve().parent.parent
MB = 10**6
Answer = dict[str, Any]
SEEN = "SELECT count(*) AS n, min(started) AS since FROM deaths WHERE fingerprint = 'f1-0000000000000000'"
WEEKS = "SELECT date_trunc('week', started) AS week, class, count(*) AS n FROM deaths GROUP BY 1, 2 ORDER BY 1, 3 DESC"
QUESTIONS: dict[str, tuple[list[str], Callable[[Answer, int], bool]]] = {
    "what kills most": ([], lambda a, deaths: a["deaths"] == deaths and a["groups_total"] > 1000),
    "seen before?": (["--sql", SEEN], lambda a, _: a["rows"][0]["n"] == 0),
    "bad hosts": (["--nodes"], lambda a, _: [n["host"] for n in a["nodes"] if n["outlier"]] == [BAD_HOST]),
    "regressions of torch": (["--changes", "torch"], lambda a, _: f":{REGRESSION} in " in a["changes"][0]["summary"]),
    "classes by week": (["--sql", WEEKS], lambda a, deaths: sum(row["n"] for row in a["rows"]) == deaths),
}


@dataclass
class Row:
    """All rounds of one question."""

    question: str
    cold: list[float] = field(default_factory=list)
    warm: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)
    peak_bytes: int = 0

    def document(self) -> dict[str, Any]:
        return {
            "question": self.question,
            "rounds": len(self.warm),
            "cold": spread(self.cold),
            "warm": spread(self.warm),
            "cpu_seconds": spread(self.cpu_seconds),
            "peak_bytes": self.peak_bytes,
        }


def ask(store: Path, row: Row, deaths: int, *, cold: bool) -> None:
    """One command; its use of time and memory goes into the row."""
    arguments, is_true = QUESTIONS[row.question]
    if cold:
        drop_pages(store)
    command = [sys.executable, "-m", "pytracer", "history", "--store", str(store), "--json", *arguments]
    with tempfile.TemporaryFile() as out:
        since = time.monotonic()
        child = subprocess.Popen(command, stdout=out, env={**os.environ, "PYTHONPATH": str(ROOT)})
        _, status, usage = os.wait4(child.pid, 0)
        seconds = time.monotonic() - since
        out.seek(0)
        answer = json.loads(out.read() or b"null")
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode or not is_true(answer, deaths):
        sys.exit(f"history: {row.question!r} was answered with status {child.returncode}: {str(answer)[:300]}")
    (row.cold if cold else row.warm).append(seconds)
    if not cold:
        row.cpu_seconds.append(usage.ru_utime + usage.ru_stime)
    row.peak_bytes = max(row.peak_bytes, usage.ru_maxrss * 1024)


def drop_pages(store: Path) -> None:
    """So that the next reader has to read from the disk."""
    for path in store.rglob("*.parquet"):
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def table(rows: list[dict[str, Any]]) -> output.Table:
    heads = ("question", "cold", "warm", "middle half", "CPU seconds", "peak", "rounds")
    cells = [
        (
            row["question"],
            f"{row['cold']['median']:.2f} s",
            f"{row['warm']['median']:.2f} s",
            half(row["warm"]),
            f"{row['cpu_seconds']['median']:.2f}",
            f"{row['peak_bytes'] / MB:.0f} MB",
            str(row["rounds"]),
        )
        for row in rows
    ]
    return output.Table(heads, cells)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--deaths", type=int, default=1_000_000, help="how many (default 1,000,000)")
    parser.add_argument("--rounds", type=int, default=3, help="of each question (default 3)")
    parser.add_argument("--quick", action="store_true", help="20,000 deaths, one round")
    parser.add_argument("--directory", metavar="DIR", help="where the store is written for a while")
    output.add_arguments(parser)
    return parser.parse_args()


def main() -> int:
    given = arguments()
    deaths, rounds = (20_000, 1) if given.quick else (given.deaths, max(given.rounds, 1))
    with tempfile.TemporaryDirectory(prefix="pytracer-bench-", dir=given.directory) as name:
        progress(f"writing {deaths:,} deaths")
        Fleet(deaths, deaths // 5).write(Store(name))
        store = Path(name)
        nbytes = sum(path.stat().st_size for path in store.rglob("*.parquet"))
        rows = [Row(question) for question in QUESTIONS]
        for turn in range(rounds):
            for row in rows:
                progress(f"round {turn + 1}/{rounds}: {row.question}")
                for cold in (True, False):
                    ask(store, row, deaths, cold=cold)
    progress("")
    documents = [row.document() for row in rows]
    where = {
        **machine(),
        "load": f"{os.getloadavg()[0]:.1f}",
        "deaths": f"{deaths:,}",
        "store": f"{nbytes / MB:.0f} MB",
    }
    output.deliver("history", given, where, {"rows": documents}, [table(documents)])
    return 0


if __name__ == "__main__":
    sys.exit(main())
