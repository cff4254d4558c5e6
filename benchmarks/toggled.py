"""What does tracing cost when nothing else differs? Recording is switched on and off within one process, in turns.

    python benchmarks/toggled.py                     a few minutes
    python benchmarks/toggled.py --quick             a first look
    python benchmarks/toggled.py --workload "MLP step"
    python benchmarks/toggled.py --write             writes the table into docs/measurements/cost.md

Two processes that run the same program differ by a few per cent, because of their memory layout: overhead.py, which
needs them to compare with other tools, cannot resolve 1 %. Here the same objects are used with and without
the hooks.

Other machines that share the cores make most slices of time slower, by up to two thirds. The comparison therefore uses
CPU time of undisturbed slices, the 10th percentile of many short ones: in whole rounds of 50 ms two
untraced ones differed by 6 %, with this method by 0.5 %. The medians, with the noise, are printed beside them.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from overhead import workloads
from support import output, turns
from support.measuring import machine, progress, undisturbed
from support.training import join_alone, small_ddp, steps_of

OFF, AGAIN, LEVELS = "off", "off again", ("light", "default", "ops")
EMPTY = "torch.empty(64)"  # one storage, allocated and freed
DDP = "DDP step"  # of one rank, without waits for others; last, since a process group enables the recording of ranges
# Iterations of one slice: 2 ms, or one step.
COUNTS = {EMPTY: 3000, "tiny-op loop": 1000, "MLP step": 2, "transformer step": 1, "convolution step": 1, DDP: 1}
SLICES, PARTS = 6, 5  # slices of a variant in each round; parts of the run that are compared with each other


def switch(variant: str, directory: str) -> None:
    """Recording at that level, or none."""
    import pytracer

    pytracer.disable()
    if variant not in (OFF, AGAIN):
        chosen: object = variant
        pytracer.enable(directory, level=chosen)  # type: ignore[arg-type]


def function_of(name: str) -> turns.Workload:
    """A function of an iteration count."""
    import torch

    def storages(count: int) -> None:
        for _ in range(count):
            torch.empty(64)

    if name == EMPTY:
        return storages
    return ddp_steps() if name == DDP else workloads()[name][0]


def ddp_steps() -> turns.Workload:
    """The training of soak.py, without a DataLoader: one reduction a step, over gloo."""
    import torch

    join_alone()
    torch.manual_seed(0)
    return steps_of(small_ddp(), torch.randn(4, 8, 32))


def slices_of(names: list[str], rounds: int) -> dict[tuple[str, str], list[float]]:
    """(workload, variant) -> nanoseconds of CPU time per iteration, slice by slice."""
    found: dict[tuple[str, str], list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="pytracer-bench-") as directory:
        for name in names:
            function, iterations = function_of(name), COUNTS[name]
            function(iterations * 5)
            for turn in range(rounds):
                progress(f"{name}: round {turn + 1}/{rounds}")
                order = (OFF, *LEVELS, AGAIN)
                for variant in order if turn % 2 else order[::-1]:
                    switch(variant, directory)
                    function(iterations * 2)
                    times = found.setdefault((name, variant), [])
                    for _ in range(SLICES):
                        before = time.process_time_ns()
                        function(iterations)
                        times.append((time.process_time_ns() - before) / iterations)
        switch(OFF, directory)
    progress("")
    return found


def compared(mine: list[float], plain: list[float]) -> dict[str, Any]:
    """One row: ratios to the untraced slices, of all of them and of each part of the run."""
    parts = range(PARTS)
    return {
        "ratio": undisturbed(mine) / undisturbed(plain),
        "parts": sorted(undisturbed(_part(mine, at)) / undisturbed(_part(plain, at)) for at in parts),
        "median_ratio": statistics.median(mine) / statistics.median(plain),
        "extra_cpu_ns": undisturbed(mine) - undisturbed(plain),
        "untraced_cpu_ns": undisturbed(plain),
        "slices": len(mine),
    }


def _part(times: list[float], at: int) -> list[float]:
    return times[len(times) * at // PARTS : len(times) * (at + 1) // PARTS]


def cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    """A row of the text table."""
    parts = f"{row['parts'][0]:.3f} - {row['parts'][-1]:.3f}"
    extra, plain = f"{row['extra_cpu_ns'] / 1000:.3f} us", f"{row['untraced_cpu_ns'] / 1000:.2f} us"
    return (row["workload"], row["variant"], f"{row['ratio']:.3f}x", parts, f"{row['median_ratio']:.3f}x", extra, plain)


def main() -> int:
    parser = argparse.ArgumentParser(description="Ratios of traced to untraced CPU time within one process.")
    parser.add_argument("--rounds", type=int, default=120, help="rounds of each level")
    parser.add_argument("--quick", action="store_true", help="10 rounds")
    parser.add_argument("--workload", action="append", choices=tuple(COUNTS), help="may be repeated")
    output.add_arguments(parser)
    given = parser.parse_args()
    turns.set_threads()
    names, count = given.workload or list(COUNTS), 10 if given.quick else given.rounds
    found = slices_of(names, count)
    rows = [
        {"workload": name, "variant": variant, **compared(found[name, variant], found[name, OFF])}
        for name in names
        for variant in (AGAIN, *LEVELS)
    ]
    heads = ("", "recording", "CPU time", "fifths of the run", "medians", "extra", "off")
    notes = [f"{count} rounds of {SLICES} slices each"]
    output.deliver(
        "toggled", given, machine(), {"rows": rows}, [output.Table(heads, [cells(row) for row in rows])], notes
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
