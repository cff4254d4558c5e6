"""Fit house prices with a small network on the whole table."""

from __future__ import annotations

import torch
from torch import nn

ROWS, FEATURES = 480_000, 24


def load_table() -> tuple[torch.Tensor, torch.Tensor]:
    """Return the features and the prices."""
    generator = torch.Generator().manual_seed(11)
    features = torch.randn(ROWS, FEATURES, generator=generator)
    prices = features @ torch.randn(FEATURES, generator=generator) + 3.0
    return features.cuda(), prices.cuda()


def huber(prediction: torch.Tensor, target: torch.Tensor, delta: float = 1.0) -> torch.Tensor:
    """Return the mean Huber loss."""
    residual = prediction - target
    small = 0.5 * residual.square()
    large = delta * (residual.abs() - 0.5 * delta)
    return torch.where(residual.abs() <= delta, small, large).mean()


def main() -> None:
    """Train for a few steps."""
    torch.manual_seed(0)
    features, prices = load_table()
    model = nn.Sequential(nn.Linear(FEATURES, 64), nn.ReLU(), nn.Linear(64, 1)).cuda()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(5):
        optimizer.zero_grad()
        loss = huber(model(features), prices)
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
