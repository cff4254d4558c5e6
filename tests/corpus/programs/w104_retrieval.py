"""Train a small text encoder and evaluate recall@1 with the native nearest-neighbour index."""
import argparse
import ctypes
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

SOURCE = Path(__file__).with_name("w104_annidx.c")
c_float_p = ctypes.POINTER(ctypes.c_float)
c_long_p = ctypes.POINTER(ctypes.c_long)


def load_library():
    build = Path(tempfile.mkdtemp(prefix="annidx-"))
    target = build / "libannidx.so"
    subprocess.run(["gcc", "-O2", "-g", "-shared", "-fPIC", str(SOURCE), "-o", str(target)], check=True)
    lib = ctypes.CDLL(str(target))
    lib.annidx_distance.restype = ctypes.c_float
    lib.annidx_distance.argtypes = [c_float_p, c_float_p, ctypes.c_int]
    return lib


def floats(array):
    return array.ctypes.data_as(c_float_p)


def longs(array):
    return array.ctypes.data_as(c_long_p)


class VectorIndex:
    def __init__(self, lib, dim, capacity):
        self.lib = lib
        self.dim = dim
        self.handle = lib.annidx_create(dim, capacity)

    def add(self, vectors, ids):
        vectors = np.ascontiguousarray(vectors, dtype=np.float32)
        ids = np.ascontiguousarray(ids, dtype=np.int64)
        total = self.lib.annidx_add(self.handle, floats(vectors), len(vectors), longs(ids))
        if total < 0:
            raise RuntimeError("index is full")
        return total

    def search(self, query):
        query = np.ascontiguousarray(query, dtype=np.float32)
        ids = np.empty(len(query), dtype=np.int64)
        dist = np.empty(len(query), dtype=np.float32)
        self.lib.annidx_search(self.handle, floats(query), len(query), longs(ids), floats(dist))
        return ids, dist

    def close(self):
        self.lib.annidx_free(self.handle)


class Encoder(nn.Module):
    def __init__(self, vocab, dim):
        super().__init__()
        self.bag = nn.EmbeddingBag(vocab, dim, mode="mean")
        self.proj = nn.Sequential(nn.Linear(dim, dim), nn.Tanh(), nn.Linear(dim, dim))

    def forward(self, tokens):
        return F.normalize(self.proj(self.bag(tokens)), dim=1)


def make_pairs(count, vocab, length, generator):
    documents = torch.randint(0, vocab, (count, length), generator=generator)
    queries = documents.clone()
    swap = torch.rand(count, length, generator=generator) < 0.3
    queries[swap] = torch.randint(0, vocab, (int(swap.sum()),), generator=generator)
    return queries, documents


def train(model, queries, documents, steps, lib):
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step in range(steps):
        pick = torch.randint(0, len(documents), (128,))
        q, d = model(queries[pick]), model(documents[pick])
        loss = F.cross_entropy(q @ d.t() / 0.1, torch.arange(len(pick)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            a = q[0].detach().contiguous().numpy()
            b = d[0].detach().contiguous().numpy()
            gap = lib.annidx_distance(floats(a), floats(b), len(a))
            print(f"step {step:3d} loss {loss.item():.4f} pair distance {gap:.4f}", flush=True)


@torch.no_grad()
def evaluate(model, queries, documents, lib, dim):
    model.eval()
    index = VectorIndex(lib, dim, capacity=len(documents))
    for start in range(0, len(documents), 500):
        chunk = documents[start:start + 500]
        total = index.add(model(chunk).numpy(), np.arange(start, start + len(chunk)))
        print(f"indexed {total} documents", flush=True)
    ids, dist = index.search(model(queries[:200]).numpy())
    index.close()
    return float((ids == np.arange(200)).mean()), float(dist.mean())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--dim", type=int, default=48)
    parser.add_argument("--vocab", type=int, default=4000)
    parser.add_argument("--steps", type=int, default=100)
    args = parser.parse_args()
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    lib = load_library()
    queries, documents = make_pairs(2000, args.vocab, 16, generator)
    model = Encoder(args.vocab, args.dim)
    train(model, queries, documents, args.steps, lib)
    recall, mean = evaluate(model, queries, documents, lib, args.dim)
    print(f"recall@1 {recall:.3f} mean distance {mean:.4f}")


if __name__ == "__main__":
    main()
