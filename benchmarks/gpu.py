"""What does tracing cost on a GPU? Steps, calls and start-up with recording switched on and off, in turns.

    python benchmarks/gpu.py                 two minutes, on a GPU that nothing else uses
    python benchmarks/gpu.py --quick         half a minute
    python benchmarks/gpu.py --write         writes the table into docs/measurements/cost.md

Steps and calls run within one process, as in toggled.py; steps are wall time between two waits for the device, calls
are the host's time alone. Start-up is that of processes, traced and not, in turns.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from support import output
from support.measuring import machine, progress
from toggled import AGAIN, OFF, switch

LEVELS = ("default", "ops")
STEPS, CALLS = 20, 2000  # of one slice
START = "import torch; torch.ones(8, device='cuda').sum().item()"
Act = Callable[[int], None]


def training_step() -> tuple[Act, Act]:
    """A transformer's training, step by step, and the same as one CUDA graph."""
    import torch

    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(512, 8, 2048, dropout=0.0, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 6, enable_nested_tensor=False).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, capturable=True)
    data = torch.randn(16, 256, 512, device="cuda")

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        model(data).square().mean().backward()
        optimizer.step()

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    optimizer.zero_grad(set_to_none=True)
    with torch.cuda.graph(graph):
        model(data).square().mean().backward()
        optimizer.step()

    def steps(count: int) -> None:
        for _ in range(count):
            step()
        torch.cuda.synchronize()

    def replays(count: int) -> None:
        for _ in range(count):
            graph.replay()
        torch.cuda.synchronize()

    return replays, steps


def calls() -> dict[str, Act]:
    """What the host does most often."""
    import torch

    static = torch.ones(1024, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        static * 2

    def allocations(count: int) -> None:
        for _ in range(count):
            torch.empty(1024, device="cuda")

    def launches(count: int) -> None:
        for _ in range(count):
            static.add_(1)
        torch.cuda.synchronize()

    def replays(count: int) -> None:
        for _ in range(count):
            graph.replay()
        torch.cuda.synchronize()

    return {"allocation and free": allocations, "operator": launches, "replay of a small CUDA graph": replays}


def in_turns(rounds: int, directory: str) -> list[dict[str, Any]]:
    """Rows of the table; captures happen while recording is on."""
    switch("default", directory)
    graphed, steps = training_step()
    chosen: list[tuple[str, Act, int]] = [
        ("transformer step as a CUDA graph", graphed, STEPS),
        ("transformer step", steps, STEPS),
        *((name, act, CALLS) for name, act in calls().items()),
    ]
    rows = []
    for name, act, count in chosen:
        act(count)
        found: dict[str, list[float]] = {}
        for turn in range(rounds):
            progress(f"{name}: round {turn + 1}/{rounds}")
            order = (OFF, *LEVELS, AGAIN)
            for variant in order if turn % 2 else order[::-1]:
                switch(variant, directory)
                act(2)
                begin = time.perf_counter_ns()
                act(count)
                found.setdefault(variant, []).append((time.perf_counter_ns() - begin) / count)
        rows += [row(name, variant, found[variant], found[OFF]) for variant in (AGAIN, *LEVELS)]
    return rows


def start_up(rounds: int, directory: str) -> list[dict[str, Any]]:
    """Processes that use CUDA for one operator."""
    plain = [sys.executable, "-c", START]
    traced = [sys.executable, "-m", "pytracer", "run", "--force", "-o", f"{directory}/start", "--", *plain]
    found: dict[str, list[float]] = {}
    for turn in range(rounds):
        progress(f"start-up: round {turn + 1}/{rounds}")
        order = ((OFF, plain), ("default", traced), (AGAIN, plain))
        for variant, command in order if turn % 2 else order[::-1]:
            begin = time.perf_counter_ns()
            subprocess.run(command, check=True, capture_output=True)
            found.setdefault(variant, []).append(time.perf_counter_ns() - begin)
    return [row("start-up with CUDA", variant, found[variant], found[OFF]) for variant in (AGAIN, "default")]


def poll(rounds: int) -> list[dict[str, Any]]:
    """The look once a second, beside a device that works: one call, and its share of the second."""
    import torch

    from pytracer.record.cuda import install

    hooks = install._hooks
    if hooks is None:
        return []
    streams = [torch.cuda.Stream() for _ in range(8)]
    for stream in streams:
        with torch.cuda.stream(stream):
            torch.empty(1 << 10, device="cuda").add_(1)
    times = []
    for _ in range(rounds * 10):
        begin = time.perf_counter_ns()
        hooks.ask_streams()
        times.append(time.perf_counter_ns() - begin)
    return [{"workload": "the look once a second", "variant": "default", "ratio": None, "spread": None,
             "off_ns": None, "extra_ns": statistics.median(times)}]  # fmt: skip


def row(name: str, variant: str, mine: list[float], plain: list[float]) -> dict[str, Any]:
    """Medians, and the ratio's spread from round to round."""
    ratios = sorted(one / other for one, other in zip(mine, plain, strict=True))
    return {
        "workload": name,
        "variant": variant,
        "ratio": statistics.median(mine) / statistics.median(plain),
        "spread": (ratios[len(ratios) // 10], ratios[-1 - len(ratios) // 10]),
        "off_ns": statistics.median(plain),
        "extra_ns": statistics.median(mine) - statistics.median(plain),
    }


def cells(item: dict[str, Any]) -> tuple[str, ...]:
    """A row of the text table."""
    spread = f"{item['spread'][0]:.3f} - {item['spread'][1]:.3f}" if item["spread"] else ""
    ratio = f"{item['ratio']:.3f}x" if item["ratio"] else ""
    off = f"{item['off_ns'] / 1000:.2f} us" if item["off_ns"] else ""
    return item["workload"], item["variant"], ratio, spread, f"{item['extra_ns'] / 1000:.2f} us", off


def main() -> int:
    parser = argparse.ArgumentParser(description="Ratios of traced to untraced time on a GPU.")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--quick", action="store_true", help="8 rounds")
    parser.add_argument("--no-start-up", action="store_true", help="leave the start of processes out")
    output.add_arguments(parser)
    given = parser.parse_args()
    import torch

    if not torch.cuda.is_available():
        print("left out: there is no GPU", file=sys.stderr)
        return 0
    rounds = 8 if given.quick else given.rounds
    with tempfile.TemporaryDirectory(prefix="pytracer-bench-") as directory:
        rows = [] if given.no_start_up else start_up(max(3, rounds // 4), directory)
        rows += in_turns(rounds, directory)
        switch("default", directory)
        rows += poll(rounds)
        switch(OFF, directory)
    about = {**machine(), "device": torch.cuda.get_device_name(0), "torch": torch.__version__}
    heads = ("", "recording", "time", "rounds, 10th to 90th of 100", "extra", "off")
    notes = [f"{rounds} rounds"]
    output.deliver("gpu", given, about, {"rows": rows}, [output.Table(heads, [cells(item) for item in rows])], notes)
    return 0


if __name__ == "__main__":
    sys.exit(main())
