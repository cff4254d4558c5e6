"""Train a TransE embedding of the product graph with the native triple sampler."""
import ctypes
import os
import subprocess

import numpy as np
import torch
from torch import nn

WORK = "/tmp/t81_triples_work"

SAMPLER = r"""
#include <stdio.h>
#include <stdlib.h>
static int n_ent, n_rel, n_tri;
static int *head, *tail, *rel, *deg;
static unsigned long long state = 88172645463325252ULL;
static unsigned rnd(void) {
    state ^= state << 13; state ^= state >> 7; state ^= state << 17;
    return (unsigned)(state >> 33);
}
static int count_of(const char *dir, const char *name) {
    char p[512]; int n = 0;
    snprintf(p, sizeof p, "%s/%s", dir, name);
    FILE *f = fopen(p, "r");
    if (fscanf(f, "%d", &n) != 1) n = 0;
    fclose(f);
    return n;
}
int import_files(const char *dir) {
    char p[512];
    n_ent = count_of(dir, "entity2id.txt");
    n_rel = count_of(dir, "relation2id.txt");
    snprintf(p, sizeof p, "%s/train2id.txt", dir);
    FILE *f = fopen(p, "r");
    if (fscanf(f, "%d", &n_tri) != 1) return -1;
    head = calloc(n_tri, sizeof(int)); tail = calloc(n_tri, sizeof(int));
    rel = calloc(n_tri, sizeof(int)); deg = calloc(n_ent, sizeof(int));
    for (int i = 0; i < n_tri; i++) {
        if (fscanf(f, "%d %d %d", head + i, tail + i, rel + i) != 3) return -1;
        deg[head[i]]++; deg[tail[i]]++;
    }
    fclose(f);
    return n_tri;
}
void sample(int *h, int *t, int *r, int *neg, int n) {
    for (int i = 0; i < n; i++) {
        int k = rnd() % n_tri;
        h[i] = head[k]; t[i] = tail[k]; r[i] = rel[k]; neg[i] = rnd() % n_ent;
    }
}
"""


def build_sampler():
    os.makedirs(WORK, exist_ok=True)
    src, so = os.path.join(WORK, "sampler.c"), os.path.join(WORK, "sampler.so")
    with open(src, "w") as f:
        f.write(SAMPLER)
    subprocess.run(["gcc", "-O1", "-g", "-shared", "-fPIC", "-w", src, "-o", so], check=True)
    return ctypes.CDLL(so)


class Catalogue:
    """Products and attributes as exported from the shop's tables."""

    def __init__(self, n_products, n_links, first_key, seed):
        rng = np.random.default_rng(seed)
        self.relations = ["BOUGHT_WITH", "IN_CATEGORY", "MADE_BY", "SIMILAR_TO"]
        self.keys = first_key + np.arange(n_products) * 25
        self.names = [f"sku-{k:09d}" for k in self.keys]
        self.links = np.stack([rng.choice(self.keys, n_links), rng.choice(self.keys, n_links),
                               rng.integers(0, len(self.relations), n_links)], axis=1)


def write_benchmark(cat, folder):
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "entity2id.txt"), "w") as f:
        f.write(f"{len(cat.keys)}\n")
        for name, key in zip(cat.names, cat.keys):
            f.write(f"{name}\t{key}\n")
    with open(os.path.join(folder, "relation2id.txt"), "w") as f:
        f.write(f"{len(cat.relations)}\n")
        for i, name in enumerate(cat.relations):
            f.write(f"{name}\t{i}\n")
    np.savetxt(os.path.join(folder, "train2id.txt"), cat.links, fmt="%d\t%d\t%d",
               header=str(len(cat.links)), comments="")


class TransE(nn.Module):
    def __init__(self, n_ent, n_rel, dim=32):
        super().__init__()
        self.ent = nn.Embedding(n_ent, dim)
        self.rel = nn.Embedding(n_rel, dim)

    def score(self, h, t, r):
        return (self.ent(h) + self.rel(r) - self.ent(t)).norm(p=1, dim=-1)

    def forward(self, h, t, r, neg):
        return torch.relu(4.0 + self.score(h, t, r) - self.score(h, neg, r)).mean()


def train(lib, folder, n_ent, n_rel, steps=40, batch=512):
    total = lib.import_files(folder.encode())
    print(f"{os.path.basename(folder)}: {n_ent} entities, {n_rel} relations, {total} triples", flush=True)
    model = TransE(n_ent, n_rel)
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)
    bufs = [np.zeros(batch, dtype=np.int32) for _ in range(4)]
    ptrs = [b.ctypes.data_as(ctypes.POINTER(ctypes.c_int)) for b in bufs]
    for step in range(steps):
        lib.sample(*ptrs, batch)
        loss = model(*[torch.from_numpy(b).long() for b in bufs])
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"  loss {loss.item():.4f}", flush=True)


def main():
    torch.manual_seed(0)
    lib = build_sampler()
    pilot = Catalogue(3000, 20000, first_key=0, seed=1)
    pilot.links[:, :2] //= 25
    pilot.keys = pilot.keys // 25
    shop = Catalogue(6000, 50000, first_key=31_400_000, seed=2)
    for name, cat in (("pilot", pilot), ("shop", shop)):
        folder = os.path.join(WORK, name)
        write_benchmark(cat, folder)
        print(f"wrote {folder}", flush=True)
        train(lib, folder, len(cat.keys), len(cat.relations))


if __name__ == "__main__":
    main()
