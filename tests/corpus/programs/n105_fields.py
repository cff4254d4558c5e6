"""Short-range forecast of temperature fields from a memory mapped archive."""
import argparse
import os
import tempfile

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset


def write_archive(path, hours, lat, lon, seed=0):
    rng = np.random.default_rng(seed)
    yy, xx = np.meshgrid(np.linspace(0, np.pi, lat), np.linspace(0, 2 * np.pi, lon), indexing="ij")
    fields = np.empty((hours, lat, lon), dtype=np.float32)
    for hour in range(hours):
        daily = np.cos(2 * np.pi * hour / 24.0 - xx)
        fields[hour] = np.sin(yy) * 10 + 3 * daily + rng.normal(scale=0.2, size=(lat, lon))
    np.save(path, fields)


class FieldWindows(Dataset):
    """Windows of consecutive hours; the last hour of a window is the target."""

    def __init__(self, path, window, first, last):
        self.fields = np.load(path, mmap_mode="r")
        self.window = window
        self.first = first
        self.count = last - first - window
        self.cutout = 0
        self.rng = np.random.default_rng(1)
        sample = self.fields[first:last:7]
        self.mean = float(sample.mean())
        self.std = float(sample.std())

    def __len__(self):
        return self.count

    def enable_cutout(self, size):
        self.cutout = size

    def __getitem__(self, index):
        start = self.first + index
        block = torch.from_numpy(self.fields[start:start + self.window + 1])
        history, target = block[:-1], block[-1:]
        if self.cutout:
            top = int(self.rng.integers(0, history.shape[1] - self.cutout))
            left = int(self.rng.integers(0, history.shape[2] - self.cutout))
            history[:, top:top + self.cutout, left:left + self.cutout] = self.mean
        return (history - self.mean) / self.std, (target - self.mean) / self.std


class Forecaster(nn.Module):
    def __init__(self, window, width=8):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(window, width, 3, padding=1),
            nn.GELU(),
            nn.Conv2d(width, width, 3, padding=1),
            nn.GELU(),
            nn.Conv2d(width, 1, 1),
        )

    def forward(self, history):
        return history[:, -1:] + self.net(history)


def run_epoch(model, loader, optimizer=None):
    total = 0.0
    for history, target in loader:
        loss = (model(history) - target).pow(2).mean()
        if optimizer is not None:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        total += loss.item()
    return total / len(loader)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--hours", type=int, default=300)
    parser.add_argument("--window", type=int, default=6)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--cutout-from", type=int, default=2)
    parser.add_argument("--cutout-size", type=int, default=8)
    args = parser.parse_args()

    torch.manual_seed(0)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="fields_") as folder:
        path = os.path.join(folder, "t2m.npy")
        write_archive(path, args.hours, 32, 64)

        split = int(args.hours * 0.8)
        train_set = FieldWindows(path, args.window, 0, split)
        valid_set = FieldWindows(path, args.window, split, args.hours)
        train_loader = DataLoader(train_set, batch_size=16, shuffle=True)
        valid_loader = DataLoader(valid_set, batch_size=16)

        model = Forecaster(args.window)
        optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
        for epoch in range(args.epochs):
            if epoch == args.cutout_from:
                train_set.enable_cutout(args.cutout_size)
            train_loss = run_epoch(model, train_loader, optimizer)
            with torch.no_grad():
                valid_loss = run_epoch(model, valid_loader)
            print(f"epoch {epoch} train {train_loss:.4f} valid {valid_loss:.4f}", flush=True)


if __name__ == "__main__":
    main()
