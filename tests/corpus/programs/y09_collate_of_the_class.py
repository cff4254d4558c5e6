"""The method that collates is taken from the class, not from the dataset."""

import torch
from torch.utils.data import DataLoader, Dataset


class Features(Dataset):
    def __len__(self):
        return 16

    def __getitem__(self, number):
        return torch.full((4,), float(number))

    def custom_collate(self, batch):
        return torch.stack(batch)


def train():
    for batch in DataLoader(Features(), batch_size=4, collate_fn=Features.custom_collate):
        print(batch.shape)


train()
