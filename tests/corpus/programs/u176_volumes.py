"""Prepares functional test volumes for a real-time decoding session.

Volumes are NIfTI-1 files (348-byte header, 4 bytes of extension, float32
voxels). A first series is written, a classifier is trained on it, then all
volumes are smoothed and brought to zero mean in their files.
"""
import argparse
import os
import struct
import tempfile

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

VOX_OFFSET = 352


class Volume:
    """A volume on disk; voxels are read from the file when they are needed."""

    def __init__(self, path, header, data):
        self.path, self.header, self.data = path, header, data

    @classmethod
    def load(cls, path, mmap=True):
        with open(path, "rb") as f:
            header = f.read(VOX_OFFSET)
        if header[344:347] != b"n+1":
            raise ValueError(f"{path}: not a NIfTI-1 file")
        shape = struct.unpack_from("<3h", header, 42)
        if mmap:
            data = np.memmap(path, np.float32, "c", VOX_OFFSET, shape, order="F")
        else:
            data = np.fromfile(path, np.float32, offset=VOX_OFFSET).reshape(shape, order="F")
        return cls(path, header, data)

    def save(self, path=None):
        path = path or self.path
        with open(path, "wb") as f:
            f.write(self.header)
            for k in range(self.data.shape[2]):
                f.write(self.data[:, :, k].tobytes(order="F"))


def make_header(shape):
    header = bytearray(VOX_OFFSET)
    struct.pack_into("<i", header, 0, 348)
    struct.pack_into("<8h", header, 40, 3, *shape, 1, 1, 1, 1)
    struct.pack_into("<2h", header, 70, 16, 32)
    struct.pack_into("<f", header, 108, float(VOX_OFFSET))
    header[344:348] = b"n+1\0"
    return bytes(header)


def write_series(folder, count, shape, rng):
    paths, labels = [], []
    for t in range(count):
        label = t % 2
        voxels = rng.normal(100, 8, shape).astype(np.float32)
        voxels[20:28, 20:28, 8:12] += 6.0 * label
        path = os.path.join(folder, f"bold_{t:03d}.nii")
        Volume(path, make_header(shape), np.asfortranarray(voxels)).save()
        paths.append(path)
        labels.append(label)
    return paths, labels


def train_decoder(paths, labels, epochs):
    model = nn.Sequential(nn.Conv3d(1, 4, 5, stride=3), nn.ReLU(), nn.AdaptiveAvgPool3d(4),
                          nn.Flatten(), nn.Linear(256, 2))
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    for epoch in range(epochs):
        total = 0.0
        for path, label in zip(paths, labels):
            voxels = np.array(Volume.load(path).data, order="C")
            x = torch.from_numpy(voxels)[None, None] / 100 - 1
            loss = F.cross_entropy(model(x), torch.tensor([label]))
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.item()
        print(f"epoch {epoch} loss {total / len(paths):.4f}", flush=True)
    return model


def smooth(plane):
    p = np.pad(plane, 1, mode="edge")
    return (p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:] + 4 * plane) / 8


def normalise(path, first, last):
    vol = Volume.load(path)
    mean = float(vol.data[:, :, first:last].mean())
    for k in range(first, last):
        vol.data[:, :, k] = smooth(vol.data[:, :, k]) - mean
    vol.save()
    return mean


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--volumes", type=int, default=8)
    ap.add_argument("--shape", type=int, nargs=3, default=[64, 64, 30])
    ap.add_argument("--epochs", type=int, default=3)
    ap.add_argument("--slab", type=int, nargs=2, default=[4, 20], help="slices that are used")
    args = ap.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    rng = np.random.default_rng(5)
    with tempfile.TemporaryDirectory(prefix="rtfmri_", dir=".") as folder:
        paths, labels = write_series(folder, args.volumes, tuple(args.shape), rng)
        train_decoder(paths, labels, args.epochs)
        for path in paths:
            mean = normalise(path, *args.slab)
            print(f"{os.path.basename(path)} normalised, mean was {mean:.3f}", flush=True)
    print("series ready")


if __name__ == "__main__":
    main()
