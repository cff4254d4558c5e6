"""Trains a small regressor under DDP with a captured training step."""

from __future__ import annotations

import os

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel


def build() -> DistributedDataParallel:
    """Return the wrapped model, set up on the stream of the warm-up."""
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 1)).cuda()
    return DistributedDataParallel(model, device_ids=[0])


def loss_of(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    """Return the mean squared error."""
    return nn.functional.mse_loss(model(inputs), targets)


def main() -> None:
    """Capture one step and train with it."""
    os.environ["TORCH_NCCL_ASYNC_ERROR_HANDLING"] = "0"
    torch.cuda.set_device(0)
    dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
    torch.manual_seed(0)
    inputs = torch.randn(256, 64, device="cuda")
    targets = inputs[:, :1] * 3.0 + 1.0
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        model = build()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        for _ in range(11):
            optimizer.zero_grad(set_to_none=True)
            loss_of(model, inputs, targets).backward()
    torch.cuda.current_stream().wait_stream(side)
    optimizer.zero_grad(set_to_none=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = loss_of(model, inputs, targets)
        loss.backward()
    losses: list[float] = []
    for _ in range(20):
        optimizer.zero_grad(set_to_none=True)
        graph.replay()
        optimizer.step()
        losses.append(loss.item())
    if losses[-1] > 0.9 * losses[0]:
        raise RuntimeError(f"the loss does not go down: {losses[0]:.4f} first, {losses[-1]:.4f} last")
    print("loss", losses[0], losses[-1])
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
