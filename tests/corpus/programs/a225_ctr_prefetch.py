"""Click-through model fed by a C++ prefetching loader; stops after --max-steps."""
import argparse
import ctypes
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn

HERE = Path(__file__).resolve().parent


def native(workdir):
    so = Path(workdir) / "libprefetch.so"
    subprocess.run(["g++", "-O1", "-g", "-shared", "-fPIC", str(HERE / "a225_prefetch.cpp"), "-o", str(so), "-pthread"], check=True)
    lib = ctypes.CDLL(str(so))
    lib.loader_open.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_uint]
    lib.loader_open.restype = ctypes.c_int
    lib.loader_next.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
    lib.loader_next.restype = None
    lib.loader_close.argtypes = [ctypes.c_int]
    lib.loader_close.restype = None
    return lib


class PrefetchLoader:
    def __init__(self, lib, table, label, batch_size, batches, seed, depth=8):
        self.lib, self.batch_size, self.batches = lib, batch_size, batches
        self.columns = table.shape[1]
        self.table, self.label, self.seed, self.depth = table, label, seed, depth

    def __len__(self):
        return self.batches

    def __iter__(self):
        handle = self.lib.loader_open(
            self.table.ctypes.data, self.label.ctypes.data, len(self.table), self.columns, self.batch_size, self.depth, self.seed
        )
        for _ in range(self.batches):
            x = torch.empty(self.batch_size, self.columns)
            y = torch.empty(self.batch_size, dtype=torch.int64)
            self.lib.loader_next(handle, x.data_ptr(), y.data_ptr())
            yield x, y
        self.lib.loader_close(handle)


def synthetic_clicks(rows, columns, seed):
    rng = np.random.default_rng(seed)
    table = rng.normal(size=(rows, columns)).astype(np.float32)
    weights = rng.normal(size=columns)
    label = (table @ weights + rng.normal(size=rows) > 0.5).astype(np.int64)
    return table, label


class ClickModel(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.cross = nn.Linear(columns, columns)
        self.deep = nn.Sequential(nn.Linear(columns, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU())
        self.head = nn.Linear(columns + 128, 2)

    def forward(self, x):
        return self.head(torch.cat([x * self.cross(x) + x, self.deep(x)], dim=1))


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    hits = total = 0
    for x, y in loader:
        hits += (model(x).argmax(1) == y).sum().item()
        total += len(y)
    model.train()
    return hits / total


def train(args, lib, workdir):
    table, label = synthetic_clicks(60000, 48, seed=0)
    valid_table, valid_label = synthetic_clicks(8000, 48, seed=0)
    train_loader = PrefetchLoader(lib, table, label, args.batch_size, len(table) // args.batch_size, seed=1)
    valid_loader = PrefetchLoader(lib, valid_table, valid_label, args.batch_size, 30, seed=2)
    model = ClickModel(table.shape[1])
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    step, started = 0, time.time()
    while step < args.max_steps:
        for x, y in train_loader:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step % 100 == 0:
                print(f"step {step} loss {loss.item():.4f} ({step * args.batch_size / (time.time() - started):.0f} rows/s)", flush=True)
            if step >= args.max_steps:
                break
        print(f"step {step} valid accuracy {evaluate(model, valid_loader):.4f}", flush=True)
    torch.save(model.state_dict(), Path(workdir) / "click_model.pt")
    print("saved click_model.pt", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--max-steps", type=int, default=600)
    args = parser.parse_args()
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as workdir:
        train(args, native(workdir), workdir)


if __name__ == "__main__":
    main()
