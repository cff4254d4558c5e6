"""Spectral cubes: cache features in a file, train on them, then write a compact cache and score."""
import os
import numpy as np
import torch
import torch.nn as nn

ROOT = "/tmp/d74_cube_data"
BANDS = 64


class FeatureCache:
    def __init__(self, name):
        self.path = os.path.join(ROOT, name + ".f32")

    def write(self, array):
        with open(self.path, "wb") as f:
            f.write(np.ascontiguousarray(array, dtype=np.float32).tobytes())

    def open(self):
        rows = os.path.getsize(self.path) // (4 * BANDS)
        return np.memmap(self.path, dtype=np.float32, mode="r+", shape=(rows, BANDS))


def make_cube(rows, seed):
    rng = np.random.default_rng(seed)
    label = rng.integers(0, 4, rows)
    base = rng.normal(size=(4, BANDS))
    return (base[label] + rng.normal(size=(rows, BANDS))).astype(np.float32), label


class Pixels:
    def __init__(self, cache, label):
        self.data = torch.from_numpy(cache.open())
        self.label = torch.from_numpy(label)

    def batches(self, size):
        for lo in range(0, len(self.label), size):
            yield self.data[lo:lo + size], self.label[lo:lo + size]


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(BANDS, 32), nn.ReLU(), nn.Linear(32, 4))

    def forward(self, x):
        return self.net(x)


def train(model, pixels, epochs):
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(epochs):
        for x, y in pixels.batches(512):
            loss = nn.functional.cross_entropy(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
        print(f"epoch {epoch} loss {loss.item():.4f}", flush=True)


@torch.no_grad()
def score(model, pixels):
    hits = sum((model(x).argmax(1) == y).sum().item() for x, y in pixels.batches(512))
    return hits / len(pixels.label)


@torch.no_grad()
def hard_rows(model, pixels, keep):
    margin = []
    for x, _ in pixels.batches(512):
        top = model(x).topk(2, dim=1).values
        margin.append(top[:, 0] - top[:, 1])
    return torch.cat(margin).argsort()[:keep]


def main():
    os.makedirs(ROOT, exist_ok=True)
    torch.manual_seed(0)
    cube, label = make_cube(40000, 1)
    cache = FeatureCache("train")
    cache.write(cube)
    pixels = Pixels(cache, label)
    model = Classifier()
    train(model, pixels, 2)
    print(f"accuracy {score(model, pixels):.3f}", flush=True)
    rows = hard_rows(model, pixels, 8000)
    subset = pixels.data[rows].numpy()
    cache.write(subset)
    focus = Pixels(cache, label[rows.numpy()])
    train(model, focus, 2)
    print(f"hard rows {score(model, focus):.3f}", flush=True)
    print(f"all rows {score(model, pixels):.3f}", flush=True)


if __name__ == "__main__":
    main()
