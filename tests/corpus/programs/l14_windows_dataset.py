import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset


class WindowDataset(Dataset):
    """Sliding windows over many sensor channels; the array is there for the quick statistics."""

    def __init__(self, n_steps=400_000, n_channels=8, window=64, seed=0):
        gen = torch.Generator().manual_seed(seed)
        self.series = torch.randn(n_steps, n_channels, generator=gen).cumsum(0).mul_(0.01)
        self.array = self.series.numpy()
        self.window = window

    def __len__(self):
        return len(self.series) // self.window - 1

    def __getitem__(self, i):
        start = i * self.window
        return self.series[start:start + self.window], self.series[start + self.window]


class Forecaster(nn.Module):
    def __init__(self, n_channels=8, hidden=24):
        super().__init__()
        self.rnn = nn.GRU(n_channels, hidden, batch_first=True)
        self.out = nn.Linear(hidden, n_channels)

    def forward(self, x):
        return self.out(self.rnn(x)[0][:, -1])


def channel_report(dataset, title):
    lo, hi = np.percentile(dataset.array[::100], [5, 95], axis=0)
    print(f"{title}: mean {dataset.array.mean():.4f} spread {np.mean(hi - lo):.4f}", flush=True)


def train_epoch(model, loader, opt):
    total = 0.0
    for step, (x, y) in enumerate(loader):
        loss = nn.functional.l1_loss(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        total += loss.item()
        if step == 40:
            break
    return total / (step + 1)


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    dataset = WindowDataset()
    channel_report(dataset, "before training")
    loader = DataLoader(dataset, batch_size=32, shuffle=True, num_workers=1, multiprocessing_context="spawn")
    model = Forecaster()
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(2):
        print(f"epoch {epoch} l1 {train_epoch(model, loader, opt):.4f}", flush=True)
        channel_report(dataset, f"after epoch {epoch}")


if __name__ == "__main__":
    main()
