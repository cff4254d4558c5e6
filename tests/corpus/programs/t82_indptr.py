"""LightGCN on sharded interaction logs: build the adjacency per shard, propagate, train with BPR."""
import os
import warnings

import numpy as np
import torch
from torch import nn
import torch.nn.functional as F

warnings.filterwarnings("ignore", message="Sparse CSR")
WORK = "/tmp/t82_indptr_shards"


class ShardWriter:
    """Stores one block of rows as indptr / indices / weights next to an index file."""

    def __init__(self, folder):
        self.folder = folder
        os.makedirs(folder, exist_ok=True)

    def write(self, number, rows, cols, n_rows):
        order = np.lexsort((cols, rows))
        rows, cols = rows[order], cols[order].astype(np.int64)
        counts = np.bincount(rows, minlength=n_rows)
        starts = np.concatenate([[0], np.cumsum(counts)])
        base = os.path.join(self.folder, f"part{number}")
        cols.tofile(base + ".indices")
        (starts * cols.itemsize).astype(np.int64).tofile(base + ".offsets")
        (1.0 / np.maximum(counts[rows], 1)).astype(np.float32).tofile(base + ".weights")


class ShardReader:
    def __init__(self, folder, n_cols):
        self.folder, self.n_cols = folder, n_cols

    def neighbours(self, number, row):
        base = os.path.join(self.folder, f"part{number}")
        off = np.fromfile(base + ".offsets", dtype=np.int64)
        with open(base + ".indices", "rb") as f:
            f.seek(off[row])
            return np.frombuffer(f.read(off[row + 1] - off[row]), dtype=np.int64)

    def matrix(self, number):
        base = os.path.join(self.folder, f"part{number}")
        crow = torch.from_numpy(np.fromfile(base + ".offsets", dtype=np.int64))
        col = torch.from_numpy(np.fromfile(base + ".indices", dtype=np.int64))
        val = torch.from_numpy(np.fromfile(base + ".weights", dtype=np.float32))
        return torch.sparse_csr_tensor(crow, col, val, size=(len(crow) - 1, self.n_cols))


class LightGCN(nn.Module):
    def __init__(self, n_users, n_items, dim=32):
        super().__init__()
        self.users = nn.Embedding(n_users, dim)
        self.items = nn.Embedding(n_items, dim)
        nn.init.normal_(self.users.weight, std=0.1)
        nn.init.normal_(self.items.weight, std=0.1)

    @torch.no_grad()
    def smooth_users(self, parts):
        return torch.cat([part @ self.items.weight for part in parts])

    def bpr(self, context, u, pos, neg):
        vec = self.users(u) + context[u]
        margin = (vec * (self.items(pos) - self.items(neg))).sum(1)
        return -F.logsigmoid(margin).mean()


def make_log(n_users, n_items, per_user, seed=0):
    rng = np.random.default_rng(seed)
    users = np.repeat(np.arange(n_users), per_user)
    items = np.minimum(rng.zipf(1.3, len(users)) - 1, n_items - 1)
    return users, items


def train_epoch(model, opt, users, items, context, steps=20, batch=1024):
    total = 0.0
    for _ in range(steps):
        pick = np.random.randint(0, len(users), batch)
        u, pos = torch.from_numpy(users[pick]), torch.from_numpy(items[pick])
        neg = torch.randint(0, model.items.num_embeddings, (batch,))
        loss = model.bpr(context, u, pos, neg)
        opt.zero_grad()
        loss.backward()
        opt.step()
        total += loss.item()
    return total / steps


def main():
    torch.manual_seed(0)
    np.random.seed(0)
    n_users, n_items, n_parts = 40_000, 5_000, 2
    users, items = make_log(n_users, n_items, per_user=50)
    writer = ShardWriter(WORK)
    block = n_users // n_parts
    for p in range(n_parts):
        mine = (users >= p * block) & (users < (p + 1) * block)
        writer.write(p, users[mine] - p * block, items[mine], block)
    print(f"{len(users)} interactions in {n_parts} parts", flush=True)

    reader = ShardReader(WORK, n_items)
    for row in (0, 17, block - 1):
        got = reader.neighbours(1, row)
        assert np.array_equal(got, np.sort(items[users == block + row]))
    print("spot checks of the parts passed", flush=True)

    model = LightGCN(n_users, n_items)
    opt = torch.optim.Adam(model.parameters(), lr=5e-3)
    flat = torch.zeros(n_users, 32)
    print(f"warm-up loss {train_epoch(model, opt, users, items, flat):.4f}", flush=True)

    parts = [reader.matrix(p) for p in range(n_parts)]
    print("adjacency", [tuple(p.shape) for p in parts], flush=True)
    for epoch in range(3):
        context = model.smooth_users(parts)
        loss = train_epoch(model, opt, users, items, context)
        print(f"epoch {epoch}: loss {loss:.4f}", flush=True)


if __name__ == "__main__":
    main()
