"""Does a steady loop enter the kernel because it is traced? System calls and page faults of more iterations, counted.

    python benchmarks/steady.py                  half a minute; needs strace
    python benchmarks/steady.py --json           JSON on stdout

Each loop runs warm, then N times and 2N times: the start-up cost is in both, and the difference belongs to N
iterations. strace lists every system call of all threads; the loops are separated by a call with a file name that does
not exist. A hook that locks shows as futex calls as soon as threads contend.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from overhead import workloads
from storages import compile_loop
from support import output, turns
from support.measuring import machine, progress
from support.variants import LEVELS, PLAIN, Variant, environment

STORAGES = "storages, {} threads"
THREADS = (1, 2, 4)
NBYTES = 256
COUNTS = {**{STORAGES.format(n): 200_000 for n in THREADS}, "tiny-op loop": 100_000, "MLP step": 200}
VARIANTS = (PLAIN, *LEVELS)
_MARK = "/pytracer-mark/"
_CALL = re.compile(r"^(?:\d+ +)?(?:<\.\.\. )?([a-z_0-9]+)(?:\(| resumed)")


def worker(library: str) -> None:
    """Runs every loop N and 2N times, between marks; prints the page faults of each."""
    turns.set_threads()
    loop = ctypes.CDLL(library)

    def on_threads(threads: int) -> Callable[[int], None]:
        return lambda count: loop.pairs_on_threads(
            ctypes.c_uint32(threads), ctypes.c_uint64(count), ctypes.c_size_t(NBYTES)
        )

    functions = {STORAGES.format(n): on_threads(n) for n in THREADS}
    functions |= {name: function for name, (function, _) in workloads().items() if name in COUNTS}
    for name, function in functions.items():
        function(COUNTS[name])
        for times in (1, 2):
            mark = f"{_MARK}{name}/{times}/"
            os.access(f"{mark}begin", os.R_OK)
            before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
            function(times * COUNTS[name])
            faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
            os.access(f"{mark}end", os.R_OK)
            print(f"{name}\t{times}\t{faults}", flush=True)


def run(variant: Variant, library: Path, directory: Path) -> dict[str, dict[str, int]]:
    """Loop -> system calls by name and `page faults`, of N iterations."""
    log = directory / f"{variant.name}.strace"
    given = environment(variant, directory / variant.name)
    own = {name: value for name, value in given.items() if os.environ.get(name) != value}
    settings = [
        word for name, value in own.items() for word in ("-E", f"{name}={value}")
    ]  # strace itself stays untraced
    command = ["strace", "-f", "-qq", "-o", str(log), *settings, sys.executable, __file__, "--worker", str(library)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[tuple[str, int], Counter[str]] = {}
    for line in done.stdout.splitlines():
        name, times, faults = line.split("\t")
        found[name, int(times)] = Counter({"page faults": int(faults)})
    now: Counter[str] | None = None
    for line in log.read_text(encoding="utf-8", errors="replace").splitlines():
        at = line.find(_MARK)
        if at >= 0:
            name, times, what = line[at + len(_MARK) :].split('"')[0].rsplit("/", 2)
            now = found[name, int(times)] if what == "begin" else None
        elif now is not None and "resumed" not in line and (call := _CALL.match(line)):
            now[call[1]] += 1
    return {
        name: {what: found[name, 2][what] - found[name, 1][what] for what in {*found[name, 1], *found[name, 2]}}
        for name, _ in found
    }


def main() -> int:
    parser = argparse.ArgumentParser(description="System calls and page faults of a steady loop.")
    parser.add_argument("--quick", action="store_true", help="untraced and level default only")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    output.add_arguments(parser)
    given = parser.parse_args()
    if given.worker:
        worker(given.worker)
        return 0
    variants = [one for one in VARIANTS if not given.quick or one.level in ("", "default")]
    rows: list[dict[str, Any]] = []
    notes = [] if shutil.which("strace") else ["Not measured: strace is not installed"]
    with tempfile.TemporaryDirectory(prefix="pytracer-bench-") as place:
        library = compile_loop(Path(place))
        for variant in variants if not notes else ():
            progress(f"{variant.name}")
            for name, counted in run(variant, library, Path(place)).items():
                calls = {what: value for what, value in counted.items() if what != "page faults" and value}
                row = {"loop": name, "iterations": COUNTS[name], "variant": variant.name}
                rows.append({**row, "page_faults": counted["page faults"], "system_calls": calls})
    progress("")
    rows.sort(key=lambda row: list(COUNTS).index(row["loop"]))
    cells = [
        (
            row["loop"],
            str(row["iterations"]),
            row["variant"],
            ", ".join(f"{name} {value:+}" for name, value in sorted(row["system_calls"].items())) or "none",
            str(row["page_faults"]),
        )
        for row in rows
    ]
    heads = ("", "iterations", "with", "system calls", "page faults")
    output.deliver("steady", given, machine(), {"rows": rows}, [output.Table(heads, cells)], notes)
    return 0


if __name__ == "__main__":
    sys.exit(main())
