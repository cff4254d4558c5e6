"""Unsupervised GraphSAGE on a kNN graph; the neighbour sampler is a small C library."""
import ctypes
import os
import subprocess
import tempfile

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader

SAMPLER_C = r"""
#include <stdint.h>
#include <stdlib.h>
void sample_adj(const int64_t *rowptr, const int64_t *col, const int64_t *idx,
                int64_t num_idx, int64_t k, int64_t *out) {
  for (int64_t i = 0; i < num_idx; i++) {
    int64_t start = rowptr[idx[i]];
    int64_t count = rowptr[idx[i] + 1] - start;
    for (int64_t j = 0; j < k; j++)
      out[i * k + j] = count == 0 ? idx[i] : col[start + rand() % count];
  }
}
"""


def build_sampler():
    root = tempfile.mkdtemp(prefix="sampler_")
    src, lib = os.path.join(root, "sampler.c"), os.path.join(root, "libsampler.so")
    with open(src, "w") as f:
        f.write(SAMPLER_C)
    subprocess.check_call(["gcc", "-O2", "-g", "-shared", "-fPIC", src, "-o", lib])
    fn = ctypes.CDLL(lib).sample_adj
    ptr = np.ctypeslib.ndpointer(np.int64, flags="C_CONTIGUOUS")
    fn.argtypes = [ptr, ptr, ptr, ctypes.c_int64, ctypes.c_int64, ptr]
    fn.restype = None
    return fn


class NeighborSampler:
    def __init__(self, edge_index, num_neighbors=10):
        row, col = edge_index
        order = np.argsort(row, kind="stable")
        self.col = np.ascontiguousarray(col[order])
        self.rowptr = np.concatenate([[0], np.cumsum(np.bincount(row))]).astype(np.int64)
        self.num_neighbors = num_neighbors
        self.sample_adj = build_sampler()

    def sample(self, nodes):
        nodes = np.ascontiguousarray(nodes, dtype=np.int64)
        out = np.empty((len(nodes), self.num_neighbors), dtype=np.int64)
        self.sample_adj(self.rowptr, self.col, nodes, len(nodes), self.num_neighbors, out)
        return torch.from_numpy(out)


def load_dataset(n=6000, dim=64, k=5, train_size=0.75, seed=1):
    rng = np.random.default_rng(seed)
    X = rng.random((n, dim), dtype=np.float32)
    X_train = X[: int(train_size * n)]
    X_norm = X_train / np.linalg.norm(X_train, axis=1, keepdims=True)
    edges = []
    for idx, digit in enumerate(X_norm):
        for i in np.argpartition(-(X_norm @ digit), k)[:k]:
            edges.append((idx, i))
            edges.append((i, idx))
    return torch.from_numpy(X), np.array(edges, dtype=np.int64).T


class SAGE(nn.Module):
    def __init__(self, in_dim, hidden):
        super().__init__()
        self.self_lin = nn.Linear(in_dim, hidden)
        self.neigh_lin = nn.Linear(in_dim, hidden)

    def forward(self, x, nodes, neighbors):
        return self.self_lin(x[nodes]) + self.neigh_lin(x[neighbors].mean(1))


def main():
    torch.manual_seed(12)
    x, edge_index = load_dataset()
    print(f"x {tuple(x.shape)} edge_index {edge_index.shape}", flush=True)
    sampler = NeighborSampler(edge_index)
    model = SAGE(x.size(1), 64)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for epoch in range(1, 4):
        total = 0.0
        for batch in DataLoader(torch.arange(x.size(0)), batch_size=256, shuffle=True):
            pos = sampler.sample(batch.numpy())[:, 0]
            neg = torch.randint(0, x.size(0), (len(batch),))
            z = [model(x, n, sampler.sample(n.numpy())) for n in (batch, pos, neg)]
            loss = -F.logsigmoid((z[0] * z[1]).sum(-1)).mean() - F.logsigmoid(-(z[0] * z[2]).sum(-1)).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"Epoch {epoch:03d} loss {total:.4f}", flush=True)


if __name__ == "__main__":
    main()
