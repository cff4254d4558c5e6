"""One record is on a file system that does not answer; the loader has a timeout."""

import time

import torch
from torch.utils.data import DataLoader, Dataset


class Records(Dataset):
    def __len__(self):
        return 32

    def read(self, number):
        if number == 13:
            time.sleep(60)
        return torch.full((4,), float(number))

    def __getitem__(self, number):
        return self.read(number)


def train(loader):
    for batch in loader:
        print(batch[:, 0])


train(DataLoader(Records(), batch_size=4, num_workers=2, timeout=6))
