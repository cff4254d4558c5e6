"""Read elevation profiles along recorded tracks from a raster that is kept on the GPU."""

from __future__ import annotations

import torch
from torch.utils.data import DataLoader, Dataset

DEVICE = torch.device("cuda")
NORTHINGS, EASTINGS = 900, 1600
CELL = 25.0


class Tracks(Dataset):
    """Tracks given by map coordinates in metres."""

    def __init__(self, count: int) -> None:
        """Lay out the tracks from west to east."""
        self.starts = torch.linspace(0.0, (EASTINGS - 80) * CELL, count)
        self.steps = torch.arange(64, dtype=torch.float32) * CELL

    def __len__(self) -> int:
        """Return the number of tracks."""
        return self.starts.numel()

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the x and y coordinates of one track."""
        x = self.starts[index] + self.steps
        y = torch.full_like(x, 300.0) + self.steps * 0.5
        return x, y


class ElevationCollate:
    """Sample the raster for a batch of tracks."""

    def __init__(self, raster: torch.Tensor) -> None:
        """Keep the raster."""
        self.raster = raster

    def __call__(self, items: list[tuple[torch.Tensor, torch.Tensor]]) -> torch.Tensor:
        """Return the heights along each track."""
        rows = torch.stack([x for x, _ in items]).div(CELL).long().to(DEVICE)
        cols = torch.stack([y for _, y in items]).div(CELL).long().to(DEVICE)
        return self.raster[rows, cols]


def main() -> None:
    """Print the climb of each batch of tracks."""
    torch.manual_seed(3)
    raster = torch.rand(NORTHINGS, EASTINGS, device=DEVICE) * 900.0
    loader = DataLoader(Tracks(256), batch_size=32, shuffle=False, collate_fn=ElevationCollate(raster))
    for number, profile in enumerate(loader):
        heights = profile.cpu()
        climb = heights.diff(dim=1).clamp(min=0).sum(dim=1)
        print(f"batch {number}: mean climb {climb.mean().item():.1f} m", flush=True)


if __name__ == "__main__":
    main()
