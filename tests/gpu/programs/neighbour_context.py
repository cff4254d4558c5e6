"""Average the features of the nearest points with a Triton kernel."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

POINTS = 4096
NEIGHBOURS = 16
WIDTH = 64
NOT_FOUND = torch.iinfo(torch.int32).max


@triton.jit
def neighbour_mean_kernel(features, neighbours, output, count, slots: tl.constexpr, width: tl.constexpr):
    """Mean over the valid neighbours of one point."""
    point = tl.program_id(0)
    columns = tl.arange(0, width)
    total = tl.zeros((width,), dtype=tl.float32)
    found = 0.0
    for slot in range(slots):
        index = tl.load(neighbours + point * slots + slot).to(tl.int64)
        valid = index >= 0
        total += tl.load(features + index * width + columns, mask=valid & (columns < width), other=0.0)
        found += tl.where(valid, 1.0, 0.0)
    tl.store(output + point * width + columns, total / tl.maximum(found, 1.0), mask=point < count)


def search(points: torch.Tensor, radius: float) -> torch.Tensor:
    """Return the indices of the nearest points within a radius."""
    distance, index = torch.cdist(points, points).topk(NEIGHBOURS, dim=1, largest=False)
    return torch.where(distance <= radius, index, NOT_FOUND).to(torch.int32)


def context(features: torch.Tensor, neighbours: torch.Tensor) -> torch.Tensor:
    """Return the mean of every point's neighbours."""
    output = torch.empty_like(features)
    grid = (features.shape[0],)
    neighbour_mean_kernel[grid](features, neighbours, output, features.shape[0], NEIGHBOURS, WIDTH)
    return output


def main() -> None:
    """Smooth the features of one cloud with several radii."""
    torch.manual_seed(47)
    points = torch.rand(POINTS, 3, device="cuda")
    features = torch.randn(POINTS, WIDTH, device="cuda")
    for radius in (2.0, 0.5, 0.05):
        smoothed = context(features, search(points, radius))
        print(f"radius {radius}: variance {smoothed.var().item():.4f}")


if __name__ == "__main__":
    main()
