"""What does tracing cost? Ratios to untraced, per level and beside other tools, in processes that take turns.

    python benchmarks/overhead.py                     levels, then other tools: five minutes
    python benchmarks/overhead.py --quick             a minute or two
    python benchmarks/overhead.py --json              JSON on stdout
    python benchmarks/overhead.py --only levels       without other tools
    python benchmarks/overhead.py --workload "MLP step"

CPU time is that of the process and of its ended children; on a busy machine it is more reliable than the clock.
Only the clock includes stops from outside (py-spy). torch.profiler is started and stopped around each round,
outside of the time that is taken.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from support import turns
from support.training import steps_of
from support.turns import Workload
from support.variants import AGAIN, LEVELS, PEERS, PLAIN

# Iterations of one round: 10 to 30 ms untraced, but for the last.
COUNTS = {"tiny-op loop": 4000, "MLP step": 8, "transformer step": 1, "convolution step": 2, "DataLoader epoch": 1}


def workloads() -> dict[str, tuple[Workload, int]]:
    """Name -> (function of an iteration count, iterations of one round)."""
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset

    torch.manual_seed(0)
    a, b = torch.ones(4), torch.ones(4)

    def tiny_ops(count: int) -> None:
        for _ in range(count):
            a.add(b).mul(b)

    mlp = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
    layer = nn.TransformerEncoderLayer(128, 4, 256, dropout=0.0, batch_first=True)
    transformer = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    convolution = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(32, 10),
    )  # fmt: skip
    data = TensorDataset(torch.randn(512, 256))

    def epochs(count: int) -> None:
        for _ in range(max(count, 1)):
            for _batch in DataLoader(data, batch_size=8, num_workers=4):
                pass

    functions = {
        "tiny-op loop": tiny_ops,
        "MLP step": steps_of(mlp, torch.randn(64, 64)),
        "transformer step": steps_of(transformer, torch.randn(16, 64, 128)),
        "convolution step": steps_of(convolution, torch.randn(8, 3, 32, 32)),
        "DataLoader epoch": epochs,
    }
    return {name: (functions[name], count) for name, count in COUNTS.items()}


def main() -> int:
    parser = turns.parser("Ratios of traced to untraced time, with spread.", turns=40, generations=3, quick_turns=15)
    parser.add_argument("--only", choices=("levels", "tools"))
    parser.add_argument("--workload", action="append", choices=tuple(COUNTS), help="may be repeated")
    given = parser.parse_args()
    if given.worker:
        turns.set_threads()
        turns.serve(workloads(), given.switch)
        return 0
    variants, missing = turns.split(
        (PLAIN, AGAIN, *(LEVELS if given.only != "tools" else ()), *(PEERS if given.only != "levels" else ()))
    )
    names = given.workload or list(COUNTS)
    found = turns.compare(__file__, names, variants, *turns.turns_of(given), seldom=("DataLoader epoch",))
    turns.deliver("overhead", given, turns.rows(found, names, variants), variants, missing)
    return 0


if __name__ == "__main__":
    sys.exit(main())
