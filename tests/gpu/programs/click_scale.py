"""Train a click model with inputs scaled by running statistics."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

WARMUP = 100


class RunningScale:
    """Exponential averages of the mean and spread of each column."""

    def __init__(self, columns: int, rate: float = 0.05) -> None:
        self.mean = torch.zeros(columns, device="cuda")
        self.spread = torch.ones(columns, device="cuda")
        self.rate = rate

    def update(self, rows: torch.Tensor) -> None:
        """Take the rows of one batch into account."""
        self.mean.lerp_(rows.mean(0), self.rate)
        self.spread.lerp_(rows.std(0), self.rate)

    def __call__(self, rows: torch.Tensor) -> torch.Tensor:
        """Return scaled rows."""
        return (rows - self.mean) / self.spread.clamp(min=1e-3)


def main() -> None:
    """Run five epochs."""
    torch.manual_seed(2)
    features = 3 * torch.randn(2561, 32).cuda()
    clicked = (features[:, 0] + torch.randn(2561).cuda() > 0).float()
    model = nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 1), nn.Sigmoid()).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    scale = RunningScale(32)
    step, history = 0, []
    for _ in range(5):
        for rows, target in zip(features.split(64), clicked.split(64), strict=True):
            scale.update(rows)
            ready = scale(rows) if step >= WARMUP else rows
            chance = model(ready).squeeze(1)
            loss = F.binary_cross_entropy(chance, target)
            history.append(loss.item())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
    print(f"{step} steps, last loss {history[-1]:.4f}")


if __name__ == "__main__":
    main()
