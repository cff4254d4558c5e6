"""Embed tokens with a vocabulary that is split over two ranks."""

from __future__ import annotations

import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

VOCABULARY, WIDTH = 32_000, 256


class ShardedEmbedding(nn.Module):
    """One rank's part of the embedding table."""

    def __init__(self, rank: int, world: int) -> None:
        super().__init__()
        self.rows = VOCABULARY // world
        self.start = rank * self.rows
        self.weight = nn.Parameter(torch.randn(self.rows + 1, WIDTH, device="cuda"), requires_grad=False)
        self.weight[self.rows].zero_()

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the sum of all ranks' rows."""
        local = tokens - self.start
        foreign = local >= self.rows
        rows = F.embedding(local.masked_fill(foreign, self.rows), self.weight)
        dist.all_reduce(rows)
        return rows


def main() -> None:
    """Embed a few batches."""
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.cuda.set_device(0)
    torch.manual_seed(rank)
    embedding = ShardedEmbedding(rank, world)
    generator = torch.Generator().manual_seed(5)
    for step in range(3):
        tokens = torch.randint(0, VOCABULARY, (2, 64), generator=generator).cuda()
        rows = embedding(tokens)
        print(f"rank {rank} step {step} mean {rows.mean().item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
