"""Workers that take turns: one round of each variant, then the next round, in changing order.

Every generation starts new processes, because two runs of one program differ by memory layout alone. A second plain
worker, "untraced again", shows the noise by its ratio. Load of other machines on the same cores is excluded by
comparing undisturbed rounds, generation by generation; the medians, with all noise, are printed beside them.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support import output
from support.measuring import half, machine, progress, spread, undisturbed
from support.variants import PLAIN, Sampler, Variant, environment, switched_on, versions

Workload = Callable[[int], None]
ROOT = Path(__file__).resolve().parents[2]
SELDOM = 5  # long rounds are run in each fifth turn


@dataclass
class Round:
    """Nanoseconds per iteration: by the clock, and of CPU time, children that ended included."""

    wall_ns: float
    cpu_ns: float


def serve(workloads: dict[str, tuple[Workload, int]], switch: str, answer: bool = True) -> None:
    """In a worker: reads names of workloads from stdin, runs one round of each, answers with its times."""
    for function, count in workloads.values():
        function(max(count // 4, 2))
    around = switched_on(switch)
    if answer:
        print("ready", flush=True)
    for line in sys.stdin:
        function, count = workloads[line.strip()]
        wall, cpu = _timed(function, count, around)
        if answer:
            print(json.dumps([wall / count, cpu / count]), flush=True)


def _timed(function: Workload, count: int, around: Callable[[], AbstractContextManager[object]]) -> tuple[int, float]:
    with around():
        started, cpu = time.perf_counter_ns(), _cpu_seconds()
        function(count)
        return time.perf_counter_ns() - started, (_cpu_seconds() - cpu) * 1e9


def _cpu_seconds() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


class Worker:
    """The processes that measure one variant: one, or `ranks` of a job, of which the first answers."""

    def __init__(self, script: Path, variant: Variant, directory: Path, ranks: int, port: int) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.variant = variant
        self.processes = []
        for rank in range(ranks):
            job = {
                "RANK": rank,
                "LOCAL_RANK": rank,
                "WORLD_SIZE": ranks,
                "MASTER_PORT": port,
                "MASTER_ADDR": "127.0.0.1",
            }
            before = [*variant.command, str(directory / f"{rank}.out")] if variant.command else []
            command = [sys.executable, *before, str(script), "--worker", "--switch", variant.switch]
            given = environment(variant, directory)
            if ranks > 1:
                given |= {name: str(value) for name, value in job.items()}
            self.processes.append(
                subprocess.Popen(
                    command, env=given, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
                )
            )
        self.sampler: Sampler | None = None
        self.directory = directory

    def begin(self) -> None:
        """Waits until it has warmed up."""
        self._answer()
        if self.variant.sampler:
            self.sampler = Sampler(self.variant, self.processes[0].pid, self.directory / "samples")
            time.sleep(2)  # it reads the symbols of the process first
            self.sampler.go(False)

    def run(self, name: str) -> Round:
        """One round."""
        if self.sampler:
            self.sampler.go(True)
        for process in self.processes:
            assert process.stdin is not None
            process.stdin.write(name + "\n")
        result = Round(*json.loads(self._answer()))
        if self.sampler:
            self.sampler.go(False)
        return result

    def _answer(self) -> str:
        assert self.processes[0].stdout is not None
        line = self.processes[0].stdout.readline().strip()
        if not line:
            sys.exit(f"a worker of {self.variant.name} ended with status {self.processes[0].wait()}: see above")
        return line

    def close(self) -> None:
        """Ends it."""
        if self.sampler:
            self.sampler.close()
        for process in self.processes:
            assert process.stdin is not None
            process.stdin.close()
        for process in self.processes:
            process.wait()


@dataclass
class Comparison:
    """Rounds of one workload and variant, in the same order for all variants; a list for each generation."""

    generations: list[list[Round]] = field(default_factory=list)

    @property
    def rounds(self) -> list[Round]:
        """All of them."""
        return [one for generation in self.generations for one in generation]

    def undisturbed_cpu_ns(self) -> list[float]:
        """Of each generation."""
        return [undisturbed([one.cpu_ns for one in generation]) for generation in self.generations]


def compare(
    script: str,
    names: Sequence[str],
    variants: Sequence[Variant],
    generations: int,
    turns: int,
    ranks: int = 1,
    seldom: Collection[str] = (),
) -> dict[tuple[str, str], Comparison]:
    """(workload, variant) -> its rounds. `seldom`: workloads whose rounds are long."""
    found = {(name, variant.name): Comparison() for name in names for variant in variants}
    for generation in range(generations):
        with tempfile.TemporaryDirectory(prefix="pytracer-bench-") as directory:
            port = random.randint(20000, 50000)
            workers = [
                Worker(Path(script).resolve(), variant, Path(directory, str(number)), ranks, port + number)
                for number, variant in enumerate(variants)
            ]
            for worker in workers:
                progress(f"generation {generation + 1}/{generations}: starting {worker.variant.name}")
                worker.begin()
            for comparison in found.values():
                comparison.generations.append([])
            for turn in range(turns):
                for name in names:
                    if name in seldom and turn % SELDOM:
                        continue
                    progress(f"generation {generation + 1}/{generations}, turn {turn + 1}/{turns}: {name}")
                    for worker in random.sample(workers, len(workers)):
                        found[name, worker.variant.name].generations[-1].append(worker.run(name))
            for worker in workers:
                worker.close()
    progress("")
    return found


def rows(
    found: dict[tuple[str, str], Comparison], names: Sequence[str], variants: Sequence[Variant]
) -> list[dict[str, Any]]:
    """One row per workload and variant: ratios to the plain round of the same turn."""
    result = []
    for name in names:
        plain = found[name, PLAIN.name].rounds
        quiet = found[name, PLAIN.name].undisturbed_cpu_ns()
        for variant in variants:
            if variant == PLAIN:
                continue
            pairs = list(zip(found[name, variant.name].rounds, plain, strict=True))
            quiet_pairs = list(zip(found[name, variant.name].undisturbed_cpu_ns(), quiet, strict=True))
            result.append(
                {
                    "workload": name,
                    "variant": variant.name,
                    "ratio": spread([mine.wall_ns / other.wall_ns for mine, other in pairs]),
                    "cpu_ratio": spread([mine.cpu_ns / other.cpu_ns for mine, other in pairs]),
                    "quiet_cpu_ratios": sorted(mine / other for mine, other in quiet_pairs),
                    "extra_cpu_ns": statistics.median(mine - other for mine, other in quiet_pairs),
                    "untraced_cpu_ns": statistics.median(quiet),
                    "rounds": len(pairs),
                }
            )
    return result


def deliver(
    name: str,
    given: argparse.Namespace,
    rows: list[dict[str, Any]],
    variants: Sequence[Variant],
    missing: Sequence[str],
) -> None:
    """Table, JSON, docs."""
    heads = ("", "with", "CPU time", "by start", "median", "middle half", "wall", "extra CPU", "untraced")
    cells = [
        (
            row["workload"],
            row["variant"],
            f"{statistics.median(row['quiet_cpu_ratios']):.3f}x",
            f"{row['quiet_cpu_ratios'][0]:.3f} - {row['quiet_cpu_ratios'][-1]:.3f}",
            f"{row['cpu_ratio']['median']:.2f}x",
            half(row["cpu_ratio"]),
            f"{row['ratio']['median']:.2f}x",
            f"{row['extra_cpu_ns'] / 1000:.3f} us",
            f"{row['untraced_cpu_ns'] / 1000:.2f} us",
        )
        for row in rows
    ]
    notes = [f"{max(row['rounds'] for row in rows)} rounds", *(f"Not measured: {line}" for line in missing)]
    about = machine() | versions(tuple(variants))
    output.deliver(name, given, about, {"rows": rows, "missing": list(missing)}, [output.Table(heads, cells)], notes)


def parser(description: str, turns: int, generations: int, quick_turns: int) -> argparse.ArgumentParser:
    """The options of a benchmark whose workers take turns; read back by `turns_of`."""
    made = argparse.ArgumentParser(description=description)
    made.add_argument("--turns", type=int, default=turns, help="rounds of each variant per generation")
    made.add_argument("--generations", type=int, default=generations, help="how often processes are started anew")
    made.add_argument("--quick", action="store_true", help=f"one generation, {quick_turns} turns")
    made.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    made.add_argument("--switch", default="", help=argparse.SUPPRESS)
    made.set_defaults(quick_turns=quick_turns)
    output.add_arguments(made)
    return made


def turns_of(given: argparse.Namespace) -> tuple[int, int]:
    """Generations, and turns in each."""
    return (1, given.quick_turns) if given.quick else (given.generations, given.turns)


def split(variants: Sequence[Variant]) -> tuple[list[Variant], list[str]]:
    """Those that can run here, and why the others cannot."""
    return [v for v in variants if not v.missing], [f"{v.name}: {v.missing}" for v in variants if v.missing]


def set_threads() -> None:
    """One thread per process, by OMP_NUM_THREADS; and this tree's package, whatever is installed."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    import torch

    torch.set_num_threads(1)
