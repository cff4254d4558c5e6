"""Extracts features once, shares them with the evaluation workers, then fits a probe on them."""
import argparse
import multiprocessing as mp
from multiprocessing import shared_memory

import numpy as np
import torch
import torch.nn as nn


class Extractor(nn.Module):
    def __init__(self, channels, dim):
        super().__init__()
        self.body = nn.Sequential(nn.Conv1d(1, channels, 5, stride=2), nn.ReLU(),
                                  nn.Conv1d(channels, dim, 5, stride=2), nn.ReLU())

    def forward(self, x):
        return self.body(x).mean(dim=-1)


def make_signals(n, length, seed):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, n)
    t = np.linspace(0, 1, length)
    signals = np.sin(2 * np.pi * t[None] * (3 + 4 * labels[:, None])) + 0.4 * rng.normal(size=(n, length))
    return torch.tensor(signals, dtype=torch.float32).unsqueeze(1), torch.tensor(labels)


def pretrain(extractor, signals, labels, epochs):
    head = nn.Linear(extractor.body[2].out_channels, 3)
    optimizer = torch.optim.Adam([*extractor.parameters(), *head.parameters()], lr=3e-3)
    for epoch in range(epochs):
        for xb, yb in zip(signals.split(64), labels.split(64)):
            loss = nn.functional.cross_entropy(head(extractor(xb)), yb)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"pretrain epoch {epoch}: loss {loss.item():.4f}", flush=True)


class FeatureCache:
    def __init__(self, rows, dim):
        self.shape = (rows, dim)
        nbytes = rows * dim * np.dtype(np.float32).itemsize
        store = shared_memory.SharedMemory(create=True, size=nbytes)
        self.name = store.name
        store = np.ndarray(self.shape, dtype=np.float32, buffer=store.buf)
        self.store = store

    def put(self, start, block):
        self.store[start:start + len(block)] = block

    def tensor(self):
        return torch.from_numpy(self.store)


@torch.no_grad()
def fill(cache, extractor, signals, batch):
    extractor.eval()
    for start in range(0, len(signals), batch):
        block = extractor(signals[start:start + batch]).numpy()
        cache.put(start, block)
    print(f"cached {cache.shape[0]} rows of {cache.shape[1]} features", flush=True)


def column_stats(name, shape, queue):
    shm = shared_memory.SharedMemory(name=name)
    view = np.ndarray(shape, dtype=np.float32, buffer=shm.buf)
    queue.put((float(view.mean()), float(view.std())))
    del view
    shm.close()


def fit_probe(features, labels, steps):
    probe = nn.Linear(features.shape[1], 3)
    optimizer = torch.optim.Adam(probe.parameters(), lr=5e-2)
    for step in range(steps):
        loss = nn.functional.cross_entropy(probe(features), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return (probe(features).argmax(1) == labels).float().mean().item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--signals", type=int, default=512)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(0)
    signals, labels = make_signals(args.signals, args.length, 1)
    extractor = Extractor(16, args.dim)
    pretrain(extractor, signals, labels, args.epochs)
    cache = FeatureCache(args.signals, args.dim)
    fill(cache, extractor, signals, 64)
    context = mp.get_context("spawn")
    queue = context.Queue()
    worker = context.Process(target=column_stats, args=(cache.name, cache.shape, queue))
    worker.start()
    print("feature mean/std", queue.get(), flush=True)
    worker.join()
    print("probe accuracy", round(fit_probe(cache.tensor().clone(), labels, 100), 3))


if __name__ == "__main__":
    main()
