import os
import shutil
import sys
import tempfile

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset


def prepare(root, n=40):
    os.makedirs(os.path.join(root, "train"))
    rng = np.random.default_rng(0)
    names = []
    for i in range(n):
        name = f"vessel_{i:03d}.npy"
        points = rng.standard_normal((100 if i == 2 else 256, 3)).astype(np.float32)
        np.save(os.path.join(root, "train", name), points)
        names.append((name, i % 2))
    return names


class IntrADataset(Dataset):
    def __init__(self, root, names, npoints=128):
        self.root, self.names, self.npoints = root, names, npoints

    def __len__(self):
        return len(self.names)

    def __getitem__(self, index):
        name, label = self.names[index]
        points = np.load(os.path.join(self.root, "train", name))
        try:
            choice = np.random.choice(len(points), self.npoints, replace=False)
            points = points[choice, :]
        except Exception:
            print("Error found!!!")
            sys.exit(1)
        return torch.from_numpy(points - points.mean(axis=0)), label


class PointNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.local = nn.Sequential(nn.Linear(3, 32), nn.ReLU(), nn.Linear(32, 64))
        self.head = nn.Linear(64, 2)

    def forward(self, points):
        return self.head(self.local(points).max(dim=1).values)


def train(root):
    torch.manual_seed(0)
    loader = DataLoader(IntrADataset(root, prepare(root)), batch_size=4, shuffle=False, num_workers=2)
    model = PointNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(2):
        for i, (points, labels) in enumerate(loader):
            loss = nn.functional.cross_entropy(model(points), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print(f"epoch {epoch} batch {i}: loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    root = tempfile.mkdtemp()
    try:
        train(root)
    finally:
        shutil.rmtree(root)
