"""What does tracing cost? Ratios of traced to untraced time, per level, measured side by side.

    python benchmarks/overhead.py                     table
    python benchmarks/overhead.py --json              JSON on stdout
    python benchmarks/overhead.py --how toggle        one process, enable() and disable() between rounds

`processes` (default) keeps one worker per variant alive, preloaded as by `pytracer run`, and lets them take turns:
one round of each, then the next round, in changing order; every generation starts new processes, because two runs
of one program differ by memory layout alone. "untraced again" is a second plain worker: its ratio is the noise.
With `toggle`, "untraced" means disabled: whatever stays behind after disable() is not counted.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from support.measuring import machine, progress, spread

PLAIN, AGAIN = "untraced", "untraced again"
LEVELS = ("light", "default", "ops")
Workload = Callable[[int], None]


def workloads() -> dict[str, tuple[Workload, int]]:
    """Name -> (function of an iteration count, iterations of one round)."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    a, b = torch.ones(4), torch.ones(4)

    def tiny_ops(count: int) -> None:
        for _ in range(count):
            a.add(b).mul(b)

    mlp = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
    layer = nn.TransformerEncoderLayer(128, 4, 256, dropout=0.0, batch_first=True)
    transformer = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def training(model: nn.Module, shape: tuple[int, ...]) -> Workload:
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
        inputs = torch.randn(shape)

        def steps(count: int) -> None:
            for _ in range(count):
                optimizer.zero_grad()
                model(inputs).square().mean().backward()
                optimizer.step()

        return steps

    return {
        "tiny-op loop": (tiny_ops, 20_000),
        "MLP step": (training(mlp, (64, 64)), 40),
        "transformer step": (training(transformer, (16, 64, 128)), 4),
    }


def worker() -> None:
    """Serves one variant: reads `run NAME`, `enable LEVEL` or `disable` from stdin, answers with a line."""
    import torch

    torch.set_num_threads(1)
    known = workloads()
    for function, count in known.values():
        function(max(count // 4, 2))
    directory = tempfile.mkdtemp(prefix="pytracer-bench-") if "--toggle" in sys.argv else ""
    print("ready", flush=True)
    for line in sys.stdin:
        word, _, argument = line.strip().partition(" ")
        if word == "run":
            function, count = known[argument]
            started = time.perf_counter_ns()
            function(count)
            print((time.perf_counter_ns() - started) / count, flush=True)
            continue
        import pytracer

        if word == "enable":
            level: Any = argument
            pytracer.enable(directory, level=level)
        else:
            pytracer.disable()
        print("done", flush=True)


class Worker:
    """A process that measures one variant."""

    def __init__(self, environment: dict[str, str], *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).resolve()), "--worker", *arguments],
            env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
        )  # fmt: skip
        self._answer()

    def ask(self, request: str) -> str:
        assert self.process.stdin is not None
        self.process.stdin.write(request + "\n")
        return self._answer()

    def _answer(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline().strip()
        if not line:
            sys.exit(f"overhead: a worker ended with status {self.process.wait()}; see its message above")
        return line

    def close(self) -> None:
        self.process.communicate()


def environment(variant: str, directory: str) -> dict[str, str]:
    """As `pytracer run --level VARIANT` would set it; plain for the untraced ones."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("PYTRACER_", "LD_PRELOAD"))}
    if variant in (PLAIN, AGAIN):
        return plain
    from pytracer.record import launch

    path = Path(directory, variant)
    (path / launch.BOXES).mkdir(parents=True, exist_ok=True, mode=0o700)
    return launch.environment(launch.Run(path, path), variant, plain)


def measure(
    how: str, variants: list[str], names: list[str], generations: int, rounds: int
) -> dict[tuple[str, str], list[float]]:
    """(workload, variant) -> ns per iteration, one value per round, in the same order for all variants."""
    times: dict[tuple[str, str], list[float]] = {(name, variant): [] for name in names for variant in variants}
    for generation in range(generations):
        with tempfile.TemporaryDirectory(prefix="pytracer-bench-") as directory:
            if how == "toggle":
                shared = Worker(environment(PLAIN, directory), "--toggle")
                workers = dict.fromkeys(variants, shared)
            else:
                workers = {variant: Worker(environment(variant, directory)) for variant in variants}
            for turn in range(rounds):
                progress(f"generation {generation + 1}/{generations}, round {turn + 1}/{rounds}")
                for name in names:
                    for variant in random.sample(variants, len(variants)):
                        if how == "toggle" and variant in LEVELS:
                            workers[variant].ask(f"enable {variant}")
                        times[name, variant].append(float(workers[variant].ask(f"run {name}")))
                        if how == "toggle" and variant in LEVELS:
                            workers[variant].ask("disable")
            for one in set(workers.values()):
                one.close()
    return times


def main() -> int:
    parser = argparse.ArgumentParser(description="Ratios of traced to untraced time, with spread.")
    parser.add_argument("--how", choices=("processes", "toggle"), default="processes")
    parser.add_argument("--level", action="append", choices=LEVELS, help="measure this level only; may be repeated")
    parser.add_argument("--rounds", type=int, default=12, help="rounds per generation")
    parser.add_argument("--generations", type=int, default=3, help="how often processes are started anew")
    parser.add_argument("--json", action="store_true", help="JSON on stdout")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--toggle", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        worker()
        return 0
    variants = [PLAIN, AGAIN, *(given.level or LEVELS)]
    names = ["tiny-op loop", "MLP step", "transformer step"]
    times = measure(given.how, variants, names, given.generations, given.rounds)
    progress("")
    rows: list[dict[str, Any]] = []
    for name in names:
        for variant in variants[1:]:
            ratios = [traced / plain for traced, plain in zip(times[name, variant], times[name, PLAIN], strict=True)]
            extra = [traced - plain for traced, plain in zip(times[name, variant], times[name, PLAIN], strict=True)]
            rows.append({"workload": name, "variant": variant, "ratio": spread(ratios), "extra_ns": spread(extra),
                         "untraced_ns": spread(times[name, PLAIN]), "rounds": len(ratios)})  # fmt: skip
    if given.json:
        document = {
            "schema": "pytracer-benchmark",
            "version": 1,
            "name": "overhead",
            "how": given.how,
            "machine": machine(),
            "rows": rows,
        }
        print(json.dumps(document, indent=2))
        return 0
    print(
        ", ".join(f"{key} {value}" for key, value in machine().items())
        + f"; one thread, {given.how}, {rows[0]['rounds']} rounds"
    )
    print(f"\n{'':<18}{'':<16}{'ratio':>7}  {'middle half':<15}{'extra per iteration':>20}{'untraced':>14}")
    for row in rows:
        ratio, plain = row["ratio"], row["untraced_ns"]["median"] / 1000
        half = f"{ratio['low']:.3f} - {ratio['high']:.3f}"
        extra_us = row["extra_ns"]["median"] / 1000
        print(
            f"{row['workload']:<18}{row['variant']:<16}{ratio['median']:>6.3f}x  {half:<15}"
            f"{extra_us:>17.3f} us{plain:>11.2f} us"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
