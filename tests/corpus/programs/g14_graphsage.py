import ctypes
import os
import subprocess
import tempfile

import torch
import torch.nn as nn

SAMPLER_C = r"""
#include <stdint.h>
#include <stdlib.h>

/* one hop of neighbour sampling on a CSR adjacency; returns the number of sampled edges */
int64_t sample_adj(const int64_t *rowptr, const int64_t *col, const int64_t *nodes, int64_t n_nodes,
                   int64_t fanout, int64_t *out_col, int64_t *out_ptr)
{
    int64_t used = 0;
    out_ptr[0] = 0;
    for (int64_t i = 0; i < n_nodes; i++) {
        int64_t start = rowptr[nodes[i]], end = rowptr[nodes[i] + 1];
        int64_t degree = end - start;
        if (degree <= fanout) {
            for (int64_t e = start; e < end; e++)
                out_col[used++] = col[e];
        } else {
            for (int64_t k = 0; k < fanout; k++)
                out_col[used++] = col[start + rand() % degree];
        }
        out_ptr[i + 1] = used;
    }
    return used;
}
"""


def load_sampler():
    build = tempfile.mkdtemp(prefix="sampler")
    src, so = os.path.join(build, "sampler.c"), os.path.join(build, "libsampler.so")
    with open(src, "w") as f:
        f.write(SAMPLER_C)
    subprocess.check_call(["gcc", "-O2", "-g", "-shared", "-fPIC", "-o", so, src])
    lib = ctypes.CDLL(so)
    lib.sample_adj.restype = ctypes.c_int64
    lib.sample_adj.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_int64] * 2 + [ctypes.c_void_p] * 2
    return lib


class NeighborSampler:
    def __init__(self, edge_index, node_idx, fanout, batch_size):
        row, col = edge_index
        num_nodes = int(edge_index.max()) + 1
        order = row.argsort()
        self.col = col[order].contiguous()
        self.rowptr = torch.zeros(num_nodes + 1, dtype=torch.long)
        self.rowptr[1:] = torch.bincount(row, minlength=num_nodes).cumsum(0)
        self.node_idx, self.fanout, self.batch_size = node_idx, fanout, batch_size
        self.lib = load_sampler()

    def __iter__(self):
        perm = self.node_idx[torch.randperm(self.node_idx.numel())]
        for nodes in perm.split(self.batch_size):
            nodes = nodes.contiguous()
            out_col = torch.empty(nodes.numel() * self.fanout, dtype=torch.long)
            out_ptr = torch.empty(nodes.numel() + 1, dtype=torch.long)
            n = self.lib.sample_adj(self.rowptr.data_ptr(), self.col.data_ptr(), nodes.data_ptr(), nodes.numel(),
                                    self.fanout, out_col.data_ptr(), out_ptr.data_ptr())
            yield nodes, out_col[:n], out_ptr


class SAGE(nn.Module):
    def __init__(self, dim, classes):
        super().__init__()
        self.self_lin, self.neigh_lin = nn.Linear(dim, 64), nn.Linear(dim, 64)
        self.out = nn.Linear(64, classes)

    def forward(self, x, nodes, neigh, ptr):
        dst = torch.repeat_interleave(torch.arange(nodes.numel()), ptr.diff())
        agg = torch.zeros(nodes.numel(), x.size(1)).index_add(0, dst, x[neigh])
        agg = agg / ptr.diff().clamp(min=1).unsqueeze(1)
        return self.out(torch.relu(self.self_lin(x[nodes]) + self.neigh_lin(agg)))


def load_items(num_items=60000, seen=42000, num_edges=300000, dim=32):
    """Co-click graph of the items of a shop."""
    g = torch.Generator().manual_seed(5)
    edge_index = torch.randint(0, seen, (2, num_edges), generator=g)
    return edge_index, torch.randn(num_items, dim, generator=g), torch.randint(0, 10, (num_items,), generator=g)


def main():
    torch.manual_seed(0)
    edge_index, x, y = load_items()
    train_idx = torch.randperm(x.size(0))[: int(0.8 * x.size(0))]
    loader = NeighborSampler(edge_index, train_idx, fanout=10, batch_size=512)
    model = SAGE(x.size(1), 10)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for epoch in range(3):
        for step, (nodes, neigh, ptr) in enumerate(loader):
            loss = nn.functional.cross_entropy(model(x, nodes, neigh, ptr), y[nodes])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch} loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
