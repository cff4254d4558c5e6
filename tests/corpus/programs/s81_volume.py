"""Prepare scans for a small denoiser: intensity scaling, conformed voxel type, then training on the prepared set."""
import json
import os
import shutil
import struct

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

ROOT = "/tmp/s81_volume_data"
SHAPE = (48, 96, 96)
CODES = {np.dtype("int16"): 4, np.dtype("float32"): 16, np.dtype("float64"): 64}
TYPES = {v: k for k, v in CODES.items()}
HEADER = struct.Struct("<4sh3h2f")


class Image:
    """A volume on disk with a small header and raw voxels behind it."""

    def __init__(self, data, slope=1.0, inter=0.0):
        self.data = data
        self.slope = slope
        self.inter = inter

    @classmethod
    def load(cls, path, keep_in_memory=False):
        with open(path, "rb") as f:
            magic, code, x, y, z, slope, inter = HEADER.unpack(f.read(HEADER.size))
            if magic != b"vol1":
                raise ValueError(f"{path} is not a volume")
            if keep_in_memory:
                data = np.frombuffer(f.read(), TYPES[code]).reshape(x, y, z)
            else:
                data = np.memmap(path, TYPES[code], mode="r", offset=HEADER.size, shape=(x, y, z))
        return cls(data, slope, inter)

    def save(self, path, dtype=None):
        dtype = np.dtype(dtype or self.data.dtype)
        with open(path, "wb") as f:
            f.write(HEADER.pack(b"vol1", CODES[dtype], *self.data.shape, self.slope, self.inter))
            for plane in self.data:
                f.write(np.ascontiguousarray(plane, dtype=dtype).tobytes())

    def scaled(self):
        return np.asarray(self.data, dtype="float32") * self.slope + self.inter


def acquire(n, seed=5):
    """Stand-in for the scanner export: most sites write int16, one writes float64."""
    rng = np.random.default_rng(seed)
    shutil.rmtree(ROOT, ignore_errors=True)
    os.makedirs(ROOT)
    grid = np.stack(np.meshgrid(*[np.linspace(-1, 1, s) for s in SHAPE], indexing="ij"))
    names = []
    for i in range(n):
        centre = rng.uniform(-0.3, 0.3, (3, 1, 1, 1))
        vol = 900 * np.exp(-4 * ((grid - centre) ** 2).sum(0)) + rng.normal(0, 20, SHAPE)
        site = "B" if i % 4 == 3 else "A"
        name = f"sub-{i:02d}_site-{site}.vol"
        Image(vol, 0.5, 0.0).save(os.path.join(ROOT, name), "float64" if site == "B" else "int16")
        names.append(name)
    return names


class Conform:
    """Every volume that goes on must have the target voxel type."""

    def __init__(self, target="int16"):
        self.target = np.dtype(target)
        self.report = {}

    def __call__(self, name):
        path = os.path.join(ROOT, name)
        img = Image.load(path)
        self.report[name] = {"stored": str(img.data.dtype), "mean": float(img.scaled().mean())}
        if img.data.dtype != self.target:
            img.save(path, self.target)
        return path


class Slices(torch.utils.data.Dataset):
    def __init__(self, paths):
        self.images = [Image.load(p) for p in paths]

    def __len__(self):
        return len(self.images) * SHAPE[0]

    def __getitem__(self, i):
        img = self.images[i // SHAPE[0]]
        plane = torch.from_numpy(np.array(img.data[i % SHAPE[0]], dtype="float32"))
        return (plane * img.slope / 450)[None]


def train(paths, steps=30):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 12, 3, padding=1), nn.ReLU(), nn.Conv2d(12, 1, 3, padding=1))
    opt = torch.optim.Adam(net.parameters(), lr=3e-3)
    loader = torch.utils.data.DataLoader(Slices(paths), batch_size=8, shuffle=True)
    for step, clean in enumerate(loader):
        loss = F.mse_loss(net(clean + 0.1 * torch.randn_like(clean)), clean)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step == steps:
            break
    print(f"denoiser loss {loss.item():.5f}")


def main():
    names = acquire(8)
    print(f"{len(names)} volumes exported", flush=True)
    conform = Conform()
    paths = []
    for name in names:
        paths.append(conform(name))
        print(f"conformed {name} {conform.report[name]}", flush=True)
    with open(os.path.join(ROOT, "report.json"), "w") as f:
        json.dump(conform.report, f)
    train(paths)


if __name__ == "__main__":
    main()
