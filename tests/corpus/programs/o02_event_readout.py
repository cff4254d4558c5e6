"""Set classifier on variable-length detector events: ragged readout, then a small MLP."""
import os
import shutil

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

ROOT = "/tmp/o02_events"
DIM = 48


class EventWriter:
    """Stores the hits of all events behind one another, with an index of where each starts."""

    def __init__(self, root, name):
        self.base = os.path.join(root, name)

    def write(self, events, labels):
        values = np.concatenate([e.reshape(-1) for e in events]).astype(np.float32)
        sizes = np.array([0] + [e.size for e in events], dtype=np.int64)
        values.tofile(self.base + ".values")
        np.save(self.base + ".index.npy", np.cumsum(sizes))
        np.save(self.base + ".labels.npy", np.asarray(labels, dtype=np.int64))


class EventStore:
    def __init__(self, root, name):
        base = os.path.join(root, name)
        self.hits = torch.from_numpy(np.fromfile(base + ".values", dtype=np.float32)).view(-1, DIM)
        self.index = torch.from_numpy(np.load(base + ".index.npy"))
        self.labels = torch.from_numpy(np.load(base + ".labels.npy"))

    def __len__(self):
        return self.labels.numel()

    def describe(self):
        return f"{len(self)} events, {self.hits.size(0)} hits of {DIM} values"


def simulate(n, mean_hits, seed):
    rng = np.random.default_rng(seed)
    events, labels = [], []
    for _ in range(n):
        kind = int(rng.integers(0, 4))
        k = int(rng.poisson(mean_hits)) + 1
        hits = rng.normal(kind * 0.25, 1.0, size=(k, DIM))
        events.append(hits)
        labels.append(kind)
    return events, labels


class Readout(nn.Module):
    def __init__(self, hidden=64, classes=4):
        super().__init__()
        self.embed = nn.Linear(DIM, hidden)
        self.out = nn.Sequential(nn.Linear(2 * hidden, 64), nn.ReLU(), nn.Linear(64, classes))

    def forward(self, hits, index):
        h = F.relu(self.embed(hits))
        mean = torch.segment_reduce(h, "mean", offsets=index, axis=0)
        peak = torch.segment_reduce(h, "max", offsets=index, axis=0)
        return self.out(torch.cat([mean, peak], 1))


def standardise(train, *others):
    mu, sd = train.hits.mean(0), train.hits.std(0)
    for store in (train,) + others:
        store.hits = (store.hits - mu) / sd


def fit_compressor(store, steps=40):
    """Warm-up: a linear auto-encoder of single hits, used for monitoring."""
    net = nn.Sequential(nn.Linear(DIM, 12), nn.Linear(12, DIM))
    opt = torch.optim.Adam(net.parameters(), 1e-2)
    for _ in range(steps):
        rows = torch.randint(0, store.hits.size(0), (512,))
        loss = F.mse_loss(net(store.hits[rows]), store.hits[rows])
        opt.zero_grad()
        loss.backward()
        opt.step()
    return loss.item()


def main():
    torch.manual_seed(0)
    shutil.rmtree(ROOT, ignore_errors=True)
    os.makedirs(ROOT)
    for name, n, seed in (("train", 6000, 0), ("valid", 800, 1)):
        EventWriter(ROOT, name).write(*simulate(n, 40, seed))
    train, valid = EventStore(ROOT, "train"), EventStore(ROOT, "valid")
    standardise(train, valid)
    print("train:", train.describe(), flush=True)
    print("valid:", valid.describe(), flush=True)

    print(f"warm-up loss {fit_compressor(train):.3f}", flush=True)

    model = Readout()
    opt = torch.optim.AdamW(model.parameters(), 3e-3)
    for epoch in range(5):
        model.train()
        logits = model(train.hits, train.index)
        loss = F.cross_entropy(logits, train.labels)
        opt.zero_grad()
        loss.backward()
        opt.step()
        model.eval()
        with torch.no_grad():
            acc = (model(valid.hits, valid.index).argmax(1) == valid.labels).float().mean()
        print(f"epoch {epoch} loss {loss.item():.3f} valid acc {acc.item():.3f}", flush=True)
    torch.save(model.state_dict(), os.path.join(ROOT, "model.pt"))


if __name__ == "__main__":
    main()
