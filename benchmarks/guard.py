"""What does guard mode cost? Whole training steps against untraced ones, and one allocation and free by size.

    python benchmarks/guard.py                     both tables
    python benchmarks/guard.py --only steps        training steps only; or pairs
    python benchmarks/guard.py --json              JSON on stdout

Steps: one worker process per variant, preloaded as by `pytracer run --guard=...`, taking turns in changing order; every
generation starts new processes. "untraced again" is the noise. All variants train with the same seeds: their losses are
compared bit for bit. Pairs: `torch.empty(n)`, touched and freed, in one process per mechanism. Times are those of the
one working thread, on the processor and in the kernel: other load on the machine does not count.
"""

from __future__ import annotations

import argparse
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

from support import output
from support.measuring import half, machine, progress, spread

PLAIN, AGAIN, TRACED = "untraced", "untraced again", "traced"
GUARDS = ("sample:1000", "sample:100", "min-bytes:64K", "all", "all,mprotect")
SIZES = (256, 4096, 65536, 1 << 20, 8 << 20)
PAIRS = {PLAIN: None, "markers": "all", "mprotect": "all,mprotect"}
Step = Callable[[], Any]


def workloads() -> dict[str, tuple[Step, int]]:
    """Name -> (one step that returns its loss, steps of one round)."""
    import torch
    from torch import nn

    def training(model: nn.Module, inputs: Any, lr: float) -> Step:
        optimizer = torch.optim.AdamW(model.parameters(), lr=lr)

        def step() -> Any:
            optimizer.zero_grad()
            loss = model(inputs).square().mean()
            loss.backward()
            optimizer.step()
            return loss

        return step

    torch.manual_seed(0)
    mlp = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    transformer = nn.TransformerEncoderLayer(128, 4, 512, batch_first=True, dropout=0.1)
    conv = nn.Sequential(
        *(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU()),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10)),
    )
    return {
        "MLP step": (training(mlp, torch.randn(32, 64), 1e-3), 60),
        "transformer step": (training(transformer, torch.randn(8, 64, 128), 1e-3), 6),
        "conv step": (training(conv, torch.randn(8, 3, 32, 32), 1e-3), 12),
    }


def steps_worker() -> None:
    """Answers each name on stdin with ns per step and the last loss."""
    import torch

    torch.set_num_threads(1)
    known = workloads()
    for step, _ in known.values():
        step()
    print("ready", flush=True)
    for line in sys.stdin:
        step, count = known[line.strip()]
        started = time.thread_time_ns()
        for _ in range(count):
            loss = step()
        print((time.thread_time_ns() - started) / count, loss.item().hex(), flush=True)


def pairs_worker() -> None:
    """Answers each size on stdin with ns per allocation, touch and free."""
    import ctypes

    import torch

    torch.set_num_threads(1)
    print("ready", flush=True)
    for line in sys.stdin:
        size = int(line)
        count = max(20, min(1000, (64 << 20) // size))
        started = time.thread_time_ns()
        for _ in range(count):
            tensor = torch.empty(size, dtype=torch.uint8)
            ctypes.memset(tensor.data_ptr(), 1, size)
            del tensor
        print((time.thread_time_ns() - started) / count, "-", flush=True)


class Worker:
    """A process that measures one variant."""

    def __init__(self, how: str, guard: str | None, traced: bool, directory: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).resolve()), "--worker", how],
            env=environment(guard, traced, directory), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            bufsize=1,
        )  # fmt: skip
        self._answer()

    def ask(self, request: str) -> tuple[float, str]:
        assert self.process.stdin is not None
        self.process.stdin.write(request + "\n")
        ns, what = self._answer().split()
        return float(ns), what

    def _answer(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline().strip()
        if not line:
            sys.exit(f"guard: a worker ended with status {self.process.wait()}; see its message above")
        return line

    def close(self) -> None:
        self.process.communicate()


def environment(guard: str | None, traced: bool, directory: Path) -> dict[str, str]:
    """As `pytracer run --guard=WORDS` would set it; plain for untraced ones."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("PYTRACER_", "LD_PRELOAD"))}
    if not traced:
        return plain
    from pytracer.launcher import run_directory

    (directory / run_directory.BOXES).mkdir(parents=True, exist_ok=True, mode=0o700)
    return run_directory.environment(run_directory.Run(directory, directory), "default", plain, guard=guard)


def check_guarded(directory: Path) -> None:
    """Fails when guard mode is not on: such numbers would be wrong."""
    from pytracer.decode.recording.reader import read_box

    for path in (directory / "boxes").glob("*.blackbox"):
        guard = read_box(path, light=True).guard
        if guard is None or not guard.counts["guarded"]:
            sys.exit(f"guard: nothing was guarded in {path.name}; run `pytracer doctor`")


def measure_steps(generations: int, rounds: int) -> list[dict[str, Any]]:
    """One row per workload and variant."""
    variants = [PLAIN, AGAIN, TRACED, *GUARDS]
    names = ["MLP step", "transformer step", "conv step"]
    times: dict[tuple[str, str], list[float]] = {(name, variant): [] for name in names for variant in variants}
    losses: dict[tuple[str, str], list[str]] = {(name, variant): [] for name in names for variant in variants}
    for generation in range(generations):
        with tempfile.TemporaryDirectory(prefix="pytracer-bench-") as directory:
            workers = {}
            for number, variant in enumerate(variants):
                words = variant if variant in GUARDS else None
                workers[variant] = Worker("steps", words, variant not in (PLAIN, AGAIN), Path(directory, str(number)))
            for turn in range(rounds):
                progress(f"generation {generation + 1}/{generations}, round {turn + 1}/{rounds}")
                for name in names:
                    for variant in random.sample(variants, len(variants)):
                        ns, loss = workers[variant].ask(name)
                        times[name, variant].append(ns)
                        losses[name, variant].append(loss)
            for number, variant in enumerate(variants):
                workers[variant].close()
                if variant in GUARDS:
                    check_guarded(Path(directory, str(number)))
    rows = []
    for name in names:
        for variant in variants[1:]:
            ratios = [a / b for a, b in zip(times[name, variant], times[name, PLAIN], strict=True)]
            rows.append(
                {
                    "workload": name,
                    "variant": variant,
                    "ratio": spread(ratios),
                    "untraced_ns": spread(times[name, PLAIN]),
                    "rounds": len(ratios),
                    "same_losses": losses[name, variant] == losses[name, PLAIN],
                }
            )
    return rows


def measure_pairs(generations: int, rounds: int) -> list[dict[str, Any]]:
    """One row per size: ns of an allocation, touch and free, by mechanism."""
    times: dict[tuple[int, str], list[float]] = {(size, name): [] for size in SIZES for name in PAIRS}
    for generation in range(generations):
        with tempfile.TemporaryDirectory(prefix="pytracer-bench-") as directory:
            workers = {
                name: Worker("pairs", words, words is not None, Path(directory, name)) for name, words in PAIRS.items()
            }
            for turn in range(rounds):
                progress(f"pairs: generation {generation + 1}/{generations}, round {turn + 1}/{rounds}")
                for size in SIZES:
                    for name in random.sample(list(PAIRS), len(PAIRS)):
                        times[size, name].append(workers[name].ask(str(size))[0])
            for name, worker in workers.items():
                worker.close()
                if PAIRS[name] is not None:
                    check_guarded(Path(directory, name))
    return [{"nbytes": size, **{name: spread(times[size, name]) for name in PAIRS}} for size in SIZES]


def tables(steps: list[dict[str, Any]], pairs: list[dict[str, Any]]) -> list[output.Table]:
    """Those that were measured."""
    made = []
    if steps:
        cells = [
            (
                row["workload"],
                row["variant"],
                f"{row['ratio']['median']:.3f}x",
                half(row["ratio"], 3),
                f"{row['untraced_ns']['median'] / 1000:.1f} us",
                "identical" if row["same_losses"] else "DIFFER",
            )
            for row in steps
        ]
        heads = ("", "with", "ratio", "middle half", "untraced", f"losses of {steps[0]['rounds']} rounds")
        made.append(output.Table(heads, cells))
    if pairs:

        def cell(times: dict[str, float]) -> str:
            return f"{times['median'] / 1000:.1f} ({times['low'] / 1000:.1f} - {times['high'] / 1000:.1f}) us"

        rows = [[f"{row['nbytes']} bytes", *(cell(row[name]) for name in PAIRS)] for row in pairs]
        made.append(output.Table(["allocate, touch, free", *PAIRS], rows))
    return made


def main() -> int:
    parser = argparse.ArgumentParser(description="Cost of guard mode, with spread.")
    parser.add_argument("--only", choices=("steps", "pairs"))
    parser.add_argument("--rounds", type=int, default=5, help="rounds per generation")
    parser.add_argument("--generations", type=int, default=2, help="how often processes are started anew")
    parser.add_argument("--quick", action="store_true", help="one generation, three rounds")
    output.add_arguments(parser)
    parser.add_argument("--worker", choices=("steps", "pairs"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        {"steps": steps_worker, "pairs": pairs_worker}[given.worker]()
        return 0
    turns = (1, 3) if given.quick else (given.generations, given.rounds)
    steps = measure_steps(*turns) if given.only != "pairs" else []
    pairs = measure_pairs(*turns) if given.only != "steps" else []
    progress("")
    document = {"rows": steps, "pairs": pairs}
    output.deliver("guard", given, machine(), document, tables(steps, pairs), ["One thread, its processor time"])
    return 0


if __name__ == "__main__":
    sys.exit(main())
