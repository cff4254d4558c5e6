"""Item embeddings from random walks over a co-view graph (DeepWalk with a C walker)."""
import ctypes
import subprocess
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from torch import nn

WORK = Path("/tmp/e51_item_walks_build")

WALKER = r"""
#include <stdint.h>
static uint64_t state;
static uint64_t next_u64(void) {
    state ^= state << 13; state ^= state >> 7; state ^= state << 17;
    return state;
}
void random_walks(const int64_t *rowptr, const int64_t *col, const int64_t *start,
                  int64_t n_start, int64_t length, uint64_t seed, int64_t *out) {
    state = seed * 2654435769u + 88172645463325252ull;
    for (int64_t i = 0; i < n_start; i++) {
        int64_t cur = start[i];
        out[i * (length + 1)] = cur;
        for (int64_t s = 1; s <= length; s++) {
            uint64_t deg = (uint64_t)(rowptr[cur + 1] - rowptr[cur]);
            cur = col[rowptr[cur] + (int64_t)(next_u64() % deg)];
            out[i * (length + 1) + s] = cur;
        }
    }
}
"""


@lru_cache(maxsize=None)
def build_walker():
    WORK.mkdir(exist_ok=True)
    src, lib = WORK / "walker.c", WORK / "libwalker.so"
    src.write_text(WALKER)
    subprocess.run(["gcc", "-g", "-shared", "-fPIC", "-o", str(lib), str(src)], check=True)
    handle = ctypes.CDLL(str(lib))
    ptr = np.ctypeslib.ndpointer(dtype=np.int64, flags="C_CONTIGUOUS")
    handle.random_walks.argtypes = [ptr, ptr, ptr, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint64, ptr]
    handle.random_walks.restype = None
    return handle


class CoViewGraph:
    def __init__(self, src, dst, weight, num_items):
        self.src, self.dst, self.weight = src, dst, weight
        self.num_items = num_items
        self.items = np.unique(np.concatenate([src, dst]))

    @classmethod
    def synthetic(cls, num_items=600, views=6, seed=0):
        rng = np.random.default_rng(seed)
        src = np.repeat(np.arange(num_items), views)
        dst = (src + rng.integers(1, 40, size=src.size)) % num_items
        weight = rng.gamma(2.0, 1.0, size=src.size)
        rare = rng.choice(num_items, size=5, replace=False)
        weight[np.isin(src, rare) | np.isin(dst, rare)] *= 0.01
        return cls(src, dst, weight, num_items)

    def prune(self, minimum):
        keep = self.weight >= minimum
        self.src, self.dst, self.weight = self.src[keep], self.dst[keep], self.weight[keep]
        return self

    def csr(self):
        row = np.concatenate([self.src, self.dst])
        col = np.concatenate([self.dst, self.src])
        order = np.argsort(row, kind="stable")
        counts = np.bincount(row, minlength=self.num_items)
        rowptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        return rowptr, np.ascontiguousarray(col[order], dtype=np.int64)


class WalkSampler:
    def __init__(self, graph, length=12, batch=128):
        self.lib = build_walker()
        self.rowptr, self.col = graph.csr()
        self.items = graph.items.astype(np.int64)
        self.length, self.batch = length, batch

    def epoch(self, seed):
        order = np.random.default_rng(seed).permutation(self.items)
        for k in range(0, len(order), self.batch):
            start = np.ascontiguousarray(order[k:k + self.batch])
            out = np.empty((len(start), self.length + 1), dtype=np.int64)
            self.lib.random_walks(self.rowptr, self.col, start, len(start), self.length, seed + k + 1, out)
            yield torch.from_numpy(out)


class SkipGram(nn.Module):
    def __init__(self, num_items, dim=32):
        super().__init__()
        self.center = nn.Embedding(num_items, dim)
        self.context = nn.Embedding(num_items, dim)

    def forward(self, walks, window=3):
        loss = 0.0
        for shift in range(1, window + 1):
            u = self.center(walks[:, :-shift])
            v = self.context(walks[:, shift:])
            noise = self.context(torch.randint(0, self.context.num_embeddings, walks[:, shift:].shape))
            loss = loss - nn.functional.logsigmoid((u * v).sum(-1)).mean()
            loss = loss - nn.functional.logsigmoid(-(u * noise).sum(-1)).mean()
        return loss / window


def train(model, sampler, epochs, name):
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for epoch in range(epochs):
        losses = []
        for walks in sampler.epoch(seed=1000 * epoch):
            loss = model(walks)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        print(f"{name} epoch {epoch}: loss {np.mean(losses):.4f} over {len(losses)} batches", flush=True)


def main():
    torch.manual_seed(0)
    graph = CoViewGraph.synthetic()
    model = SkipGram(graph.num_items)
    train(model, WalkSampler(graph), epochs=2, name="all pairs")
    graph.prune(minimum=0.3)
    print(f"{len(graph.weight)} pairs kept for fine tuning", flush=True)
    train(model, WalkSampler(graph), epochs=3, name="strong pairs")
    torch.save(model.center.weight.detach(), WORK / "items.pt")
    print("embeddings written", flush=True)


if __name__ == "__main__":
    main()
