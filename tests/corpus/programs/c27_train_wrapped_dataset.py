"""Train a small classifier on a cached, weighted view of a synthetic corpus."""
import sys

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

# parse trees of long documents are nested very deeply
sys.setrecursionlimit(50000)


class Corpus(Dataset):
    def __init__(self, size=512, features=32, classes=4):
        gen = torch.Generator().manual_seed(0)
        self.x = torch.randn(size, features, generator=gen)
        self.y = torch.randint(0, classes, (size,), generator=gen)
        self.classes = classes

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i], self.y[i]


class CachedView(Dataset):
    """Keeps transformed samples and forwards everything else to the wrapped data set."""

    def __init__(self, base, transform=None):
        self.base = base
        self.transform = transform
        self.cache = {}

    def __getattr__(self, name):
        return getattr(self.base, name)

    def __len__(self):
        return len(self.base)

    def __getitem__(self, i):
        if i not in self.cache:
            x, y = self.base[i]
            self.cache[i] = (self.transform(x) if self.transform else x, y)
        return self.cache[i]


def normalize(x):
    return (x - x.mean()) / x.std()


def train(loader, classes, epochs=2):
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, classes))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(epochs):
        running = 0.0
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            running += loss.item()
        print(f"epoch {epoch}: loss {running / len(loader):.4f}", flush=True)


def main():
    dataset = CachedView(Corpus(), transform=normalize)
    print(f"{len(dataset)} samples, {dataset.classes} classes", flush=True)
    loader = DataLoader(dataset, batch_size=32, shuffle=True, num_workers=2,
                        multiprocessing_context="spawn")
    train(loader, dataset.classes)


if __name__ == "__main__":
    main()
