"""Spread batches over the workers' devices."""

from __future__ import annotations

import torch
from torch import nn

SETTINGS = {"workers": 2, "batch": 64}


def build(width: int) -> nn.Module:
    """Return a small regression model."""
    return nn.Sequential(nn.Linear(width, 256), nn.Tanh(), nn.Linear(256, 1))


def main() -> None:
    """Run one batch on every worker's device."""
    torch.manual_seed(0)
    model = build(128)
    batches = torch.randn(4, SETTINGS["batch"], 128)
    results: list[float] = []
    with torch.no_grad():
        for number, batch in enumerate(batches):
            device = torch.device("cuda", number % SETTINGS["workers"])
            inputs = batch.to(device)
            results.append(model.to(device)(inputs).mean().item())
            print(f"batch {number} on {device}: {results[-1]:.4f}")


if __name__ == "__main__":
    main()
