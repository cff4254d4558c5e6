import argparse
import ctypes
import logging
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
log = logging.getLogger("nodule")


def load_reader_library(workdir):
    target = Path(workdir) / "libvoxelreader.so"
    src = Path(__file__).with_suffix(".c")
    subprocess.run(["gcc", "-O1", "-g", "-shared", "-fPIC", "-w", "-o", str(target), str(src)], check=True)
    lib = ctypes.CDLL(str(target))
    lib.reader_open.restype = ctypes.c_void_p
    lib.reader_open.argtypes = [ctypes.c_char_p, ctypes.c_int, ctypes.c_int]
    lib.reader_reset.argtypes = lib.reader_close.argtypes = [ctypes.c_void_p]
    lib.reader_run.restype = ctypes.c_void_p
    lib.reader_run.argtypes = [ctypes.c_void_p, ctypes.c_int]
    lib.list_count.argtypes = lib.list_data.argtypes = lib.list_free.argtypes = [ctypes.c_void_p]
    lib.list_data.restype = ctypes.POINTER(ctypes.c_float)
    return lib


class ScanList:
    def __init__(self, lib, handle, size):
        self.lib, self.handle, self.size = lib, handle, size

    def __len__(self):
        return self.lib.list_count(self.handle)

    def as_tensor(self):
        ptr = self.lib.list_data(self.handle)
        return np.ctypeslib.as_array(ptr, shape=(len(self), 1, self.size, self.size, self.size))

    def __del__(self):
        self.lib.list_free(self.handle)


class VoxelPipeline:
    def __init__(self, lib, root, total, size, batch):
        self.lib, self.size, self.batch = lib, size, batch
        self.reader = lib.reader_open(str(root).encode(), total, size)

    def run(self):
        handle = self.lib.reader_run(self.reader, self.batch)
        if not handle:
            self.lib.reader_reset(self.reader)
            raise StopIteration
        return ScanList(self.lib, handle, self.size)

    def close(self):
        self.lib.reader_close(self.reader)


class ScanLoader:
    def __init__(self, pipe, labels):
        self.pipe, self.labels = pipe, labels

    def __iter__(self):
        self.at = 0
        return self

    def __next__(self):
        images = self.pipe.run().as_tensor()
        labels = self.labels[self.at:self.at + len(images)]
        self.at += len(images)
        return torch.from_numpy(images), torch.from_numpy(labels)


class NoduleNet(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.c1 = nn.Conv3d(1, width, 3, stride=2, padding=1)
        self.c2 = nn.Conv3d(width, 2 * width, 3, stride=2, padding=1)
        self.fc = nn.Linear(2 * width, 2)

    def forward(self, x):
        x = F.relu(self.c1(x))
        x = F.relu(self.c2(x))
        return self.fc(x.mean((2, 3, 4)))


def write_scans(root, total, size, seed=0):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, total)
    for i, y in enumerate(labels):
        scan = rng.integers(0, 90, (size, size, size), dtype=np.uint8)
        if y:
            c = size // 2
            scan[c - 5:c + 5, c - 5:c + 5, c - 5:c + 5] += 120
        scan.tofile(root / f"scan_{i:04d}.raw")
    log.info("%d scans of %d^3 voxels in %s", total, size, root)
    return labels


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--scans", type=int, default=48)
    ap.add_argument("--size", type=int, default=48)
    ap.add_argument("--batch-size", type=int, default=8)
    ap.add_argument("--epochs", type=int, default=3)
    ap.add_argument("--lr", type=float, default=1e-3)
    args = ap.parse_args()
    torch.manual_seed(1)
    with tempfile.TemporaryDirectory(prefix="nodule_") as workdir:
        root = Path(workdir)
        labels = write_scans(root, args.scans, args.size)
        lib = load_reader_library(workdir)
        pipe = VoxelPipeline(lib, root, args.scans, args.size, args.batch_size)
        loader = ScanLoader(pipe, labels)
        model = NoduleNet()
        opt = torch.optim.Adam(model.parameters(), lr=args.lr)
        for epoch in range(args.epochs):
            total, right, seen = 0.0, 0, 0
            for images, target in loader:
                logits = model(images)
                loss = F.cross_entropy(logits, target)
                opt.zero_grad()
                loss.backward()
                opt.step()
                total += loss.item() * len(target)
                right += (logits.argmax(1) == target).sum().item()
                seen += len(target)
            log.info("epoch %d loss %.4f acc %.3f", epoch, total / seen, right / seen)
        pipe.close()
        torch.save(model.state_dict(), root / "nodule.pt")
        log.info("finished")


if __name__ == "__main__":
    main()
