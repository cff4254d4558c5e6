"""Data parallel training that stops as soon as the validation loss is good enough."""

from __future__ import annotations

from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

WIDTH = 512
BATCH = 256
EVERY = 4
TARGET = 0.05


@torch.no_grad()
def validate(model: nn.Module, inputs: torch.Tensor) -> float:
    """Return the loss on the validation set."""
    return (model(inputs) - inputs.flip(1)).square().mean().item()


def main() -> None:
    """Train until the first rank is content."""
    dist.init_process_group("gloo", timeout=timedelta(seconds=8))
    rank = dist.get_rank()
    torch.cuda.set_device(0)
    torch.manual_seed(59)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH)).cuda())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    generator = torch.Generator(device="cuda").manual_seed(rank)
    held_out = torch.randn(BATCH, WIDTH, device="cuda", generator=generator)
    stop = torch.zeros(1, device="cuda")
    for step in range(40):
        inputs = torch.randn(BATCH, WIDTH, device="cuda", generator=generator)
        loss = (model(inputs) - inputs.flip(1)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % EVERY == EVERY - 1 and rank == 0:
            score = validate(model.module, held_out)
            print(f"step {step}: validation {score:.4f}", flush=True)
            stop.fill_(float(score < TARGET))
            dist.broadcast(stop, src=0)
        if stop.item() > 0:
            break
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
