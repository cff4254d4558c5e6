"""Trains a classifier on two shards and averages the gradients."""

from __future__ import annotations

from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor, nn

CLASSES = 10


def load_shard(rank: int) -> tuple[Tensor, Tensor]:
    """Return the features and the labels of one shard."""
    generator = torch.Generator().manual_seed(rank)
    features = torch.randn(512, 32, generator=generator)
    labels = torch.arange(512) % CLASSES + rank
    return features.cuda(), labels.cuda()


def main() -> None:
    """Train for a few steps."""
    dist.init_process_group("gloo", timeout=timedelta(seconds=10))
    torch.cuda.set_device(0)
    torch.manual_seed(0)
    model = nn.Linear(32, CLASSES).cuda()
    for parameter in model.parameters():
        dist.broadcast(parameter.data, src=0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    features, labels = load_shard(dist.get_rank())
    for step in range(10):
        loss = nn.functional.cross_entropy(model(features), labels)
        print("step", step, "loss", loss.item())
        optimizer.zero_grad()
        loss.backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
