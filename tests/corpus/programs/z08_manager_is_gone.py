"""A cache lies in a manager's process, which ends with the function that made it; workers still ask for it."""

import multiprocessing

import torch
from torch.utils.data import DataLoader, Dataset


class Cached(Dataset):
    def __init__(self, cache):
        self.cache = cache

    def __len__(self):
        return 16

    def __getitem__(self, number):
        if number not in self.cache:
            self.cache[number] = [float(number)] * 4
        return torch.tensor(self.cache[number])


def dataset():
    with multiprocessing.Manager() as manager:
        data = Cached(manager.dict())
        print(data[0])
        return data


def train():
    for batch in DataLoader(dataset(), batch_size=4, num_workers=1):
        print(batch.shape)


if __name__ == "__main__":
    train()
