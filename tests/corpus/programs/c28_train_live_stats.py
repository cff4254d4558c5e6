"""Train on features that are normalized with running statistics kept up to date in the background."""
import threading
import time

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset


class RunningStats:
    def __init__(self, features):
        self.lock = threading.Lock()
        self.mean = torch.zeros(features)
        self.std = torch.ones(features)

    def update(self, data, chunks=50):
        with self.lock:
            for chunk in data.chunk(chunks):
                self.mean.lerp_(chunk.mean(0), 0.1)
                self.std.lerp_(chunk.std(0), 0.1)
                time.sleep(0.01)

    def apply(self, x):
        with self.lock:
            return (x - self.mean) / self.std


class SensorDataset(Dataset):
    def __init__(self, size=1000, features=16):
        gen = torch.Generator().manual_seed(0)
        self.data = torch.randn(size, features, generator=gen) * 3 + 1
        self.target = self.data.sum(1, keepdim=True)
        self.stats = RunningStats(features)

    def __len__(self):
        return len(self.data)

    def __getitem__(self, i):
        return self.stats.apply(self.data[i]), self.target[i]


class StatsUpdater(threading.Thread):
    def __init__(self, dataset, interval=0.05):
        super().__init__(name="stats-updater", daemon=True)
        self.dataset = dataset
        self.interval = interval

    def run(self):
        while True:
            self.dataset.stats.update(self.dataset.data)
            time.sleep(self.interval)


def main(epochs=2):
    torch.manual_seed(0)
    dataset = SensorDataset()
    StatsUpdater(dataset).start()
    loader = DataLoader(dataset, batch_size=50, shuffle=True, num_workers=2)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for epoch in range(epochs):
        total = 0.0
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch} loss {total / len(loader):.3f}", flush=True)


if __name__ == "__main__":
    main()
