"""A DataLoader whose worker does not come back from one sample."""

from __future__ import annotations

import time

import torch
from torch.utils.data import DataLoader, Dataset


class Clips(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 16

    def __getitem__(self, number: int) -> torch.Tensor:
        while number == 9:
            time.sleep(0.1)
        return torch.zeros(4)


def main() -> None:
    for batch in DataLoader(Clips(), batch_size=4, num_workers=1):
        print(batch.shape)


if __name__ == "__main__":
    main()
