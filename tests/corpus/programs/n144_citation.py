"""Two-layer graph convolution on a citation graph, adjacency kept as a CSR tensor."""
import argparse

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


class PaperGraph:
    def __init__(self, n_papers, n_topics, n_features, seed):
        rng = np.random.default_rng(seed)
        self.n_papers = n_papers
        self.topics = rng.integers(0, n_topics, n_papers)
        centres = rng.normal(size=(n_topics, n_features))
        noise = rng.normal(scale=1.5, size=(n_papers, n_features))
        self.features = (centres[self.topics] + noise).astype(np.float32)
        self.cites = []
        for paper in range(n_papers):
            same = np.flatnonzero(self.topics == self.topics[paper])
            linked = set(rng.choice(same, size=6).tolist())
            linked |= set(rng.choice(n_papers, size=3).tolist())
            linked.add(paper)
            self.cites.append(sorted(linked))

    def degrees(self):
        return torch.tensor([len(linked) for linked in self.cites], dtype=torch.float32)

    def adjacency(self):
        degree = self.degrees()
        crow = torch.zeros(self.n_papers + 1, dtype=torch.int64)
        crow[1:] = degree.long().cumsum(0)
        col = torch.tensor([target for linked in self.cites for target in linked])
        weight = 1.0 / degree
        return torch.sparse_csr_tensor(crow, col, weight, size=(self.n_papers, self.n_papers))


class GraphConv(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.linear = nn.Linear(n_in, n_out)

    def forward(self, adj, x):
        return adj @ self.linear(x)


class CitationNet(nn.Module):
    def __init__(self, n_features, hidden, n_topics):
        super().__init__()
        self.gc1 = GraphConv(n_features, hidden)
        self.gc2 = GraphConv(hidden, n_topics)

    def forward(self, adj, x):
        return self.gc2(adj, F.relu(self.gc1(adj, x)))


def pretrain_features(features, topics, n_topics, epochs):
    probe = nn.Linear(features.shape[1], n_topics)
    optimizer = torch.optim.Adam(probe.parameters(), lr=0.02)
    for epoch in range(epochs):
        loss = F.cross_entropy(probe(features), topics)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    accuracy = (probe(features).argmax(1) == topics).float().mean().item()
    print(f"feature-only baseline: loss {loss.item():.4f} acc {accuracy:.3f}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--papers", type=int, default=3000)
    parser.add_argument("--topics", type=int, default=7)
    parser.add_argument("--features", type=int, default=48)
    parser.add_argument("--hidden", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=10)
    args = parser.parse_args()

    torch.manual_seed(11)
    graph = PaperGraph(args.papers, args.topics, args.features, seed=11)
    features = torch.from_numpy(graph.features)
    topics = torch.from_numpy(graph.topics)
    pretrain_features(features, topics, args.topics, epochs=30)

    adj = graph.adjacency()
    print(f"adjacency {tuple(adj.shape)}, mean degree {graph.degrees().mean().item():.2f}", flush=True)
    dense = adj.to_dense()
    print(f"row sums between {dense.sum(1).min().item():.3f} and {dense.sum(1).max().item():.3f}", flush=True)

    model = CitationNet(args.features, args.hidden, args.topics)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for epoch in range(args.epochs):
        loss = F.cross_entropy(model(dense, features), topics)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"epoch {epoch} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
