"""The dataset looks for *.png; the folder has *.jpg."""

import tempfile
from pathlib import Path

import torch
from torch.utils.data import DataLoader, Dataset


class Pictures(Dataset):
    def __init__(self, folder):
        self.paths = sorted(Path(folder).glob("*.png"))

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, number):
        return torch.frombuffer(bytearray(self.paths[number].read_bytes()), dtype=torch.uint8)


def train(folder):
    data = Pictures(folder)
    for batch in DataLoader(data, batch_size=4, shuffle=True):
        print(batch.shape)


with tempfile.TemporaryDirectory() as folder:
    for number in range(16):
        Path(folder, f"{number:03}.jpg").write_bytes(bytes(64))
    train(folder)
