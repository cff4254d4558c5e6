"""A dataset reads by a pool of threads, which its parent has used: DataLoader workers are forked."""

from concurrent.futures import ThreadPoolExecutor

import torch
from torch.utils.data import DataLoader, Dataset


class Tiles(Dataset):
    def __init__(self):
        self.pool = ThreadPoolExecutor(1)
        self.shape = self[0].shape

    def __len__(self):
        return 16

    def __getitem__(self, number):
        parts = [self.pool.submit(torch.full, (4,), float(number + part)) for part in range(2)]
        return torch.stack([part.result() for part in parts])


def train():
    for batch in DataLoader(Tiles(), batch_size=4, num_workers=1):
        print(batch.shape)


train()
