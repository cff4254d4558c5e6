import argparse
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

NODE_TYPES = ["author", "paper", "venue"]


class CitationGraphs(Dataset):
    def __init__(self, n, seed, nodes=60, features=32):
        rng = np.random.default_rng(seed)
        self.graphs = []
        for _ in range(n):
            label = int(rng.integers(0, 3))
            types = rng.choice(len(NODE_TYPES), size=nodes, p=[0.5, 0.4, 0.1])
            x = rng.normal(size=(nodes, features)) + 0.3 * label * (types[:, None] == 1)
            edges = rng.integers(0, nodes, size=(2, nodes * (2 + label)))
            self.graphs.append((torch.tensor(x, dtype=torch.float32), torch.from_numpy(types),
                                torch.from_numpy(edges), label))

    def __len__(self):
        return len(self.graphs)

    def __getitem__(self, i):
        return self.graphs[i]


def collate(graphs):
    xs, types, edges, batch, labels, offset = [], [], [], [], [], 0
    for i, (x, t, e, y) in enumerate(graphs):
        xs.append(x)
        types.append(t)
        edges.append(e + offset)
        batch.append(torch.full((len(x),), i))
        labels.append(y)
        offset += len(x)
    return torch.cat(xs), torch.cat(types), torch.cat(edges, 1), torch.cat(batch), torch.tensor(labels)


class HeteroLinear(nn.Module):
    def __init__(self, in_channels, out_channels, num_types):
        super().__init__()
        self.out_channels = out_channels
        self.weight = nn.Parameter(torch.empty(num_types, out_channels, in_channels))
        self.bias = nn.Parameter(torch.zeros(num_types, out_channels))
        for w in self.weight:
            nn.init.kaiming_uniform_(w, a=5 ** 0.5)

    def forward(self, x, type_vec):
        out = x.new_empty(x.size(0), self.out_channels)
        for i in range(len(self.weight)):
            mask = type_vec == i
            out[mask] = F.linear(x[mask], self.weight[i], self.bias[i])
        return out


class HeteroConv(nn.Module):
    def __init__(self, channels, num_types):
        super().__init__()
        self.message = HeteroLinear(channels, channels, num_types)
        self.root = nn.Linear(channels, channels)
        self.norm = nn.LayerNorm(channels)

    def forward(self, x, types, edges):
        src, dst = edges
        msg = self.message(x, types)[src]
        agg = torch.zeros(x.size(0), msg.size(1), dtype=msg.dtype).index_add(0, dst, msg)
        return x + F.relu(self.norm(self.root(x) + agg))


class GraphClassifier(nn.Module):
    def __init__(self, features, hidden=64, depth=3, classes=3):
        super().__init__()
        self.embed = HeteroLinear(features, hidden, len(NODE_TYPES))
        self.convs = nn.ModuleList(HeteroConv(hidden, len(NODE_TYPES)) for _ in range(depth))
        self.head = nn.Linear(hidden, classes)

    def forward(self, x, types, edges, batch, size):
        x = self.embed(x, types)
        for conv in self.convs:
            x = conv(x, types, edges)
        x = x.float()
        pooled = torch.zeros(size, x.size(1)).index_add(0, batch, x) / batch.bincount(minlength=size)[:, None]
        return self.head(pooled)


@torch.no_grad()
def test(model, loader):
    model.eval()
    hits = total = 0
    for x, types, edges, batch, y in loader:
        hits += int((model(x, types, edges, batch, len(y)).argmax(1) == y).sum())
        total += len(y)
    return hits / total


def train(model, loader, optimizer, amp):
    model.train()
    total = 0.0
    for x, types, edges, batch, y in loader:
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=amp):
            out = model(x, types, edges, batch, len(y))
            loss = F.cross_entropy(out, y)
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total / len(loader)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--no-amp", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(12)
    train_loader = DataLoader(CitationGraphs(900, seed=1), batch_size=64, shuffle=True, collate_fn=collate)
    test_loader = DataLoader(CitationGraphs(300, seed=2), batch_size=64, collate_fn=collate)
    model = GraphClassifier(features=32)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    print(f"before training: test acc {test(model, test_loader):.3f}", flush=True)
    for epoch in range(1, args.epochs + 1):
        started = time.time()
        loss = train(model, train_loader, optimizer, amp=not args.no_amp)
        print(f"epoch {epoch:02d} loss {loss:.4f} test acc {test(model, test_loader):.3f} "
              f"({time.time() - started:.1f}s)", flush=True)


if __name__ == "__main__":
    main()
