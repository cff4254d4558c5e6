"""Some epochs, each with new DataLoader workers. PROGRAM METHOD [kill]: a worker of the last one is killed."""

import os
import signal
import sys

import torch
from torch.utils.data import DataLoader, Dataset

EPOCHS, WORKERS = 3, 2


class Numbers(Dataset):
    def __init__(self, deadly: bool) -> None:
        self.deadly = deadly

    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.deadly and index == 9:
            os.kill(os.getpid(), signal.SIGKILL)
        return torch.full((4,), float(index))


if __name__ == "__main__":
    method, deadly = sys.argv[1], sys.argv[2:] == ["kill"]
    for epoch in range(EPOCHS):
        loader = DataLoader(
            Numbers(deadly and epoch == EPOCHS - 1), batch_size=4, num_workers=WORKERS, multiprocessing_context=method
        )
        total = sum(float(batch.sum()) for batch in loader)
        assert total == sum(range(16)) * 4
