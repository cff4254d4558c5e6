"""Normalise point clouds and fill the feature cache in a background process."""
import os
import tempfile
from multiprocessing import Process

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


def load_volume(index, size=64):
    rng = np.random.default_rng(index)
    return rng.standard_normal((size, size, size))


def to_features(volume):
    grid = torch.from_numpy(volume).float()
    grid = (grid - grid.mean()) / grid.std()
    return torch.nn.functional.avg_pool3d(grid[None, None], 8)[0, 0]


def fill_cache(folder, indices):
    for index in indices:
        torch.save(to_features(load_volume(index)), os.path.join(folder, f"{index:04d}.pt"))
        print("cached volume", index, flush=True)


class CachedVolumes(Dataset):
    def __init__(self, folder):
        self.files = sorted(os.path.join(folder, f) for f in os.listdir(folder))

    def __len__(self):
        return len(self.files)

    def __getitem__(self, idx):
        return torch.load(self.files[idx]).flatten()


def main():
    sample = to_features(load_volume(0))
    print("feature shape", tuple(sample.shape), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        builder = Process(target=fill_cache, args=(folder, range(12)))
        builder.start()
        builder.join()
        loader = DataLoader(CachedVolumes(folder), batch_size=4)
        model = torch.nn.Linear(sample.numel(), 8)
        for batch in loader:
            print("code", model(batch).norm().item(), flush=True)


if __name__ == "__main__":
    main()
