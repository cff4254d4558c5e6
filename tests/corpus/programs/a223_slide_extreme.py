"""Extreme classification with hashed negative sampling (SLIDE style) on a bag-of-features product task."""
import argparse
import ctypes
import logging
import subprocess
import tempfile
from collections import defaultdict
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

log = logging.getLogger("slide")
SOURCE = Path(__file__).resolve().parent / "a223_slide_kernels.c"
ARCH_FLAGS = ["-mavx512f", "-mfma"]


def compile_kernels(workdir, arch_flags):
    so = Path(workdir) / "libslide.so"
    subprocess.run(["gcc", "-O1", "-g", "-shared", "-fPIC", *arch_flags, str(SOURCE), "-o", str(so)], check=True)
    lib = ctypes.CDLL(str(so))
    lib.simhash_codes.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_void_p]
    lib.simhash_codes.restype = None
    return lib


class ProductDataset(Dataset):
    def __init__(self, size, features, labels, nnz, seed):
        gen = torch.Generator().manual_seed(seed)
        self.label = torch.randint(labels, (size,), generator=gen)
        base = (self.label.unsqueeze(1) * 37 + torch.arange(nnz)) % features
        noise = torch.randint(features, (size, nnz), generator=gen)
        keep = torch.rand(size, nnz, generator=gen) < 0.7
        self.index = torch.where(keep, base, noise)

    def __len__(self):
        return len(self.label)

    def __getitem__(self, i):
        return self.index[i], self.label[i]


class HashTable:
    def __init__(self, lib, dim, bits, seed):
        self.lib, self.dim, self.bits = lib, dim, bits
        self.planes = torch.randn(bits, dim, generator=torch.Generator().manual_seed(seed))
        self.buckets = {}

    def codes(self, rows):
        rows = rows.detach().contiguous()
        out = np.empty(len(rows), dtype=np.int64)
        self.lib.simhash_codes(rows.data_ptr(), self.planes.data_ptr(), len(rows), self.dim, self.bits, out.ctypes.data)
        return out

    def rebuild(self, weight):
        buckets = defaultdict(list)
        for neuron, code in enumerate(self.codes(weight)):
            buckets[int(code)].append(neuron)
        self.buckets = buckets
        log.info("hash table rebuilt: %d buckets", len(buckets))

    def active(self, hidden, label):
        picked = set(label.tolist())
        for code in self.codes(hidden):
            picked.update(self.buckets.get(int(code), ()))
        return torch.tensor(sorted(picked))


class SlideNet(nn.Module):
    def __init__(self, features, hidden, labels):
        super().__init__()
        self.embed = nn.EmbeddingBag(features, hidden, mode="mean")
        self.output = nn.Linear(hidden, labels)

    def hidden(self, index):
        return torch.relu(self.embed(index))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--labels", type=int, default=4000)
    parser.add_argument("--features", type=int, default=20000)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--warmup", type=int, default=60)
    parser.add_argument("--steps", type=int, default=160)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s [%(name)s] %(message)s")
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as workdir:
        lib = compile_kernels(workdir, ARCH_FLAGS)
        data = ProductDataset(20000, args.features, args.labels, 24, seed=1)
        loader = iter(DataLoader(data, batch_size=64, shuffle=True, drop_last=True))
        model = SlideNet(args.features, args.hidden, args.labels)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        table = HashTable(lib, args.hidden, bits=9, seed=2)
        for step in range(args.steps):
            index, label = next(loader)
            hidden = model.hidden(index)
            if step < args.warmup:
                loss = nn.functional.cross_entropy(model.output(hidden), label)
            else:
                if (step - args.warmup) % 50 == 0:
                    table.rebuild(model.output.weight)
                active = table.active(hidden, label)
                logits = hidden @ model.output.weight[active].t() + model.output.bias[active]
                loss = nn.functional.cross_entropy(logits, torch.searchsorted(active, label))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 20 == 0:
                log.info("step %d %s loss %.4f", step, "dense" if step < args.warmup else "hashed", loss.item())
        log.info("finished %d steps", args.steps)


if __name__ == "__main__":
    main()
