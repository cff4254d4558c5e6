"""What do names cost? Creating a model, an optimizer's step, an update of the tensors' addresses, naming all again.

    python benchmarks/names.py                 table
    python benchmarks/names.py --tensors 1000  another size of the model

One process: with names and without them (the hooks taken out and put back) take turns, so that the rest of the
recording is the same on both sides.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from support import output
from support.measuring import machine, spread

ROUNDS = 15


def middle(values: list[float]) -> float:
    """Their median."""
    return spread(values)["median"]


def median_of(act: Callable[[], Any], rounds: int = ROUNDS) -> float:
    """Median processor time of a call, in us: other programs do not count."""
    times = []
    for _ in range(rounds):
        start = time.thread_time_ns()
        act()
        times.append((time.thread_time_ns() - start) / 1000)
    return middle(times)


def measure(tensors: int) -> list[tuple[str, str]]:
    """The rows of the table."""
    import torch

    import pytracer
    from pytracer.record.core import core
    from pytracer.record.torch import names

    pytracer.enable(tempfile.mkdtemp(prefix="pytracer-bench-"))
    torch.set_num_threads(1)

    def model() -> torch.nn.Module:
        return torch.nn.Sequential(*(torch.nn.Linear(8, 8) for _ in range(tensors // 2)))

    box = core()

    def without(act: Callable[[], Any]) -> float:
        names.uninstall()
        try:
            return median_of(act, 1)
        finally:
            names.install(box, [])

    made: dict[bool, list[float]] = {True: [], False: []}
    for _ in range(ROUNDS):
        made[True].append(median_of(model, 1))
        made[False].append(without(model))
    net = model()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-4, foreach=True)
    for parameter in net.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()

    def steps() -> None:
        for _ in range(20):
            optimizer.step()

    steps()
    stepped: dict[bool, list[float]] = {True: [], False: []}
    for _ in range(2 * ROUNDS):
        optimizer.step()  # names everything, once after the hooks were restored
        stepped[True].append(median_of(steps, 1) / 20)
        stepped[False].append(without(steps) / 20)
    looks = [box.held.pytracer_refresh_names() / 1000 for _ in range(ROUNDS)]
    recorder = names._recorder
    assert recorder is not None
    again = median_of(lambda: recorder._note_all(optimizer))
    cache = torch.ones(3)
    named = median_of(lambda: [pytracer.name(cache, "cache") for _ in range(1000)]) / 1000
    count = sum(1 for _ in net.parameters())
    with_made, without_made = middle(made[True]), middle(made[False])
    with_step, without_step = middle(stepped[True]), middle(stepped[False])
    slower = f"{with_made / 1000:.1f} ms, without names {without_made / 1000:.1f} ms"
    ratio = f"{with_step:.0f} us, without names {without_step:.0f} us"
    share = "at most 1 part in 1000 of the time"
    return [
        (f"making {count} parameters", f"{slower}: {(with_made - without_made) / count:.1f} us each"),
        (f"Adam's step, {count} parameters", f"{ratio}: x{with_step / without_step:.3f}"),
        (f"where {count} parameters and gradients lie", f"{middle(looks):.0f} us, {share}"),
        ("noting everything again, with two states each", f"{again / 1000:.1f} ms, {share}"),
        ("pytracer.name(tensor, text)", f"{named:.2f} us"),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tensors", type=int, default=1000, help="parameters of the model")
    parser.add_argument("--quick", action="store_true", help="200 parameters")
    output.add_arguments(parser)
    given = parser.parse_args()
    rows = measure(200 if given.quick else given.tensors)
    document = {"rows": [{"act": act, "cost": cost} for act, cost in rows]}
    output.deliver("names", given, machine(), document, [output.Table(("act", "cost"), rows)])
    return 0


if __name__ == "__main__":
    sys.exit(main())
