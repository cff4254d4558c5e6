"""Train a two-layer graph network on follow graphs, one month after another."""
import argparse

import torch
from torch import nn


class MonthlyGraph:
    """Edges of one month; users are numbered 0..num_users-1."""

    def __init__(self, month, num_users, num_edges):
        gen = torch.Generator().manual_seed(month)
        self.num_users = num_users
        src = torch.randint(0, num_users, (num_edges,), generator=gen)
        dst = torch.randint(0, num_users, (num_edges,), generator=gen)
        self.edges = torch.stack((src, dst))

    def append_export(self, lines):
        rows = [tuple(int(v) for v in line.split(",")) for line in lines]
        self.edges = torch.cat((self.edges, torch.tensor(rows).t()), dim=1)

    def adjacency(self):
        n = self.num_users
        weight = torch.ones(self.edges.size(1))
        adj = torch.sparse_coo_tensor(self.edges, weight, (n, n)).coalesce()
        return adj.to_sparse_csr()


class GraphNet(nn.Module):
    def __init__(self, features, hidden, classes):
        super().__init__()
        self.lin1 = nn.Linear(features, hidden)
        self.lin2 = nn.Linear(hidden, classes)

    def forward(self, adj, x):
        h = torch.relu(self.lin1(adj @ x))
        return self.lin2(adj @ h)


LATE_EXPORT = [
    "17,4402",
    "2051,388",
    "1290331742,15",
    "64,1290331742",
    "933,12",
]


def load_month(month, args):
    graph = MonthlyGraph(month, args.users, args.edges)
    if month == args.months - 1:
        graph.append_export(LATE_EXPORT)
    return graph


def degree_scale(adj):
    crow = adj.crow_indices()
    degree = (crow[1:] - crow[:-1]).clamp(min=1).float()
    return degree.rsqrt().unsqueeze(1)


def train_month(model, opt, graph, x, labels, steps):
    adj = graph.adjacency()
    scale = degree_scale(adj)
    loss = None
    for _ in range(steps):
        logits = model(adj, x * scale)
        loss = nn.functional.cross_entropy(logits, labels)
        opt.zero_grad()
        loss.backward()
        opt.step()
    return adj.values().numel(), loss.item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--users", type=int, default=5000)
    parser.add_argument("--edges", type=int, default=20000)
    parser.add_argument("--months", type=int, default=4)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--features", type=int, default=16)
    args = parser.parse_args()

    torch.manual_seed(0)
    x = torch.randn(args.users, args.features)
    labels = (x[:, 0] > 0).long()
    model = GraphNet(args.features, 32, 2)
    opt = torch.optim.Adam(model.parameters(), lr=0.01)
    for month in range(args.months):
        graph = load_month(month, args)
        edges, loss = train_month(model, opt, graph, x, labels, args.steps)
        print(f"month {month}: {edges} edges, loss {loss:.4f}", flush=True)
    torch.save(model.state_dict(), "graphnet.pt")
    print("model saved", flush=True)


if __name__ == "__main__":
    main()
