"""What does tracing cost when nothing else differs? Recording is switched on and off within one process, in turns.

    python benchmarks/toggled.py                     a few minutes
    python benchmarks/toggled.py --quick             a first look
    python benchmarks/toggled.py --workload "MLP step"
    python benchmarks/toggled.py --write             writes the table into docs/cost.md

Two processes that run the same program differ by a few per cent, because their memory lies elsewhere: overhead.py,
which has no choice since it compares with other tools, cannot see 1 %. Here the same objects are used with and without
the hooks, and each round is compared with the untraced one beside it, by the thread's CPU time.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from overhead import Workload, workloads
from support import output, turns
from support.measuring import half, machine, progress, spread

OFF, AGAIN, LEVELS = "off", "off again", ("light", "default", "ops")
# Iterations of one round: 30 to 150 ms, so that a slow second of the machine's hits both rounds of a pair.
EMPTY = "torch.empty(64)"  # one storage, allocated and freed
COUNTS = {EMPTY: 60_000, "tiny-op loop": 20_000, "MLP step": 40, "transformer step": 4, "convolution step": 12}


def switch(variant: str, directory: str) -> None:
    """Recording at that level, or none."""
    import pytracer

    pytracer.disable()
    if variant not in (OFF, AGAIN):
        chosen: object = variant
        pytracer.enable(directory, level=chosen)  # type: ignore[arg-type]


def functions() -> dict[str, Workload]:
    """Name -> function of an iteration count."""
    import torch

    def storages(count: int) -> None:
        for _ in range(count):
            torch.empty(64)

    return {EMPTY: storages} | {name: function for name, (function, _) in workloads().items()}


def rounds_of(names: list[str], count: int) -> dict[tuple[str, str], list[float]]:
    """(workload, variant) -> nanoseconds of CPU time per iteration, round by round."""
    made = functions()
    found: dict[tuple[str, str], list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="pytracer-bench-") as directory:
        for name in names:
            function, iterations = made[name], COUNTS[name]
            function(iterations)
            for turn in range(count):
                progress(f"{name}: round {turn + 1}/{count}")
                order = (OFF, *LEVELS, AGAIN)
                for variant in order if turn % 2 else order[::-1]:
                    switch(variant, directory)
                    function(max(iterations // 8, 1))
                    before = time.thread_time_ns()
                    function(iterations)
                    found.setdefault((name, variant), []).append((time.thread_time_ns() - before) / iterations)
        switch(OFF, directory)
    progress("")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description="Ratios of traced to untraced CPU time within one process.")
    parser.add_argument("--rounds", type=int, default=60, help="rounds of each level")
    parser.add_argument("--quick", action="store_true", help="10 rounds")
    parser.add_argument("--workload", action="append", choices=tuple(COUNTS), help="may be repeated")
    output.add_arguments(parser)
    given = parser.parse_args()
    turns.set_threads()
    names, count = given.workload or list(COUNTS), 10 if given.quick else given.rounds
    found = rounds_of(names, count)
    rows, cells = [], []
    for name in names:
        plain = found[name, OFF]
        untraced = spread(plain)
        for variant in (AGAIN, *LEVELS):
            pairs = list(zip(found[name, variant], plain, strict=True))
            ratio = spread([mine / other for mine, other in pairs])
            extra = spread([mine - other for mine, other in pairs])
            least = min(found[name, variant]) / min(plain)
            rows.append(
                {"workload": name, "variant": variant, "cpu_ratio": ratio, "extra_cpu_ns": extra, "least_ratio": least,
                 "untraced_cpu_ns": untraced, "rounds": count}
            )  # fmt: skip
            cells.append(
                (name, variant, f"{ratio['median']:.3f}x", half(ratio, 3), f"{least:.3f}x",
                 f"{extra['median'] / 1000:.3f} us", f"{untraced['median'] / 1000:.2f} us")
            )  # fmt: skip
    heads = ("", "recording", "CPU time", "middle half", "quickest rounds", "extra", "off")
    output.deliver("toggled", given, machine(), {"rows": rows}, [output.Table(heads, cells)], [f"{count} rounds"])
    return 0


if __name__ == "__main__":
    sys.exit(main())
