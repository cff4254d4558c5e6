"""Node classification on a citation graph with two propagation layers."""
import argparse
import warnings

import numpy as np
import torch
from torch import nn

warnings.filterwarnings("ignore", message="Sparse CSR tensor support")


class PaperTable:
    """Papers with their archive numbers and the citations between them."""

    def __init__(self, papers, cites, seed=0):
        rng = np.random.default_rng(seed)
        self.numbers = np.sort(rng.choice(200_000_000, papers, replace=False)) + 40_000_000
        self.topic = rng.integers(0, 5, papers)
        self.words = rng.normal(0, 1, (papers, 32)).astype(np.float32)
        self.words[np.arange(papers), self.topic] += 2.0
        src = rng.integers(0, papers, cites)
        dst = rng.integers(0, papers, cites)
        self.citing = self.numbers[src]
        self.cited = self.numbers[dst]


class Graph:
    def __init__(self, table):
        self.size = len(table.numbers)
        self.numbers = table.numbers
        rows = np.searchsorted(table.numbers, table.citing)
        order = np.argsort(rows, kind="stable")
        self.rows = rows[order]
        self.cols = table.cited[order]

    def degrees(self):
        return np.bincount(self.rows, minlength=self.size)

    def row_pointer(self):
        return np.concatenate([[0], np.cumsum(self.degrees())])

    def adjacency(self):
        weight = 1.0 / self.degrees()[self.rows]
        return torch.sparse_csr_tensor(torch.from_numpy(self.row_pointer()),
                                       torch.from_numpy(self.cols),
                                       torch.from_numpy(weight.astype(np.float32)),
                                       size=(self.size, self.size))

    def summary(self):
        d = self.degrees()
        return f"{self.size} papers, {len(self.rows)} citations, degree {d.mean():.1f} (max {d.max()})"


class Propagate(nn.Module):
    def __init__(self, fan_in, fan_out):
        super().__init__()
        self.own = nn.Linear(fan_in, fan_out)
        self.near = nn.Linear(fan_in, fan_out, bias=False)

    def forward(self, x, adj):
        return self.own(x) + adj @ self.near(x)


class GraphNet(nn.Module):
    def __init__(self, words, hidden, topics):
        super().__init__()
        self.first = Propagate(words, hidden)
        self.second = Propagate(hidden, topics)

    def forward(self, x, adj):
        return self.second(torch.relu(self.first(x, adj)), adj)


def split(size, seed):
    order = torch.randperm(size, generator=torch.Generator().manual_seed(seed))
    cut = int(0.6 * size)
    return order[:cut], order[cut:]


def fit(name, run, parameters, labels, train, test, epochs):
    opt = torch.optim.Adam(parameters, lr=0.01)
    for _ in range(epochs):
        loss = nn.functional.cross_entropy(run()[train], labels[train])
        opt.zero_grad()
        loss.backward()
        opt.step()
    with torch.no_grad():
        acc = (run()[test].argmax(1) == labels[test]).float().mean()
    print(f"{name}: loss {loss.item():.3f} test accuracy {acc.item():.3f}", flush=True)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--papers", type=int, default=4000)
    p.add_argument("--cites", type=int, default=30000)
    p.add_argument("--epochs", type=int, default=20)
    args = p.parse_args()
    torch.manual_seed(0)
    table = PaperTable(args.papers, args.cites)
    words, labels = torch.from_numpy(table.words), torch.from_numpy(table.topic)
    train, test = split(args.papers, 1)
    plain = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 5))
    fit("words only", lambda: plain(words), plain.parameters(), labels, train, test, args.epochs)
    graph = Graph(table)
    print(graph.summary(), flush=True)
    adj = graph.adjacency()
    print(f"adjacency {tuple(adj.shape)} with {adj.values().numel()} entries", flush=True)
    net = GraphNet(32, 32, 5)
    fit("with graph", lambda: net(words, adj), net.parameters(), labels, train, test, args.epochs)
    print("done")


if __name__ == "__main__":
    main()
