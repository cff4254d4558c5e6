"""Neighbour-sampled GCN on a product co-purchase graph, with layer-wise sparse adjacencies."""
import argparse
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


class ProductGraph:
    def __init__(self, n=1_500_000, degree=8, dim=48, classes=12, seed=3):
        rng = np.random.default_rng(seed)
        self.n, self.dim, self.classes = n, dim, classes
        counts = rng.integers(2, 2 * degree, n)
        self.indptr = torch.from_numpy(np.concatenate([[0], np.cumsum(counts)]))
        self.indices = torch.from_numpy(rng.integers(0, n, int(counts.sum())))
        self.y = torch.from_numpy(rng.integers(0, classes, n))
        gen = torch.Generator().manual_seed(seed)
        self.x = torch.randn(n, dim, generator=gen)
        self.x[:, :classes] += F.one_hot(self.y, classes)


class Sampler:
    """Samples, for a set of target nodes, up to `fanout` neighbours each."""

    def __init__(self, graph, fanouts, cache=True):
        self.graph, self.fanouts = graph, fanouts
        self.lookup = torch.full((graph.n,), -1, dtype=torch.long)
        self.gen = torch.Generator().manual_seed(11)

    def layer(self, targets, fanout):
        g = self.graph
        start, deg = g.indptr[targets], g.indptr[targets + 1] - g.indptr[targets]
        take = deg.clamp(max=fanout)
        rowptr = torch.cat([torch.zeros(1, dtype=torch.long), take.cumsum(0)])
        pos = torch.arange(int(rowptr[-1])) - rowptr[:-1].repeat_interleave(take)
        shift = (torch.rand(len(targets), generator=self.gen) * deg).long().repeat_interleave(take)
        edges = start.repeat_interleave(take) + (pos + shift) % deg.repeat_interleave(take)
        return rowptr, g.indices[edges]

    def relabel(self, nodes, col):
        fresh = torch.unique(col)
        self.lookup[nodes] = torch.arange(len(nodes))
        fresh = fresh[self.lookup[fresh] < 0]
        all_nodes = torch.cat([nodes, fresh])
        self.lookup[all_nodes] = torch.arange(len(all_nodes))
        local = self.lookup[col]
        self.lookup[all_nodes] = -1
        return all_nodes, local

    def __call__(self, seeds):
        nodes, blocks = seeds, []
        for fanout in self.fanouts:
            rowptr, col = self.layer(nodes, fanout)
            nodes_in, local = self.relabel(nodes, col)
            weight = 1.0 / (rowptr[1:] - rowptr[:-1]).repeat_interleave(rowptr.diff()).float()
            blocks.append((rowptr, local, weight, (len(nodes), len(nodes_in))))
            nodes = nodes_in
        return nodes, blocks[::-1]

    def full(self, seeds):
        rowptr, col = self.layer(seeds, int(self.graph.indptr.diff().max()))
        nodes, _ = self.relabel(seeds, col)
        weight = torch.ones(len(col)) / (rowptr[1:] - rowptr[:-1]).repeat_interleave(rowptr.diff())
        return nodes, [(rowptr, col, weight, (len(seeds), len(nodes)))]


class GCN(nn.Module):
    def __init__(self, dim, hidden, classes):
        super().__init__()
        self.inp = nn.Linear(dim, hidden)
        self.out = nn.Linear(hidden, classes)

    def forward(self, x, blocks):
        h = F.relu(self.inp(x))
        for rowptr, col, weight, shape in blocks:
            adj = torch.sparse_csr_tensor(rowptr, col, weight, size=shape, check_invariants=False)
            h = h[:shape[0]] + adj @ h
        return self.out(h)


def train(graph, model, args):
    sampler = Sampler(graph, fanouts=[5, 5])
    opt = torch.optim.Adam(model.parameters(), lr=args.lr)
    order = torch.randperm(graph.n, generator=torch.Generator().manual_seed(0))
    for step in range(args.steps):
        seeds = order[step * args.batch:(step + 1) * args.batch]
        nodes, blocks = sampler(seeds)
        loss = F.cross_entropy(model(graph.x[nodes], blocks), graph.y[seeds])
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 3 == 0:
            print(f"step {step} loss {loss.item():.3f} nodes {len(nodes)}", flush=True)
    return order[-args.test:]


@torch.no_grad()
def evaluate(graph, model, test_nodes, args):
    sampler = Sampler(graph, fanouts=[])
    correct = 0
    for seeds in test_nodes.split(args.batch):
        nodes, blocks = sampler.full(seeds)
        pred = model(graph.x[nodes], blocks).argmax(1)
        correct += int((pred == graph.y[seeds]).sum())
    return correct / len(test_nodes)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--batch", type=int, default=512)
    p.add_argument("--steps", type=int, default=8)
    p.add_argument("--test", type=int, default=4096)
    p.add_argument("--hidden", type=int, default=128)
    p.add_argument("--lr", type=float, default=0.01)
    args = p.parse_args()
    torch.manual_seed(0)
    start = time.time()
    graph = ProductGraph()
    print(f"graph: {graph.n} nodes, {len(graph.indices)} edges, {time.time() - start:.1f}s", flush=True)
    model = GCN(graph.dim, args.hidden, graph.classes)
    test_nodes = train(graph, model, args)
    print(f"training finished, {time.time() - start:.1f}s", flush=True)
    print(f"test accuracy {evaluate(graph, model, test_nodes, args):.3f}")


if __name__ == "__main__":
    main()
