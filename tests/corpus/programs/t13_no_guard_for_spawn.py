"""A script without `if __name__ == "__main__"` uses workers that are spawned: each of them runs the script again."""

import torch
from torch.utils.data import DataLoader, TensorDataset


def loader():
    data = TensorDataset(torch.randn(64, 4))
    return DataLoader(data, batch_size=8, num_workers=2, multiprocessing_context="spawn")


def train(model):
    for (batch,) in loader():
        model(batch).sum().backward()


train(torch.nn.Linear(4, 1))
