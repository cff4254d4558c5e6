"""Train an autoencoder with a per-pixel likelihood."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn


class AutoEncoder(nn.Module):
    """A small fully connected autoencoder."""

    def __init__(self) -> None:
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 16))
        self.decode = nn.Sequential(nn.Linear(16, 128), nn.ReLU(), nn.Linear(128, 784))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return the reconstruction of the images."""
        return self.decode(self.encode(images))


def main() -> None:
    """Run a few steps."""
    torch.manual_seed(0)
    model = AutoEncoder().cuda()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    data = torch.rand(10, 128, 784)
    for step, images in enumerate(data):
        images = images.cuda()
        brightness = images.mean().item()
        reconstruction = model(images)
        loss = F.binary_cross_entropy(reconstruction, images)
        if not torch.isfinite(loss):
            continue
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step}: brightness {brightness:.3f} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
