"""Collects compiled per-frame features of a clip."""

from __future__ import annotations

import torch
from torch import Tensor


@torch.compile(mode="reduce-overhead")
def frame_features(frame: Tensor) -> Tensor:
    """Return the features of one frame."""
    return torch.tanh(frame * 2.0 + 1.0)


@torch.no_grad()
def main() -> None:
    """Stack the features of all frames."""
    torch.manual_seed(0)
    frames = [torch.randn(256, 256, device="cuda") for _ in range(5)]
    features: list[Tensor] = []
    for frame in frames:
        features.append(frame_features(frame))
    clip = torch.stack(features)
    print("clip", clip.shape, clip.mean().item())


if __name__ == "__main__":
    main()
