"""What does tracing cost in memory and on disk? One process per variant, after the same training steps.

    python benchmarks/memory.py                   a minute or two
    python benchmarks/memory.py --json            JSON on stdout

Resident memory at the end, in parts (/proc/self/smaps_rollup): anonymous memory, which cannot be reclaimed, and mapped
files, of which the black box is one. The recording counts with the blocks that it takes on disk.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from support import output
from support.measuring import machine, progress, spread
from support.turns import set_threads, split
from support.variants import AGAIN, ANOMALY, FAULTHANDLER, LEVELS, MEMRAY, PLAIN, PROFILER, environment, switched_on

STEPS, QUICK_STEPS = 60, 20


def worker(steps: int, switch: str) -> None:
    """Trains, then prints its memory, in KiB."""
    set_threads()
    import torch
    from torch import nn

    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    optimizer, inputs = torch.optim.AdamW(model.parameters(), lr=1e-4), torch.randn(8, 32, 64)
    around = switched_on(switch)
    with around():
        for _ in range(steps):
            optimizer.zero_grad()
            model(inputs).square().mean().backward()
            optimizer.step()
        lines = Path("/proc/self/smaps_rollup").read_text(encoding="ascii").splitlines()[1:]
    held = {line.split(":")[0]: int(line.split()[1]) for line in lines}
    print(json.dumps({"rss_kib": held["Rss"], "anonymous_kib": held["Anonymous"]}))


def measure(steps: int, rounds: int) -> tuple[list[dict[str, Any]], list[str]]:
    """Rows by variant, and what could not be measured."""
    variants, missing = split((PLAIN, AGAIN, *LEVELS, FAULTHANDLER, PROFILER, ANOMALY, MEMRAY))
    found: dict[str, list[dict[str, int]]] = {variant.name: [] for variant in variants}
    for number in range(rounds):
        for variant in variants:
            progress(f"round {number + 1}/{rounds}: {variant.name}")
            with tempfile.TemporaryDirectory(prefix="pytracer-bench-") as directory:
                before = [*variant.command, str(Path(directory, "out"))] if variant.command else []
                command = [sys.executable, *before, __file__, "--worker", str(steps), "--switch", variant.switch]
                given = environment(variant, Path(directory))
                done = subprocess.run(command, env=given, check=True, capture_output=True, text=True)
                boxes = sum(path.stat().st_blocks // 2 for path in Path(directory).glob("boxes/*"))
                found[variant.name].append({**json.loads(done.stdout.splitlines()[-1]), "box_kib": boxes})
    rows = []
    for variant in variants:
        mine, plain = found[variant.name], found[PLAIN.name]
        row: dict[str, Any] = {"variant": variant.name, "box_kib": spread([one["box_kib"] for one in mine])}
        for name in ("rss_kib", "anonymous_kib"):
            row[name] = spread([one[name] for one in mine])
            row[f"extra_{name}"] = row[name]["median"] - spread([one[name] for one in plain])["median"]
        rows.append(row)
    return rows, missing


def main() -> int:
    parser = argparse.ArgumentParser(description="Memory and disk that tracing takes.")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="one round, fewer steps")
    output.add_arguments(parser)
    parser.add_argument("--worker", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--switch", default="", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        worker(given.worker, given.switch)
        return 0
    steps, rounds = (QUICK_STEPS, 1) if given.quick else (STEPS, given.rounds)
    rows, missing = measure(steps, rounds)
    progress("")
    heads = ("", "resident", "more", "anonymous", "more", "black box")
    cells = [
        (
            row["variant"],
            _mib(row["rss_kib"]["median"]),
            _mib(row["extra_rss_kib"]),
            _mib(row["anonymous_kib"]["median"]),
            _mib(row["extra_anonymous_kib"]),
            _mib(row["box_kib"]["median"]),
        )
        for row in rows
    ]
    notes = [f"{steps} transformer steps, {rounds} rounds", *(f"Not measured: {line}" for line in missing)]
    document = {"steps": steps, "rows": rows, "missing": missing}
    output.deliver("memory", given, machine(), document, [output.Table(heads, cells)], notes)
    return 0


def _mib(kib: float) -> str:
    return f"{kib / 1024:.1f} MiB"


if __name__ == "__main__":
    sys.exit(main())
