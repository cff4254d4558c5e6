import argparse
import logging
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

logging.basicConfig(format="%(asctime)s %(message)s", datefmt="%H:%M:%S", level=logging.INFO)
log = logging.getLogger("gae")


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=6)
    p.add_argument("--graphs", type=int, default=480)
    p.add_argument("--hidden", type=int, default=64)
    p.add_argument("--latent", type=int, default=16)
    p.add_argument("--lr", type=float, default=5e-3)
    p.add_argument("--seed", type=int, default=52)
    return p.parse_args()


def make_molecule(rng, atom_types):
    n = int(np.clip(rng.normal(58, 9), 26, 96))
    chain = np.stack([np.arange(n - 1), np.arange(1, n)])
    k = max(2, n // 6)
    a = rng.integers(0, n, k)
    b = np.clip(a + rng.integers(2, 6, k), 0, n - 1)
    rings = np.stack([a, b])[:, a != b]
    edges = np.concatenate([chain, rings], axis=1)
    edges = np.concatenate([edges, edges[::-1]], axis=1)
    kinds = rng.integers(0, atom_types, n)
    x = np.eye(atom_types, dtype=np.float32)[kinds]
    return torch.from_numpy(x), torch.from_numpy(np.ascontiguousarray(edges))


class GraphDataset(torch.utils.data.Dataset):
    def __init__(self, count, atom_types, seed):
        rng = np.random.default_rng(seed)
        self.items = [make_molecule(rng, atom_types) for _ in range(count)]

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


def gcn_norm(edge_index, num_nodes):
    loops = torch.arange(num_nodes)
    edge_index = torch.cat([edge_index, torch.stack([loops, loops])], dim=1)
    row, col = edge_index
    deg = torch.zeros(num_nodes).scatter_add_(0, col, torch.ones(col.numel()))
    inv = deg.pow(-0.5)
    return edge_index, inv[row] * inv[col]


class GCNConv(nn.Module):
    def __init__(self, in_channels, out_channels, cached=False):
        super().__init__()
        self.cached = cached
        self.lin = nn.Linear(in_channels, out_channels, bias=False)
        self.bias = nn.Parameter(torch.zeros(out_channels))
        self._cached_adj = None

    def forward(self, x, edge_index):
        if self._cached_adj is None:
            edge_index, weight = gcn_norm(edge_index, x.size(0))
            if self.cached:
                self._cached_adj = (edge_index, weight)
        else:
            edge_index, weight = self._cached_adj
        h = self.lin(x)
        row, col = edge_index
        messages = h.index_select(0, row) * weight.unsqueeze(1)
        return torch.zeros_like(h).index_add(0, col, messages) + self.bias


class Encoder(nn.Module):
    def __init__(self, in_channels, hidden, latent):
        super().__init__()
        self.conv1 = GCNConv(in_channels, hidden, cached=True)
        self.conv_mu = GCNConv(hidden, latent, cached=True)
        self.conv_logstd = GCNConv(hidden, latent, cached=True)

    def forward(self, x, edge_index):
        h = F.relu(self.conv1(x, edge_index))
        return self.conv_mu(h, edge_index), self.conv_logstd(h, edge_index)


class VGAE(nn.Module):
    def __init__(self, encoder):
        super().__init__()
        self.encoder = encoder

    def loss(self, x, edge_index):
        mu, logstd = self.encoder(x, edge_index)
        logstd = logstd.clamp(max=10)
        z = mu + torch.randn_like(mu) * logstd.exp()
        pos = (z[edge_index[0]] * z[edge_index[1]]).sum(1)
        fake = torch.randint(0, x.size(0), edge_index.shape)
        neg = (z[fake[0]] * z[fake[1]]).sum(1)
        rec = F.softplus(-pos).mean() + F.softplus(neg).mean()
        kl = -0.5 * (1 + 2 * logstd - mu ** 2 - (2 * logstd).exp()).sum(1).mean()
        return rec + kl / x.size(0)


def main():
    args = parse_args()
    torch.manual_seed(args.seed)
    dataset = GraphDataset(args.graphs, 12, args.seed)
    loader = torch.utils.data.DataLoader(dataset, batch_size=1, shuffle=True, collate_fn=lambda b: b[0])
    sizes = [x.size(0) for x, _ in dataset.items]
    log.info("%d molecules, %d to %d atoms", len(dataset), min(sizes), max(sizes))
    model = VGAE(Encoder(12, args.hidden, args.latent))
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    for epoch in range(args.epochs):
        start, total = time.time(), 0.0
        for step, (x, edge_index) in enumerate(loader):
            optimizer.zero_grad()
            loss = model.loss(x, edge_index)
            loss.backward()
            optimizer.step()
            total += loss.item()
            if step % 40 == 0:
                log.info("epoch %d step %d loss %.4f", epoch, step, loss.item())
        log.info("epoch %d mean loss %.4f (%.1fs)", epoch, total / len(loader), time.time() - start)


if __name__ == "__main__":
    main()
