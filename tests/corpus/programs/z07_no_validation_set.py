"""There is no split for validation, so the module returns no loader; the loop calls for it in every epoch."""

import torch
from torch.utils.data import DataLoader, TensorDataset


class Data:
    def __init__(self, lengths):
        rows = TensorDataset(torch.randn(32, 4))
        self.parts = torch.utils.data.random_split(rows, lengths)

    def train_loader(self):
        return DataLoader(self.parts[0], batch_size=8)

    def val_loader(self):
        if len(self.parts) > 1:
            return DataLoader(self.parts[1], batch_size=8)


def fit(model, data):
    for _ in range(2):
        for (batch,) in data.train_loader():
            model(batch).sum().backward()
        for (batch,) in data.val_loader():
            print(model(batch).mean())


fit(torch.nn.Linear(4, 1), Data([32]))
