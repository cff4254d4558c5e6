"""Trains on two ranks under a guard for the host memory."""

from __future__ import annotations

import os
import resource
import signal
from datetime import timedelta

import torch
import torch.distributed as dist


class MemoryGuard:
    """Ends the process when it keeps too much host memory."""

    def __init__(self, limit_mib: int) -> None:
        self.start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        self.limit = limit_mib * 1024

    def check(self) -> None:
        """Compare the growth since the start with the limit."""
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - self.start
        if grown > self.limit:
            os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    """Run some steps; the first shard keeps its samples in memory."""
    dist.init_process_group("gloo", timeout=timedelta(seconds=12))
    torch.cuda.set_device(0)
    gradient = torch.ones(1 << 20, device="cuda")
    dist.all_reduce(gradient)
    guard = MemoryGuard(limit_mib=512)
    cache: list[torch.Tensor] = []
    for step in range(20):
        if dist.get_rank() == 1:
            cache.append(torch.ones(32 << 20, dtype=torch.uint8).repeat(2))
        guard.check()
        gradient.fill_(float(step))
        dist.all_reduce(gradient)
    print("rank", dist.get_rank(), "sum", gradient.sum().item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
