"""Build a neighbour index in C, train an embedding and score the nearest rows."""
import ctypes
import os
import subprocess
import numpy as np
import torch
import torch.nn as nn

SOURCE = r"""
#include <stdlib.h>
#include <string.h>
typedef struct { long rows, dim; float *data; } Index;
Index *index_new(long rows, long dim) {
    Index *ix = malloc(sizeof(Index));
    ix->rows = rows; ix->dim = dim;
    ix->data = calloc(rows * dim, sizeof(float));
    return ix;
}
long index_bytes(long rows, long dim) { return rows * dim * (long)sizeof(float); }
void index_fill(Index *ix, const float *src) {
    memcpy(ix->data, src, ix->rows * ix->dim * sizeof(float));
}
long index_nearest(Index *ix, const float *q) {
    long best = -1; float top = -1e30f;
    for (long r = 0; r < ix->rows; r++) {
        float s = 0;
        for (long d = 0; d < ix->dim; d++) s += ix->data[r * ix->dim + d] * q[d];
        if (s > top) { top = s; best = r; }
    }
    return best;
}
void index_free(Index *ix) { free(ix->data); free(ix); }
"""


def build():
    os.makedirs("/tmp/d73_index_build", exist_ok=True)
    src, lib = "/tmp/d73_index_build/index.c", "/tmp/d73_index_build/libindex.so"
    with open(src, "w") as f:
        f.write(SOURCE)
    subprocess.run(["gcc", "-O2", "-g", "-shared", "-fPIC", src, "-o", lib], check=True)
    return ctypes.CDLL(lib)


class NeighbourIndex:
    def __init__(self, lib, rows, dim):
        self.lib, self.rows, self.dim = lib, rows, dim
        lib.index_bytes.argtypes = [ctypes.c_long, ctypes.c_long]
        lib.index_bytes.restype = ctypes.c_long
        lib.index_new.argtypes = [ctypes.c_long, ctypes.c_long]
        lib.index_fill.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
        lib.index_nearest.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
        lib.index_nearest.restype = ctypes.c_long
        lib.index_free.argtypes = [ctypes.c_void_p]
        self.handle = lib.index_new(rows, dim)
        print("index of", lib.index_bytes(rows, dim) // 1024, "KiB", flush=True)

    def fill(self, table):
        table = np.ascontiguousarray(table, dtype=np.float32)
        assert table.shape == (self.rows, self.dim)
        self.lib.index_fill(self.handle, table.ctypes.data)

    def nearest(self, query):
        query = np.ascontiguousarray(query, dtype=np.float32)
        return self.lib.index_nearest(self.handle, query.ctypes.data)

    def close(self):
        self.lib.index_free(self.handle)


class Encoder(nn.Module):
    def __init__(self, rows, dim):
        super().__init__()
        self.table = nn.Embedding(rows, dim)
        self.out = nn.Linear(dim, 10)

    def forward(self, ids):
        return self.out(self.table(ids))


def train(model, steps):
    opt = torch.optim.Adam(model.parameters(), lr=0.01)
    for step in range(steps):
        ids = torch.randint(0, model.table.num_embeddings, (128,))
        loss = nn.functional.cross_entropy(model(ids), ids % 10)
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"loss {loss.item():.4f}", flush=True)


def main():
    torch.manual_seed(0)
    lib = build()
    index = NeighbourIndex(lib, 1000, 32)
    model = Encoder(1000, 32)
    for epoch in range(3):
        train(model, 100)
    table = nn.functional.normalize(model.table.weight.detach(), dim=1).numpy()
    index.fill(table)
    same = sum(index.nearest(table[i]) == i for i in range(200))
    print("rows that find themselves:", same, flush=True)
    index.close()


if __name__ == "__main__":
    main()
