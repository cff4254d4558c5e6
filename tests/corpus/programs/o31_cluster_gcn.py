"""Cluster-GCN style training on a citation-like graph (mini-batches are unions of clusters)."""
import ctypes
import os
import subprocess
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

WORK = "/tmp/o31_cluster_gcn"

KERNEL = r"""
#include <stdlib.h>
#include <stdint.h>
/* greedy label-propagation refinement of a k-way partition, in place */
long refine(int64_t n, const int64_t *ptr, const int64_t *idx,
            int nparts, int iters, double slack, int64_t *part) {
    int64_t *weight = calloc(nparts, sizeof(int64_t));
    int64_t *votes = calloc(nparts, sizeof(int64_t));
    int64_t cap = (int64_t)(slack * n / nparts) + 1;
    long moved = 0;
    for (int64_t v = 0; v < n; v++) weight[part[v]]++;
    for (int it = 0; it < iters; it++) {
        for (int64_t v = 0; v < n; v++) {
            int64_t best = part[v];
            for (int64_t e = ptr[v]; e < ptr[v + 1]; e++) votes[part[idx[e]]]++;
            for (int64_t e = ptr[v]; e < ptr[v + 1]; e++) {
                int64_t p = part[idx[e]];
                if (votes[p] > votes[best] && weight[p] < cap) best = p;
            }
            for (int64_t e = ptr[v]; e < ptr[v + 1]; e++) votes[part[idx[e]]]--;
            if (best != part[v]) { weight[part[v]]--; weight[best]++; part[v] = best; moved++; }
        }
    }
    free(votes);
    free(weight);
    return moved;
}
"""


def build_kernel():
    os.makedirs(WORK, exist_ok=True)
    src, lib = os.path.join(WORK, "refine.c"), os.path.join(WORK, "librefine.so")
    with open(src, "w") as f:
        f.write(KERNEL)
    subprocess.run(["gcc", "-O2", "-fPIC", "-shared", "-o", lib, src], check=True)
    dll = ctypes.CDLL(lib)
    p64 = ctypes.POINTER(ctypes.c_int64)
    dll.refine.argtypes = [ctypes.c_int64, p64, p64, ctypes.c_int, ctypes.c_int, ctypes.c_double, p64]
    dll.refine.restype = ctypes.c_long
    return dll


class Graph:
    def __init__(self, n=32242, dim=32, classes=7, seed=0):
        rng = np.random.default_rng(seed)
        src = np.repeat(np.arange(n), 6)
        dst = (src + rng.integers(-40, 41, src.size)) % n
        row, col = np.concatenate([src, dst]), np.concatenate([dst, src])
        order = np.argsort(row, kind="stable")
        self.n, self.indices = n, np.ascontiguousarray(col[order], dtype=np.int64)
        self.indptr = np.zeros(n + 1, dtype=np.int64)
        np.cumsum(np.bincount(row, minlength=n), out=self.indptr[1:])
        self.y = torch.from_numpy((np.arange(n) * classes // n).astype(np.int64))
        self.x = torch.randn(n, dim) + F.one_hot(self.y, dim).float()


class ClusterData:
    def __init__(self, graph, num_parts, kernel, iters=4):
        self.graph, self.num_parts = graph, num_parts
        part = self.initial(graph.n, num_parts)
        p64 = ctypes.POINTER(ctypes.c_int64)
        moved = kernel.refine(graph.n, graph.indptr.ctypes.data_as(p64), graph.indices.ctypes.data_as(p64),
                              num_parts, iters, 1.3, part.ctypes.data_as(p64))
        self.members = [np.flatnonzero(part == p) for p in np.unique(part)]
        print(f"partitioned into {num_parts} parts ({moved} moves)", flush=True)

    @staticmethod
    def initial(n, num_parts):
        return np.arange(n, dtype=np.int64) // (n // num_parts)

    def batches(self, per_batch, rng):
        order = rng.permutation(len(self.members))
        for i in range(0, len(order), per_batch):
            nodes = np.concatenate([self.members[p] for p in order[i:i + per_batch]])
            yield torch.from_numpy(nodes), self.subgraph(nodes)

    def subgraph(self, nodes):
        g = self.graph
        local = np.full(g.n, -1, dtype=np.int64)
        local[nodes] = np.arange(nodes.size)
        row = np.repeat(np.arange(nodes.size), g.indptr[nodes + 1] - g.indptr[nodes])
        col = local[np.concatenate([g.indices[g.indptr[v]:g.indptr[v + 1]] for v in nodes])]
        keep = col >= 0
        return torch.from_numpy(np.stack([row[keep], col[keep]]))


class GCN(nn.Module):
    def __init__(self, dim=32, hidden=64, classes=7):
        super().__init__()
        self.l1, self.l2 = nn.Linear(dim, hidden), nn.Linear(hidden, classes)

    def forward(self, x, edge):
        for lin, act in ((self.l1, F.relu), (self.l2, lambda t: t)):
            h = lin(x)
            x = act(h + torch.zeros_like(h).index_add_(0, edge[0], h[edge[1]]) / 12)
        return x


def run_epoch(model, opt, graph, clusters, per_batch, rng):
    total, correct = 0, 0
    for nodes, edge in clusters.batches(per_batch, rng):
        out = model(graph.x[nodes], edge)
        loss = F.cross_entropy(out, graph.y[nodes])
        opt.zero_grad()
        loss.backward()
        opt.step()
        total += nodes.numel()
        correct += int((out.argmax(1) == graph.y[nodes]).sum())
    return correct / total


def main():
    torch.manual_seed(0)
    rng = np.random.default_rng(1)
    kernel, graph = build_kernel(), Graph()
    model = GCN()
    opt = torch.optim.Adam(model.parameters(), lr=0.01)
    schedule = [(50, 5), (6000, 600)]
    for num_parts, per_batch in schedule:
        start = time.time()
        clusters = ClusterData(graph, num_parts, kernel)
        for epoch in range(2):
            acc = run_epoch(model, opt, graph, clusters, per_batch, rng)
            print(f"parts {num_parts} epoch {epoch} acc {acc:.3f} {time.time() - start:.1f}s", flush=True)
    torch.save(model.state_dict(), os.path.join(WORK, "gcn.pt"))
    print("done")


if __name__ == "__main__":
    main()
