"""Distil a wide teacher into a small student."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

CLASSES = 10
WIDTH = 8192


class Teacher(nn.Module):
    """A frozen wide network with shared weights."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.layers = layers
        self.weight = nn.Parameter(torch.randn(WIDTH, WIDTH, device="cuda") / WIDTH**0.5, requires_grad=False)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Apply the shared layer several times."""
        for _ in range(self.layers):
            hidden = hidden @ self.weight
        return hidden


def labels_of(step: int) -> torch.Tensor:
    """Return the labels of one batch."""
    labels = torch.arange(256) % CLASSES
    if step == 2:
        labels += 1
    return labels


def main() -> None:
    """Train the student for a few steps."""
    torch.manual_seed(0)
    teacher = Teacher(layers=8)
    student = nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.Linear(512, CLASSES)).cuda()
    optimizer = torch.optim.AdamW(student.parameters(), lr=1e-3)
    states = torch.randn(WIDTH, WIDTH, device="cuda")
    images = torch.randn(256, 256, device="cuda")
    targets = [labels_of(step).cuda() for step in range(5)]
    for step, target in enumerate(targets):
        hints = teacher(states)[:256, :CLASSES]
        logits = student(images)
        hard = F.cross_entropy(logits, target)
        soft = F.mse_loss(logits, hints)
        loss = hard + 0.1 * soft
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step}: {loss.item():.4f}")


if __name__ == "__main__":
    main()
