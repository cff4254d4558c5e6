"""Predict nuclei density from label-free microscopy fields (one .npz archive per plate)."""
import argparse
import os
import tempfile

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


def write_plate(path, n_fields, size, seed):
    rng = np.random.default_rng(seed)
    fields = {}
    density = np.zeros(n_fields, dtype=np.float32)
    for i in range(n_fields):
        img = rng.normal(0.1, 0.02, (2, size, size)).astype(np.float32)
        n_cells = int(rng.integers(5, 60))
        ys, xs = rng.integers(8, size - 8, (2, n_cells))
        for y, x in zip(ys, xs):
            img[0, y - 4:y + 4, x - 4:x + 4] += 0.6
            img[1, y - 2:y + 2, x - 2:x + 2] += 0.3
        fields[f"field_{i:03d}"] = img
        density[i] = n_cells / 60.0
    np.savez(path, density=density, **fields)


class PlateDataset(Dataset):
    def __init__(self, path, crop=128):
        self.archive = np.load(path)
        self.density = torch.from_numpy(self.archive["density"])
        self.names = sorted(n for n in self.archive.files if n.startswith("field_"))
        self.crop = crop
        self.mean, self.std = self._channel_stats()

    def _channel_stats(self, n=8):
        stack = np.stack([self.archive[name] for name in self.names[:n]])
        mean = stack.mean(axis=(0, 2, 3), keepdims=True)[0]
        std = stack.std(axis=(0, 2, 3), keepdims=True)[0]
        return mean, std

    def __len__(self):
        return len(self.names)

    def __getitem__(self, idx):
        img = self.archive[self.names[idx]]
        img = (img - self.mean) / self.std
        top = (img.shape[1] - self.crop) // 2
        patch = img[:, top:top + self.crop, top:top + self.crop]
        return torch.from_numpy(np.ascontiguousarray(patch)), self.density[idx]


class DensityNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(2, 8, 5, stride=4), nn.ReLU(),
            nn.Conv2d(8, 16, 3, stride=2), nn.ReLU(),
            nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.head = nn.Linear(16, 1)

    def forward(self, x):
        return self.head(self.features(x)).squeeze(1)


def run_epoch(model, loader, optimizer):
    total, count = 0.0, 0
    for images, target in loader:
        loss = nn.functional.mse_loss(model(images), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item() * len(target)
        count += len(target)
    return total / count


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fields", type=int, default=48)
    parser.add_argument("--size", type=int, default=512)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)

    with tempfile.TemporaryDirectory() as root:
        plate = os.path.join(root, "plate_2024_11_07.npz")
        write_plate(plate, args.fields, args.size, seed=7)
        print(f"plate written, {os.path.getsize(plate) / 2**20:.0f} MiB")

        dataset = PlateDataset(plate)
        model = DensityNet()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

        quick = DataLoader(dataset, batch_size=8, shuffle=True)
        print(f"sanity epoch: loss {run_epoch(model, quick, optimizer):.4f}", flush=True)

        loader = DataLoader(dataset, batch_size=4, shuffle=True, num_workers=args.workers)
        for epoch in range(args.epochs):
            loss = run_epoch(model, loader, optimizer)
            print(f"epoch {epoch}: loss {loss:.4f}", flush=True)
        torch.save(model.state_dict(), os.path.join(root, "density.pt"))
        print("done")


if __name__ == "__main__":
    main()
