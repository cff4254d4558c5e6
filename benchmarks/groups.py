"""What do names of buckets, units and buffers cost? One process, no group: each row is one operation of a step.

    python benchmarks/groups.py            table
    python benchmarks/groups.py --json     JSON on stdout

Every row is timed with recording on and off in turns, as CPU time of the thread, and the smallest difference of many
rounds counts: a busy machine only adds to it. How often a step does it: ranges of FSDP2 about 8 times a unit and pass,
each of the two operators once a unit and pass, a communication hook once a bucket.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from support import output
from support.measuring import machine

ROUNDS, CALLS = 60, 300
PARAMETERS = 12


def rows() -> dict[str, Callable[[], Any]]:
    """What is timed, by name."""
    import torch
    import torch.distributed.fsdp  # defines the operators
    from torch.nn import Linear
    from torch.profiler import record_function

    assert torch.distributed.fsdp
    world = 2
    sizes = [64] * PARAMETERS
    gathered = torch.zeros(world, sum(sizes))
    whole = [torch.zeros(world, size) for size in sizes]
    gradients = [torch.zeros(8, 16) for _ in sizes]
    reduced = torch.zeros(world, 64 * PARAMETERS)
    linear, x = Linear(4, 4), torch.zeros(1, 4)

    def fsdp_range() -> None:
        with record_function("FSDP::all_gather (layers.0)"):
            pass

    def other_range() -> None:
        with record_function("forward of layers.0"):
            pass

    return {
        "a range of FSDP2's": fsdp_range,
        "any other range": other_range,
        f"copy-out of {PARAMETERS} parameters": lambda: torch.ops.fsdp.split_with_sizes_copy(
            gathered, sizes, dim=1, out=whole
        ),
        f"copy-in of {PARAMETERS} gradients": lambda: torch.ops.fsdp.chunk_cat(gradients, 0, world, out=reduced),
        "a forward without FSDP": lambda: linear(x),
    }


def timed(act: Callable[[], Any]) -> float:
    """ns of one call."""
    start = time.thread_time_ns()
    for _ in range(CALLS):
        act()
    return (time.thread_time_ns() - start) / CALLS


def hook_wrapper() -> float:
    """The overhead around a communication hook, in ns, without its call."""
    from pytracer.record.core import core
    from pytracer.record.torch import ddp

    class Bucket:
        def index(self) -> int:
            return 0

    def hook(state: Any, bucket: Any) -> None:
        pass

    wrapped, bucket = ddp._in_scope(core(), object(), hook), Bucket()
    return min(timed(lambda: wrapped(None, bucket)) - timed(lambda: hook(None, bucket)) for _ in range(ROUNDS))


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    output.add_arguments(parser)
    parser.add_argument("--quick", action="store_true", help="three rounds")
    asked = parser.parse_args()
    import torch

    import pytracer

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as directory:
        pytracer.enable(directory)
        acts = rows()
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in acts}
        for _ in range(3 if asked.quick else ROUNDS):
            for name, act in acts.items():
                on = timed(act)
                pytracer.disable()
                off = timed(act)
                pytracer.enable(directory)
                found[name].append((on, off))
        result = {
            name: {"off_ns": min(off for _, off in pairs), "added_ns": statistics.median(on - off for on, off in pairs)}
            for name, pairs in found.items()
        }
        result["around a communication hook"] = {"off_ns": 0.0, "added_ns": hook_wrapper()}
        pytracer.disable()
    cells = [(name, f"{row['off_ns']:.0f} ns", f"{row['added_ns']:.0f} ns") for name, row in result.items()]
    output.deliver("groups", asked, machine(), {"rows": result}, [output.Table(("", "off", "added"), cells)])


if __name__ == "__main__":
    main()
