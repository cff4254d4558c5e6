"""Train item embeddings and look up neighbours with a small C index."""
import argparse
import ctypes
import os
import subprocess
import tempfile

import numpy as np
import torch
from torch import nn

SOURCE = r"""
#include <stdlib.h>
#include <string.h>

typedef struct { long count; int dim; float *rows; } item_index;

item_index *index_create(long count, int dim) {
    item_index *ix = malloc(sizeof(item_index));
    ix->count = count;
    ix->dim = dim;
    ix->rows = calloc((size_t)count * dim, sizeof(float));
    return ix;
}

void index_fill(item_index *ix, const float *rows) {
    memcpy(ix->rows, rows, (size_t)ix->count * ix->dim * sizeof(float));
}

long index_nearest(const item_index *ix, const float *query, long skip) {
    long best = -1;
    float best_score = -1e30f;
    for (long i = 0; i < ix->count; i++) {
        float score = 0.f;
        if (i == skip) continue;
        for (int k = 0; k < ix->dim; k++) score += ix->rows[i * ix->dim + k] * query[k];
        if (score > best_score) { best_score = score; best = i; }
    }
    return best;
}

void index_free(item_index *ix) { free(ix->rows); free(ix); }
int index_version(void) { return 3; }
"""

FLOATS = ctypes.POINTER(ctypes.c_float)


def build_library():
    folder = tempfile.mkdtemp(prefix="itemindex")
    src, lib = os.path.join(folder, "index.c"), os.path.join(folder, "libindex.so")
    with open(src, "w") as f:
        f.write(SOURCE)
    subprocess.check_call(["gcc", "-O2", "-g", "-shared", "-fPIC", "-o", lib, src])
    lib = ctypes.CDLL(lib)
    lib.index_create.argtypes = [ctypes.c_long, ctypes.c_int]
    lib.index_fill.argtypes = [ctypes.c_void_p, FLOATS]
    lib.index_nearest.argtypes = [ctypes.c_void_p, FLOATS, ctypes.c_long]
    lib.index_nearest.restype = ctypes.c_long
    lib.index_free.argtypes = [ctypes.c_void_p]
    return lib


class ItemIndex:
    def __init__(self, lib, embeddings):
        self.lib = lib
        self.rows = np.ascontiguousarray(embeddings, dtype=np.float32)
        count, dim = self.rows.shape
        self.handle = lib.index_create(count, dim)
        lib.index_fill(self.handle, self.rows.ctypes.data_as(FLOATS))

    def nearest(self, item):
        query = np.ascontiguousarray(self.rows[item])
        return self.lib.index_nearest(self.handle, query.ctypes.data_as(FLOATS), item)

    def close(self):
        self.lib.index_free(self.handle)


def train(items, dim, steps):
    table = nn.Embedding(items, dim)
    opt = torch.optim.Adam(table.parameters(), lr=0.05)
    for step in range(steps):
        a = torch.randint(0, items, (256,))
        b = (a + 2) % items
        neg = torch.randint(0, items, (256,))
        pos_score = (table(a) * table(b)).sum(1)
        neg_score = (table(a) * table(neg)).sum(1)
        loss = nn.functional.softplus(neg_score - pos_score).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 20 == 0:
            print(f"step {step}: loss {loss.item():.4f}", flush=True)
    return nn.functional.normalize(table.weight.detach(), dim=1).numpy()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--items", type=int, default=500)
    parser.add_argument("--dim", type=int, default=16)
    parser.add_argument("--steps", type=int, default=100)
    args = parser.parse_args()
    torch.manual_seed(0)
    lib = build_library()
    print("index library version", lib.index_version(), flush=True)
    embeddings = train(args.items, args.dim, args.steps)
    index = ItemIndex(lib, embeddings)
    hits = sum(abs(index.nearest(i) - i) == 2 for i in range(args.items))
    print(f"recall {hits / args.items:.3f}", flush=True)
    index.close()


if __name__ == "__main__":
    main()
