import ctypes
import os
import subprocess
from collections import defaultdict

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

WORK = "/tmp/d41_bpr_work"

SAMPLER_C = r"""
#include <stdlib.h>
#include <stdint.h>

static int randint_(int end) { return rand() % end; }

static int contains(const int32_t *items, int n, int32_t x) {
    for (int i = 0; i < n; i++) if (items[i] == x) return 1;
    return 0;
}

void set_seed(unsigned int s) { srand(s); }

void sample_triplets(int user_num, int item_num, int train_num,
                     const int64_t *offsets, const int32_t *items, int32_t *out) {
    int per_user = train_num / user_num;
    for (int u = 0; u < user_num; u++) {
        const int32_t *pos = items + offsets[u];
        int n = (int)(offsets[u + 1] - offsets[u]);
        for (int k = 0; k < per_user; k++) {
            int32_t *row = out + ((int64_t)u * per_user + k) * 3;
            int32_t neg;
            row[0] = u;
            row[1] = pos[randint_(n)];
            do { neg = randint_(item_num); } while (contains(pos, n, neg));
            row[2] = neg;
        }
    }
}
"""


def build_sampler():
    os.makedirs(WORK, exist_ok=True)
    src, lib = os.path.join(WORK, "sampling.c"), os.path.join(WORK, "libsampling.so")
    with open(src, "w") as f:
        f.write(SAMPLER_C)
    subprocess.run(["gcc", "-O1", "-shared", "-fPIC", "-o", lib, src], check=True)
    dll = ctypes.CDLL(lib)
    dll.sample_triplets.argtypes = [ctypes.c_int] * 3 + [ctypes.c_void_p] * 3
    dll.sample_triplets.restype = None
    dll.set_seed(2020)
    return dll


def make_log(n_users=300, n_items=500, seed=7):
    rng = np.random.default_rng(seed)
    rows = []
    for u in range(n_users):
        k = 4 if u % 97 == 41 else int(rng.integers(15, 40))
        items = rng.choice(n_items, size=k, replace=False)
        days = np.sort(rng.integers(0, 60, size=k))
        if u % 97 == 41:
            days = np.sort(rng.integers(50, 60, size=k))
        rows += [(u, int(i), int(d)) for i, d in zip(items, days)]
    return np.array(rows, dtype=np.int64)


class InteractionData:
    def __init__(self, log, split_day):
        self.n_users = int(log[:, 0].max()) + 1
        self.n_items = int(log[:, 1].max()) + 1
        self.train = log[log[:, 2] < split_day]
        self.test = log[log[:, 2] >= split_day]
        self.test_items = defaultdict(set)
        for u, i, _ in self.test:
            self.test_items[int(u)].add(int(i))

    def all_pos(self):
        order = np.argsort(self.train[:, 0], kind="stable")
        counts = np.bincount(self.train[:, 0], minlength=self.n_users)
        offsets = np.zeros(self.n_users + 1, dtype=np.int64)
        offsets[1:] = np.cumsum(counts)
        return offsets, np.ascontiguousarray(self.train[order, 1].astype(np.int32))


class LightModel(nn.Module):
    def __init__(self, n_users, n_items, dim=32):
        super().__init__()
        self.user, self.item = nn.Embedding(n_users, dim), nn.Embedding(n_items, dim)
        nn.init.normal_(self.user.weight, std=0.1)
        nn.init.normal_(self.item.weight, std=0.1)

    def bpr(self, u, i, j):
        eu, ei, ej = self.user(u), self.item(i), self.item(j)
        reg = (eu.pow(2).sum() + ei.pow(2).sum() + ej.pow(2).sum()) / len(u)
        return F.softplus((eu * ej).sum(1) - (eu * ei).sum(1)).mean() + 1e-4 * reg


def epoch_samples(dll, data):
    offsets, items = data.all_pos()
    per_user = len(data.train) // data.n_users
    out = np.empty((data.n_users * per_user, 3), dtype=np.int32)
    dll.sample_triplets(data.n_users, data.n_items, len(data.train),
                        offsets.ctypes.data, items.ctypes.data, out.ctypes.data)
    return torch.from_numpy(out).long()


def recall_at_20(model, data):
    scores = model.user.weight @ model.item.weight.T
    top = scores.topk(20, dim=1).indices.tolist()
    hits = [len(set(top[u]) & s) / len(s) for u, s in data.test_items.items()]
    return float(np.mean(hits))


def fit(data, dll, epochs, tag):
    torch.manual_seed(0)
    model = LightModel(data.n_users, data.n_items)
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)
    for ep in range(epochs):
        samples = epoch_samples(dll, data)
        samples = samples[torch.randperm(len(samples))]
        total = 0.0
        for b in samples.split(512):
            opt.zero_grad()
            loss = model.bpr(b[:, 0], b[:, 1], b[:, 2])
            loss.backward()
            opt.step()
            total += loss.item() * len(b)
        print(f"[{tag}] epoch {ep} loss {total / len(samples):.4f}", flush=True)
    with torch.no_grad():
        print(f"[{tag}] recall@20 {recall_at_20(model, data):.4f}", flush=True)


def main():
    dll = build_sampler()
    log = make_log()
    print("interactions", len(log))
    fit(InteractionData(log, split_day=55), dll, 3, "last 5 days held out")
    fit(InteractionData(log, split_day=50), dll, 3, "last 10 days held out")
    print("finished")


if __name__ == "__main__":
    main()
