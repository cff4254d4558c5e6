import os
import shutil
import tempfile

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


def prepare(path, scans=400):
    rng = np.random.default_rng(0)
    arrays = {f"scan_{i:04d}": rng.normal(size=(128, 128)).astype(np.float32) for i in range(scans)}
    np.savez(path, **arrays)


class Scans(Dataset):
    def __init__(self, path):
        self.data = np.load(path)
        self.names = self.data.files

    def __len__(self):
        return len(self.names)

    def __getitem__(self, index):
        scan = torch.from_numpy(self.data[self.names[index]])
        return scan.flatten(), scan.mean().reshape(1)


def train(path, epochs=20):
    loader = DataLoader(Scans(path), batch_size=8, shuffle=True, num_workers=2)
    model = nn.Linear(128 * 128, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    for epoch in range(epochs):
        for scans, targets in loader:
            loss = nn.functional.mse_loss(model(scans), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    torch.manual_seed(0)
    folder = tempfile.mkdtemp()
    try:
        prepare(os.path.join(folder, "scans.npz"))
        train(os.path.join(folder, "scans.npz"))
    finally:
        shutil.rmtree(folder)
