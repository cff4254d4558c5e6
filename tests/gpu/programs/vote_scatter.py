"""Accumulate point features into voxels."""

from __future__ import annotations

import torch

GRID = 64
EXTENT = 10.0


def voxel_ids(points: torch.Tensor) -> torch.Tensor:
    """Return the flat voxel number of every point."""
    cell = (points / EXTENT * GRID).long()
    return cell[:, 0] * GRID * GRID + cell[:, 1] * GRID + cell[:, 2]


def pool(points: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Sum the weights of the points of every voxel."""
    ids = voxel_ids(points)
    volume = torch.zeros(GRID**3, device=points.device)
    volume.scatter_add_(0, ids, weights)
    return volume


def main() -> None:
    """Pool several sweeps of a sensor."""
    generator = torch.Generator().manual_seed(5)
    occupied: list[int] = []
    for sweep in range(6):
        points = torch.rand(200_000, 3, generator=generator) * EXTENT
        if sweep == 4:
            points[1234] = torch.tensor([EXTENT, 5.0, 5.0])
        weights = torch.rand(len(points), generator=generator)
        volume = pool(points.cuda(), weights.cuda())
        occupied.append(torch.count_nonzero(volume).item())
        print(f"sweep {sweep}: {occupied[-1]} occupied voxels")


if __name__ == "__main__":
    main()
