"""What does tracing add to the start of a process? Milliseconds beyond the same start untraced, in turns.

    python benchmarks/startup.py                  a minute or two
    python benchmarks/startup.py --quick
    python benchmarks/startup.py --json           JSON on stdout

CPU time of the process (user and system), and time by the clock. pytracer is preloaded, as `pytracer run` does it for
each process of a job. For `import torch`, whose own time varies by more than that, also what pytracer's part in it
takes of its thread's CPU time. Bytecode is cached, as in an installed package.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from support import output
from support.measuring import half, machine, progress, spread
from support.variants import AGAIN, LEVELS, PLAIN, Variant, environment

from pytracer.launcher import run_directory

DEFAULT = next(level for level in LEVELS if level.level == "default")
PROGRAMS = {
    "no Python at all": ["/bin/true"],
    "a shell and 100 commands": ["bash", "-c", "for i in $(seq 100); do /bin/true; done"],
    "Python": [sys.executable, "-S", "-c", "pass"],
    "import torch": [sys.executable, "-c", "import torch"],
    "import torch.distributed": [sys.executable, "-c", "import torch.distributed as d; d.is_available()"],
}
INSIDE = [sys.executable, str(Path(__file__).resolve().parent / "support" / "inside_import.py")]
# Alternative tools; for Python programs only.
FAULTHANDLER = Variant("faulthandler", environment={"PYTHONFAULTHANDLER": "1"})


def once(command: list[str], given: dict[str, str]) -> tuple[float, float]:
    """(CPU ms, wall ms) of one process."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, env=given, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wall, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return cpu * 1000, wall * 1000


def measure_inside(rounds: int) -> list[dict[str, Any]]:
    """Rows: what, CPU time of the thread."""
    times: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="pytracer-bench-") as directory:
        for turn in range(-1, rounds):
            progress(f"inside import torch, turn {turn + 1}/{rounds}")
            given = environment(DEFAULT, Path(directory))
            done = subprocess.run(INSIDE, env=given, check=True, capture_output=True)
            if turn >= 0:
                taken = json.loads(done.stdout)
                for part, ms in {**taken, "both": sum(taken.values())}.items():
                    times.setdefault(part, []).append(ms)
    return [{"part": part, "cpu_ms": spread(each), "least_ms": min(each)} for part, each in times.items()]


def measure(turns: int) -> list[dict[str, Any]]:
    """Rows: program, variant, what it adds."""
    rows = []
    for program, command in PROGRAMS.items():
        rounds = turns if "torch" in program else turns * 4
        variants = [PLAIN, AGAIN, DEFAULT, *([FAULTHANDLER] if command[0] == sys.executable else [])]
        times: dict[str, list[tuple[float, float]]] = {variant.name: [] for variant in variants}
        with tempfile.TemporaryDirectory(prefix="pytracer-bench-") as directory:
            for turn in range(-1, rounds):  # the first turn warms files
                progress(f"{program}, turn {turn + 1}/{rounds}")
                for variant in random.sample(variants, len(variants)):
                    taken = once(command, environment(variant, Path(directory, variant.name.replace(" ", "-"))))
                    if turn >= 0:
                        times[variant.name].append(taken)
        for variant in variants[1:]:
            pairs = list(zip(times[variant.name], times[PLAIN.name], strict=True))
            rows.append(
                {
                    "program": program,
                    "variant": variant.name,
                    "extra_cpu_ms": spread([mine[0] - plain[0] for mine, plain in pairs]),
                    "extra_wall_ms": spread([mine[1] - plain[1] for mine, plain in pairs]),
                    "untraced_cpu_ms": spread([plain[0] for _, plain in pairs]),
                    "rounds": rounds,
                }
            )
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description="What tracing adds to the start of a process.")
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--quick", action="store_true", help="five turns")
    output.add_arguments(parser)
    given = parser.parse_args()
    os.environ.pop("PYTHONFAULTHANDLER", None)
    compileall.compile_dir(Path(run_directory.__file__).parents[1], quiet=1)
    turns = 5 if given.quick else given.turns
    rows, inside = measure(turns), measure_inside(turns * 2)
    progress("")
    heads = ("", "with", "extra CPU", "middle half", "extra wall", "middle half", "untraced CPU", "rounds")
    cells = [
        (
            row["program"],
            row["variant"],
            f"{row['extra_cpu_ms']['median']:.1f} ms",
            half(row["extra_cpu_ms"], 1),
            f"{row['extra_wall_ms']['median']:.1f} ms",
            half(row["extra_wall_ms"], 1),
            f"{row['untraced_cpu_ms']['median']:.1f} ms",
            str(row["rounds"]),
        )
        for row in rows
    ]
    parts = [
        (f"inside import torch: {row['part']}", f"{row['cpu_ms']['median']:.2f} ms", half(row["cpu_ms"], 2),
         f"{row['least_ms']:.2f} ms")
        for row in inside
    ]  # fmt: skip
    tables = [output.Table(heads, cells), output.Table(("", "CPU of the thread", "middle half", "least"), parts)]
    output.deliver("startup", given, machine(), {"rows": rows, "inside": inside}, tables)
    return 0


if __name__ == "__main__":
    sys.exit(main())
