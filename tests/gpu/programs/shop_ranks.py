"""Train an item model on two shards of sessions."""

from __future__ import annotations

import random

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

ROWS, LENGTH = 64, 20


def sessions(rank: int, steps: int) -> list[list[list[str]]]:
    """Return this rank's batches of sessions."""
    source = random.Random(rank)
    batches = []
    for step in range(steps):
        newest = 500 + step * (10 if rank == 0 else 60)
        names = [f"shop{rank}/{number}" for number in range(newest)]
        batches.append([source.choices(names, k=LENGTH) for _ in range(ROWS)])
    return batches


class SessionModel(nn.Module):
    """Mean of item vectors and a linear output."""

    def __init__(self, items: int) -> None:
        super().__init__()
        self.items = nn.Embedding(items, 64)
        self.output = nn.Linear(64, 1)

    def forward(self, session: torch.Tensor) -> torch.Tensor:
        """Return one logit per session."""
        vectors = self.items(session)
        return self.output(vectors.mean(1)).squeeze(1)


def main() -> None:
    """Train for some steps with averaged gradients."""
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.cuda.set_device(0)
    torch.manual_seed(0)
    batches = sessions(rank, steps=12)
    number: dict[str, int] = {}
    for item in (item for batch in batches for session in batch for item in session):
        number.setdefault(item, len(number))
    items = [len(number)]
    dist.broadcast_object_list(items, src=0)
    model = SessionModel(items[0]).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for batch in batches:
        session = torch.tensor([[number[item] for item in row] for row in batch]).cuda()
        bought = torch.rand(ROWS).round().cuda()
        loss = F.binary_cross_entropy_with_logits(model(session), bought)
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= world
        optimizer.step()
    print(f"rank {rank}: last loss {losses[-1]:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
