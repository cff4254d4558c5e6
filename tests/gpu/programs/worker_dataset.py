"""Loads samples with worker processes."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset


class Spectra(Dataset[Tensor]):
    """Random spectra, scaled with the statistics of the training set."""

    def __init__(self, mean: Tensor, scale: Tensor) -> None:
        self.mean = mean
        self.scale = scale

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> Tensor:
        spectrum = torch.randn(128, generator=torch.Generator().manual_seed(index))
        return (spectrum.to(self.mean.device) - self.mean) * self.scale


def main() -> None:
    """Sum the scaled spectra."""
    mean = torch.zeros(128, device="cuda")
    scale = torch.full((128,), 2.0, device="cuda")
    loader = DataLoader(Spectra(mean, scale), batch_size=8, num_workers=2, multiprocessing_context="fork")
    total = torch.zeros(128, device="cuda")
    for batch in loader:
        total += batch.sum(dim=0)
    print("total", total.norm().item())


if __name__ == "__main__":
    main()
