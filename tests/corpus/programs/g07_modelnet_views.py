"""Classify rendered views of 40 object categories stored in one packed file."""
import os
import tempfile

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIZE = 48
N_VIEWS = 12
VIEW = SIZE * SIZE
RECORD = N_VIEWS * VIEW + 1


def pack_views(path, n=1200, n_classes=40, seed=0):
    rng = np.random.default_rng(seed)
    with open(path, "wb") as f:
        for _ in range(n):
            f.write(rng.integers(0, 256, N_VIEWS * VIEW, dtype=np.uint8).tobytes())
            f.write(bytes([int(rng.integers(n_classes))]))


class ModelnetViews(Dataset):
    def __init__(self, path, transform=None):
        self.file = open(path, "rb")
        self.length = os.path.getsize(path) // RECORD
        self.transform = transform

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        self.file.seek(index * RECORD)
        views = []
        for _ in range(N_VIEWS):
            pixels = np.frombuffer(self.file.read(VIEW), dtype=np.uint8)
            view = torch.from_numpy(pixels.copy()).view(1, SIZE, SIZE).float() / 255
            views.append(self.transform(view) if self.transform is not None else view)
        label = self.file.read(1)[0]
        return torch.stack(views), label


class Normalize:
    def __init__(self, mean, std):
        self.mean, self.std = mean, std

    def __call__(self, image):
        return (image - self.mean) / self.std


class MultiViewNet(nn.Module):
    def __init__(self, n_classes=40):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, 3, stride=2, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
            nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        )
        self.classifier = nn.Linear(32, n_classes)

    def forward(self, x):
        batch, n_views = x.shape[:2]
        features = self.features(x.flatten(0, 1)).view(batch, n_views, -1)
        return self.classifier(features.max(dim=1).values)


def main():
    torch.manual_seed(0)
    path = os.path.join(tempfile.mkdtemp(), "modelnet40_views.bin")
    pack_views(path)
    dataset = ModelnetViews(path, Normalize(0.5, 0.25))
    loader = DataLoader(dataset, batch_size=16, shuffle=True, num_workers=2)
    model = MultiViewNet()
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for epoch in range(5):
        for i, (images, targets) in enumerate(loader):
            loss = criterion(model(images), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if i % 20 == 0:
                print(f"epoch {epoch} iter {i} loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
