"""What does tracing cost a job of two ranks? Steps of DDP and of FSDP2 over gloo, in jobs that take turns.

    python benchmarks/distributed.py                  three minutes
    python benchmarks/distributed.py --quick          one
    python benchmarks/distributed.py --json           JSON on stdout

The time is that of rank 0, CPU time its own. torch's Flight Recorder is on by default, and "untraced" has it, too.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from support import turns
from support.training import steps_of
from support.turns import Workload
from support.variants import AGAIN, ANOMALY, FAULTHANDLER, LEVELS, NO_FLIGHT_RECORDER, PLAIN, PROFILER

COUNTS = {"DDP step": 3, "FSDP2 step": 1}


def workloads() -> dict[str, tuple[Workload, int]]:
    """Name -> (function of an iteration count, iterations of one round); the same calls on both ranks."""
    import torch
    from torch import nn
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.nn.parallel import DistributedDataParallel

    torch.manual_seed(0)
    inputs = torch.randn(32, 256)

    def model() -> nn.Sequential:
        return nn.Sequential(*[part for _ in range(6) for part in (nn.Linear(256, 256), nn.ReLU())])

    sharded = model()
    mesh = init_device_mesh("cpu", (2,))
    for part in sharded:
        if isinstance(part, nn.Linear):
            fully_shard(part, mesh=mesh)
    fully_shard(sharded, mesh=mesh)
    functions = {
        "DDP step": steps_of(DistributedDataParallel(model(), bucket_cap_mb=1), inputs),
        "FSDP2 step": steps_of(sharded, inputs),
    }
    return {name: (functions[name], count) for name, count in COUNTS.items()}


def worker(switch: str) -> None:
    """One rank."""
    turns.set_threads()
    import torch.distributed as dist

    dist.init_process_group("gloo")
    turns.serve(workloads(), switch, answer=dist.get_rank() == 0)
    dist.destroy_process_group()


def main() -> int:
    parser = turns.parser(
        "Ratios of traced to untraced time of a job of two ranks.", turns=40, generations=3, quick_turns=12
    )
    given = parser.parse_args()
    if given.worker:
        worker(given.switch)
        return 0
    variants, missing = turns.split((PLAIN, AGAIN, *LEVELS, NO_FLIGHT_RECORDER, FAULTHANDLER, PROFILER, ANOMALY))
    found = turns.compare(__file__, list(COUNTS), variants, *turns.turns_of(given), ranks=2)
    turns.deliver("distributed", given, turns.rows(found, list(COUNTS), variants), variants, missing)
    return 0


if __name__ == "__main__":
    sys.exit(main())
