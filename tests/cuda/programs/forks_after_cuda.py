"""A DataLoader whose dataset keeps its samples on the device: its workers are forked after CUDA was used."""

from __future__ import annotations

import torch
from torch.utils.data import DataLoader, Dataset


class OnDevice(Dataset[torch.Tensor]):
    """Indexes a tensor on the device."""

    def __init__(self) -> None:
        self.samples = torch.ones(64, 8, device="cuda")

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.samples[index] * 2  # here


def main() -> None:
    """Two workers, which fork() makes."""
    for batch in DataLoader(OnDevice(), batch_size=8, num_workers=2, multiprocessing_context="fork"):
        batch.sum()


if __name__ == "__main__":
    main()
