"""DeepWalk embedding of a citation graph; walks are drawn by a small C routine in the workers."""
import argparse
import ctypes
import os
import subprocess
import tempfile

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

SOURCE = r"""
#include <stdint.h>
static uint64_t next_random(uint64_t *s) {
    *s ^= *s << 13; *s ^= *s >> 7; *s ^= *s << 17;
    return *s;
}
void random_walk(const int64_t *rowptr, const int64_t *col, const int64_t *start, int64_t n,
                 int64_t length, uint64_t seed, int64_t *out) {
    uint64_t state = seed | 1;
    for (int64_t i = 0; i < n; i++) {
        int64_t cur = start[i];
        int64_t *walk = out + i * (length + 1);
        walk[0] = cur;
        for (int64_t j = 1; j <= length; j++) {
            int64_t begin = rowptr[cur], end = rowptr[cur + 1];
            double u = (next_random(&state) >> 11) * (1.0 / 9007199254740992.0);
            cur = col[begin + (int64_t)(u * (end - begin))];
            walk[j] = cur;
        }
    }
}
"""


def build_library(folder):
    source, target = os.path.join(folder, "walk.c"), os.path.join(folder, "libwalk.so")
    with open(source, "w") as f:
        f.write(SOURCE)
    subprocess.run(["gcc", "-O2", "-g", "-shared", "-fPIC", source, "-o", target], check=True)
    lib = ctypes.CDLL(target)
    pointer = np.ctypeslib.ndpointer(np.int64, flags="C_CONTIGUOUS")
    lib.random_walk.argtypes = [pointer, pointer, pointer, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint64, pointer]
    lib.random_walk.restype = None
    return lib


def write_graph(path, n_papers, n_linked, degree, seed):
    """File layout: two counts, row pointers, columns, edge weights."""
    rng = np.random.default_rng(seed)
    counts = np.zeros(n_papers, dtype=np.int64)
    counts[:n_linked] = rng.integers(1, 2 * degree, n_linked)
    rowptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    owner = np.repeat(np.arange(n_papers), counts)
    col = (owner + rng.integers(-40, 41, len(owner))) % n_linked
    weight = rng.random(len(owner)) + 0.5
    with open(path, "wb") as f:
        for part in (np.array([n_papers, len(col)]), rowptr, col.astype(np.int64), weight):
            f.write(part.tobytes())


class CitationWalks(Dataset):
    def __init__(self, path, lib, length, papers_per_item):
        raw = np.fromfile(path, dtype=np.int64)
        self.n_papers, n_edges = int(raw[0]), int(raw[1])
        self.rowptr = raw[2 : 3 + self.n_papers]
        self.col = raw[3 + self.n_papers : 3 + self.n_papers + n_edges]
        self.weight = raw[3 + self.n_papers + n_edges :].view(np.float64)
        self.lib, self.length, self.papers_per_item = lib, length, papers_per_item

    def __len__(self):
        return self.n_papers // self.papers_per_item

    def __getitem__(self, item):
        start = np.arange(item * self.papers_per_item, (item + 1) * self.papers_per_item, dtype=np.int64)
        walks = np.empty((len(start), self.length + 1), dtype=np.int64)
        self.lib.random_walk(self.rowptr, self.col, start, len(start), self.length, 977 + item, walks)
        return torch.from_numpy(self.pairs(walks, np.random.default_rng(item)))

    def pairs(self, walks, rng, window=8, keep=100):
        found = []
        for walk in walks.tolist():
            for i, centre in enumerate(walk):
                for context in walk[max(0, i - window) : i] + walk[i + 1 : i + 1 + window]:
                    found.append((centre, context))
        return np.array([found[k] for k in rng.integers(0, len(found), keep)])


def skip_gram_loss(embedding, pairs, n_papers):
    centre, context = embedding(pairs[:, 0]), embedding(pairs[:, 1])
    negative = embedding(torch.randint(0, n_papers, (len(pairs),)))
    pos, neg = (centre * context).sum(-1), (centre * negative).sum(-1)
    return -(F.logsigmoid(pos).mean() + F.logsigmoid(-neg).mean())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--papers", type=int, default=12800)
    parser.add_argument("--linked", type=int, default=12710)
    parser.add_argument("--workers", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    with tempfile.TemporaryDirectory() as folder:
        lib = build_library(folder)
        path = os.path.join(folder, "citations.bin")
        write_graph(path, args.papers, args.linked, degree=4, seed=0)
        data = CitationWalks(path, lib, length=60, papers_per_item=100)
    loader = DataLoader(data, batch_size=4, num_workers=args.workers)
    embedding = nn.Embedding(args.papers, 32)
    optimizer = torch.optim.Adam(embedding.parameters(), lr=0.01)
    for epoch in range(args.epochs):
        for step, pairs in enumerate(loader):
            loss = skip_gram_loss(embedding, pairs.flatten(0, 1), args.papers)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 5 == 0:
                print(f"epoch {epoch} step {step}: loss {loss.item():.4f}", flush=True)
    torch.save(embedding.weight.detach(), "papers.pt")


if __name__ == "__main__":
    main()
