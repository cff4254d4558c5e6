"""Train a digit classifier on synthetic images."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

CLASSES = 100


def batches(count: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Make image batches; labels come from the annotation file."""
    generator = torch.Generator().manual_seed(1)
    made = []
    for number in range(count):
        images = torch.randn(64, 3, 32, 32, generator=generator)
        labels = torch.randint(0, CLASSES, (64,), generator=generator)
        if number % 4 == 3:
            labels[17] = 255
        made.append((images, labels))
    return made


def main() -> None:
    """Run a short training."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 32, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(512, CLASSES)
    ).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step, (images, labels) in enumerate(batches(8)):
        logits = model(images.cuda())
        loss = F.cross_entropy(logits, labels.cuda())
        print(f"step {step}: loss {loss.item():.4f}")
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
