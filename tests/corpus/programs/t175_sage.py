"""GraphSAGE on a co-purchase graph: predict the department of a product."""
import argparse
import ctypes
import os
import subprocess
import tempfile

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader

HERE = os.path.dirname(os.path.abspath(__file__))


def build_sampler():
    so = os.path.join(tempfile.mkdtemp(prefix="sampler_"), "sample_adj.so")
    subprocess.run(["gcc", "-O1", "-g", "-shared", "-fPIC", os.path.join(HERE, "sample_adj.c"), "-o", so], check=True)
    lib = ctypes.CDLL(so)
    lib.sample_adj.restype = ctypes.c_int64
    lib.sample_adj.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_int64] * 2 + [ctypes.c_void_p] * 2
    return lib


def make_catalogue(n_products, n_departments, seed):
    rng = np.random.default_rng(seed)
    dept = rng.integers(0, n_departments, size=n_products).astype(np.uint8)
    centres = rng.normal(size=(n_departments, 12)).astype(np.float16)
    x = centres[dept] + rng.normal(scale=1.2, size=(n_products, 12)).astype(np.float16)
    return torch.from_numpy(x), torch.from_numpy(dept)


def load_orders(dept, n_sold, n_pairs, seed):
    """Pairs of products that were bought together, both directions."""
    rng = np.random.default_rng(seed)
    order = np.argsort(dept[:n_sold].numpy(), kind="stable")
    a = rng.integers(0, n_sold - 40, size=n_pairs)
    b = a + rng.integers(1, 40, size=n_pairs)
    pairs = np.stack([order[a], order[b]])
    return torch.from_numpy(np.concatenate([pairs, pairs[::-1]], axis=1))


class NeighborLoader(DataLoader):
    def __init__(self, lib, edge_index, node_idx, size, **kwargs):
        self.lib, self.size = lib, size
        num_nodes = int(edge_index.max()) + 1
        perm = edge_index[0].argsort(stable=True)
        self.col = edge_index[1][perm].int()
        counts = torch.bincount(edge_index[0], minlength=num_nodes)
        self.rowptr = torch.cat([counts.new_zeros(1), counts.cumsum(0)]).int()
        super().__init__(node_idx.tolist(), collate_fn=self.sample, **kwargs)

    def sample(self, batch):
        idx = torch.tensor(batch)
        pos = torch.empty(len(batch) * self.size, dtype=torch.long)
        nbr = torch.empty_like(pos)
        m = self.lib.sample_adj(self.rowptr.data_ptr(), self.col.data_ptr(), idx.data_ptr(), len(batch),
                                self.size, pos.data_ptr(), nbr.data_ptr())
        return idx, pos[:m], nbr[:m]


class SAGE(nn.Module):
    def __init__(self, n_in, n_hidden, n_out):
        super().__init__()
        self.own = nn.Linear(n_in, n_hidden)
        self.nbr = nn.Linear(n_in, n_hidden)
        self.out = nn.Linear(n_hidden, n_out)

    def forward(self, x, idx, pos, nbr):
        total = torch.zeros(len(idx), x.size(1)).index_add_(0, pos, x[nbr].float())
        degree = torch.bincount(pos, minlength=len(idx)).clamp(min=1)
        return self.out(F.relu(self.own(x[idx].float()) + self.nbr(total / degree[:, None])))


def run_epoch(model, loader, x, y, optimizer=None):
    correct = seen = 0
    for idx, pos, nbr in loader:
        logits = model(x, idx, pos, nbr)
        target = y[idx].long()
        if optimizer is not None:
            loss = F.cross_entropy(logits, target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        correct += int((logits.argmax(1) == target).sum())
        seen += len(idx)
    return correct / seen


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--products", type=int, default=600_000)
    parser.add_argument("--sold", type=int, default=150_000)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--workers", type=int, default=1)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    x, y = make_catalogue(args.products, 8, seed=1)
    edge_index = load_orders(y, args.sold, 500_000, seed=2)
    print(f"{len(x)} products, {edge_index.size(1)} co-purchase edges", flush=True)
    lib = build_sampler()
    train_idx = torch.randperm(args.sold)[:20_000]
    test_idx = torch.randperm(args.products)[:8_000]
    train_loader = NeighborLoader(lib, edge_index, train_idx, 10, batch_size=256, shuffle=True,
                                  num_workers=args.workers)
    test_loader = NeighborLoader(lib, edge_index, test_idx, 10, batch_size=256, num_workers=args.workers)
    model = SAGE(x.size(1), 48, 8)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(args.epochs):
        acc = run_epoch(model, train_loader, x, y, optimizer)
        print(f"epoch {epoch + 1} train accuracy {acc:.3f}", flush=True)
    with torch.no_grad():
        print(f"test accuracy {run_epoch(model, test_loader, x, y):.3f}")


if __name__ == "__main__":
    main()
