"""Train a per-pixel material classifier on a hyperspectral cube kept on disk."""
import argparse
import os
import tempfile

import numpy as np
import torch
from torch import nn

BANDS = 48


class CubeStore:
    """BIP cube on disk (lines, samples, bands), float32, opened lazily."""

    def __init__(self, path, samples):
        self.path = path
        self.samples = samples
        self.lines = 0
        self.data = None

    def open(self):
        row = self.samples * BANDS * 4
        self.lines = os.path.getsize(self.path) // row
        self.data = np.memmap(self.path, dtype=np.float32, mode="r",
                              shape=(self.lines, self.samples, BANDS))
        return self

    def line(self, i):
        return self.data[i]


class SceneExporter:
    """Acquires lines from the (simulated) sensor and exports them."""

    def __init__(self, samples, seed=11):
        self.samples = samples
        self.rng = np.random.default_rng(seed)
        self.endmembers = self.rng.random((4, BANDS)).astype(np.float32)

    def export(self, path, lines):
        with open(path, "wb") as f:
            for _ in range(lines):
                kind = self.rng.integers(0, 4, self.samples)
                spectra = self.endmembers[kind]
                spectra = spectra + 0.05 * self.rng.standard_normal(spectra.shape).astype(np.float32)
                f.write(spectra.astype(np.float32).tobytes())
        return lines


class PixelNet(nn.Module):
    def __init__(self, hidden=64):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(BANDS, hidden), nn.ReLU(), nn.Linear(hidden, 4))

    def forward(self, x):
        return self.body(x)


def labels_for(pixels, endmembers):
    d = torch.cdist(pixels, endmembers)
    return d.argmin(dim=1)


def crop_scene(exporter, path, lines):
    """Re-export the scene without the turn at the end of the flight line."""
    kept = exporter.export(path, lines)
    print(f"scene re-exported with {kept} lines", flush=True)


def train_epoch(store, model, opt, endmembers, order):
    total, seen = 0.0, 0
    loss_fn = nn.CrossEntropyLoss()
    for i in order:
        pixels = torch.from_numpy(np.array(store.line(i)))
        target = labels_for(pixels, endmembers)
        loss = loss_fn(model(pixels), target)
        opt.zero_grad()
        loss.backward()
        opt.step()
        total += loss.item()
        seen += 1
    return total / max(seen, 1)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--lines", type=int, default=240)
    ap.add_argument("--keep", type=int, default=150)
    ap.add_argument("--samples", type=int, default=320)
    ap.add_argument("--epochs", type=int, default=4)
    args = ap.parse_args()

    torch.manual_seed(0)
    torch.set_num_threads(2)
    work = tempfile.mkdtemp(prefix="cube_")
    path = os.path.join(work, "scene.bip")
    exporter = SceneExporter(args.samples)
    exporter.export(path, args.lines)

    store = CubeStore(path, args.samples).open()
    endmembers = torch.from_numpy(exporter.endmembers)
    model = PixelNet()
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)

    for epoch in range(args.epochs):
        if epoch == 2:
            crop_scene(exporter, path, args.keep)
        loss = train_epoch(store, model, opt, endmembers, range(store.lines))
        print(f"epoch {epoch} lines {store.lines} loss {loss:.4f}", flush=True)
    torch.save(model.state_dict(), os.path.join(work, "pixelnet.pt"))
    print("done")


if __name__ == "__main__":
    main()
