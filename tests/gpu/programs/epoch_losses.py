"""Trains with one backward pass per epoch over the mean of the losses."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def batch_loss(model: nn.Module, inputs: Tensor) -> Tensor:
    """Return the reconstruction loss of one batch."""
    return nn.functional.mse_loss(model(inputs), inputs)


def main() -> None:
    """Train an autoencoder for two epochs."""
    torch.cuda.set_per_process_memory_fraction(0.02)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(512, 2048), nn.GELU(), nn.Linear(2048, 512)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(2):
        losses: list[Tensor] = []
        for _ in range(200):
            inputs = torch.randn(2048, 512, device="cuda")
            losses.append(batch_loss(model, inputs))
        total = torch.stack(losses).mean()
        optimizer.zero_grad()
        total.backward()
        optimizer.step()
        print("epoch", epoch, "loss", total.item())


if __name__ == "__main__":
    main()
