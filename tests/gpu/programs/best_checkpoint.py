"""Trains on two ranks and reports the mean loss."""

from __future__ import annotations

from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor, nn


def mean_over_ranks(value: Tensor) -> float:
    """Return the mean of a value over all ranks."""
    total = value.detach().clone()
    dist.all_reduce(total)
    return total.item() / dist.get_world_size()


def average_gradients(model: nn.Module) -> None:
    """Average the gradients over the ranks."""
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= dist.get_world_size()


def main() -> None:
    """Train and report the loss from time to time."""
    dist.init_process_group("gloo", timeout=timedelta(seconds=8))
    torch.cuda.set_device(0)
    torch.manual_seed(0)
    model = nn.Linear(64, 1).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(6):
        inputs = torch.randn(32, 64, device="cuda")
        loss = model(inputs).square().mean()
        optimizer.zero_grad()
        loss.backward()
        average_gradients(model)
        optimizer.step()
    if dist.get_rank() == 0:
        print("final loss", mean_over_ranks(loss))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
