"""How long does a crash take? From the fault to the complete report and to the end of the process, side by side.

    python benchmarks/crash_time.py                          table
    python benchmarks/crash_time.py --json                   JSON on stdout
    python benchmarks/crash_time.py --quick                  a minute: two rounds, 1 GB instead of 8
    python benchmarks/crash_time.py --only "100 threads"     one scenario; may be repeated

Each victim is a new Python process that stores the time, then writes to address 0. All ways of recording its death
take turns, in changing order. The memory is really written, in pages of 4 KiB unless the machine gives larger ones.

    report       the minimal report is complete: pytracer's steps up to the memory map are in its file; faulthandler's
                 last byte has been read from the pipe; the core file has been written
    all threads  pytracer has the stacks of all other threads, too
    ended        the parent's wait returned
    readable     a text with stacks has been printed: on faulthandler's stderr, by `pytracer run`, by `pystack core`
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from support import output, trial
from support.measuring import machine, progress, spread, version
from support.trial import Scenario, Trial, TrialError

MB, GB = 10**6, 10**9
LARGE = Scenario("8 GB", 8 * GB)
SCENARIOS = (Scenario("50 MB", 50 * MB), LARGE, Scenario("100 threads", 50 * MB, 100), Scenario("torch", 0, 1, True))
CORE = "core dump, pystack"
WAYS: dict[str, Callable[[Scenario], Trial]] = {
    "untraced": trial.untraced,
    "faulthandler": trial.faulthandler,
    "pytracer run": trial.pytracer_run,
    "pytracer, no launcher": trial.pytracer_environment,
    CORE: trial.core_and_pystack,
}
COLUMNS = {"report": "report", "all_threads": "all threads", "ended": "ended", "readable": "readable"}
SPARE_BYTES = 4 * GB  # left to the rest of the machine


@dataclass
class Row:
    """All trials of one scenario in one way; `skipped` is the reason why there are none, or not all."""

    scenario: str
    way: str
    trials: list[Trial] = field(default_factory=list)
    skipped: str = ""

    def document(self) -> dict[str, Any]:
        names = ("entered", *COLUMNS)
        values = {name: [one.moments[name] for one in self.trials if name in one.moments] for name in names}
        return {
            "scenario": self.scenario,
            "way": self.way,
            "rounds": len(self.trials),
            "ms": {name: spread(found) for name, found in values.items() if found},
            "resident_bytes": max((one.resident_bytes for one in self.trials), default=0),
            "kept_bytes": max((one.kept_bytes for one in self.trials), default=0),
            "incomplete_reports": sum(bool(one.missing) for one in self.trials),
            "threads_how": sorted({one.threads_how for one in self.trials if one.threads_how}),
            "fewest_stacks": min((one.stacks for one in self.trials), default=0),
            "skipped": self.skipped,
        }


def free_memory() -> int:
    for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0


def fitting(scenario: Scenario, free: int, quick: bool) -> Scenario:
    """The scenario, or a smaller one that fits the machine."""
    wanted = min(scenario.resident_bytes, GB) if quick else scenario.resident_bytes
    nbytes = min(wanted, max(free - SPARE_BYTES, 0) // GB * GB) if wanted >= GB else wanted
    if nbytes == scenario.resident_bytes:
        return scenario
    why = "quick" if quick and nbytes == wanted else f"{scenario.name} do not fit"
    return replace(scenario, name=f"{nbytes // GB} GB ({why})", resident_bytes=nbytes)


def obstacle(scenario: Scenario, way: str) -> str:
    """Why this cannot be measured here and now; "" when it can."""
    if scenario.torch and version("torch") == "none":
        return "torch is not installed"
    if scenario.resident_bytes >= GB and free_memory() < scenario.resident_bytes + SPARE_BYTES:
        return f"{free_memory() // MB} MB of memory are free"
    if scenario.resident_bytes == 0 and not scenario.torch:
        return "there is no room for 1 GB of memory"
    return core_obstacle(scenario) if way == CORE else ""


def core_obstacle(scenario: Scenario) -> str:
    """Why no core file would be written beside the victim, or could not be read."""
    import resource

    pattern = Path("/proc/sys/kernel/core_pattern").read_text(encoding="utf-8", errors="replace").strip()
    room = shutil.disk_usage(tempfile.gettempdir()).free
    needed = scenario.resident_bytes + SPARE_BYTES
    if trial.pystack_program() is None:
        return "pystack is not installed: pip install 'pytracer[stacks]'"
    if not pattern or pattern[0] == "|" or "/" in pattern:
        return f"core files go elsewhere: core_pattern is {pattern!r}"
    if 0 <= resource.getrlimit(resource.RLIMIT_CORE)[1] < needed:
        return "the hard limit of core files (`ulimit -Hc`) is too low"
    if room < needed:
        return f"{tempfile.gettempdir()} has {room // GB} GB of room, {needed // GB} GB are wanted"
    return ""


def rounds_of(scenario: Scenario, way: str, rounds: int) -> int:
    """Large victims take long, and their cores take longest."""
    if scenario.resident_bytes < GB:
        return rounds
    return 1 if way == CORE else max(rounds // 3, 1)


def measure(scenarios: list[Scenario], rounds: int) -> list[Row]:
    """All trials take turns: one round of each, then the next."""
    rows = {(one.name, way): Row(one.name, way) for one in scenarios for way in WAYS}
    for turn in range(rounds):
        for scenario in scenarios:
            for way in random.sample(list(WAYS), len(WAYS)):
                row = rows[scenario.name, way]
                if row.skipped or turn >= rounds_of(scenario, way, rounds):
                    continue
                progress(f"round {turn + 1}/{rounds}: {scenario.name}, {way}")
                row.skipped = obstacle(scenario, way)
                if not row.skipped:
                    row.trials.append(attempt(scenario, way))
    progress("")
    return list(rows.values())


def attempt(scenario: Scenario, way: str) -> Trial:
    try:
        return WAYS[way](scenario)
    except TrialError as error:
        sys.exit(f"crash_time: {scenario.name}, {way}: {error}")


def table(rows: list[dict[str, Any]]) -> output.Table:
    heads = ("ms after the fault", "way", *COLUMNS.values(), "kept", "rounds")
    cells = []
    for row in rows:
        if not row["rounds"]:
            continue
        kept = f"{row['kept_bytes'] / MB:.1f} MB" if row["kept_bytes"] >= MB else f"{row['kept_bytes']} bytes"
        scenario = f"{row['scenario']}, {resident(rows, row['scenario']) / MB:.0f} MB resident"
        moments = (cell(row["ms"].get(name)) for name in COLUMNS)
        cells.append((scenario, row["way"], *moments, kept, str(row["rounds"])))
    return output.Table(heads, cells)


def notes(rows: list[dict[str, Any]]) -> list[str]:
    """Notes below the table."""
    found = []
    for row in rows:
        which = f"{row['scenario']}, {row['way']}"
        if row["skipped"]:
            found.append(f"{which}: {'cut short' if row['rounds'] else 'skipped'}, {row['skipped']}")
        if row["incomplete_reports"]:
            found.append(f"{which}: {row['incomplete_reports']} of {row['rounds']} reports were incomplete")
        if row["threads_how"]:
            how = " or ".join(row["threads_how"])
            found.append(f"{which}: at least {row['fewest_stacks']} stacks of other threads, by {how}")
    return found


def resident(rows: list[dict[str, Any]], scenario: str) -> int:
    return max(int(row["resident_bytes"]) for row in rows if row["scenario"] == scenario)


def cell(values: dict[str, float] | None) -> str:
    """Median and the middle half, with the significant digits."""
    if values is None:
        return "-"
    digits = 2 if values["median"] < 10 else 1 if values["median"] < 100 else 0
    low, middle, high = (f"{values[name]:.{digits}f}" for name in ("low", "median", "high"))
    return middle if low == high else f"{middle} [{low}..{high}]"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9, help="of each; a third of them for 8 GB (default 9)")
    parser.add_argument("--only", action="append", choices=[one.name for one in SCENARIOS], help="this scenario only")
    parser.add_argument("--quick", action="store_true", help="two rounds, 1 GB instead of 8")
    output.add_arguments(parser)
    return parser.parse_args()


def main() -> int:
    given = arguments()
    chosen = [one for one in SCENARIOS if not given.only or one.name in given.only]
    scenarios = [fitting(one, free_memory(), given.quick) for one in chosen]
    rounds = 2 if given.quick else max(given.rounds, 1)
    pages = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    where = {
        **machine(),
        "pystack": trial.pystack_version(),
        "huge pages": pages.read_text(encoding="ascii").strip() if pages.exists() else "none",
        "load": f"{os.getloadavg()[0]:.1f}",
    }
    rows = [row.document() for row in measure(scenarios, rounds)]
    output.deliver("crash_time", given, where, {"rows": rows}, [table(rows)], [f"{rounds} rounds", *notes(rows)])
    return 0


if __name__ == "__main__":
    sys.exit(main())
