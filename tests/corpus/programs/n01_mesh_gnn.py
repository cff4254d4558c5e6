"""Train a small message-passing network on randomly refined meshes."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class EdgeBlock(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.mlp = nn.Linear(2 * dim, dim)

    def forward(self, x, src, dst):
        return F.gelu(self.mlp(torch.cat([x[src], x[dst]], dim=-1)))


def gather_messages(msg, dst, weight, n_nodes):
    agg = torch.zeros(n_nodes, msg.size(1))
    agg = agg.index_add(0, dst, msg * weight.unsqueeze(1))
    return F.relu(agg)


class MeshNet(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.lift = nn.Linear(3, dim)
        self.edge = EdgeBlock(dim)
        self.head = nn.Linear(dim, 1)
        self.gather = torch.compile(gather_messages)

    @torch.no_grad()
    def forward(self, pos, edges, weight):
        x = self.lift(pos)
        msg = self.edge(x, edges[0], edges[1])
        agg = self.gather(msg, self.owner[edges[1]], weight, int(self.n_owned))
        return self.head(agg).mean()

    def set_partition(self, owner, n_owned):
        self.owner = owner
        self.n_owned = n_owned


def build_mesh(n_nodes, n_edges, gen):
    pos = torch.randn(n_nodes, 3, generator=gen)
    edges = torch.randint(0, n_nodes, (2, n_edges), generator=gen)
    weight = torch.rand(n_edges, generator=gen)
    return pos, edges, weight


def partition(n_nodes, parts):
    """Assign every node to one of the coarse cells."""
    cell = torch.arange(n_nodes) * parts // (n_nodes - 1)
    return cell, parts


def main():
    gen = torch.Generator().manual_seed(3)
    net = MeshNet().eval()
    pos, edges, weight = build_mesh(20_000, 60_000, gen)
    cell, n_cells = partition(pos.size(0), 4096)
    net.set_partition(cell, n_cells)
    print("mesh:", pos.size(0), "nodes,", edges.size(1), "edges,", n_cells, "cells")
    out = net(pos, edges, weight)
    print("energy", float(out))


if __name__ == "__main__":
    main()
