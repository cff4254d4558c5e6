"""Train a classifier on features kept in shared memory by the extraction service."""
import argparse
from multiprocessing import shared_memory

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


class FeatureStore:
    """One shared-memory block per split, addressed by name."""

    def __init__(self):
        self.blocks = {}
        self.shapes = {}

    def publish(self, split, array):
        block = shared_memory.SharedMemory(create=True, size=array.nbytes)
        view = np.ndarray(array.shape, dtype=array.dtype, buffer=block.buf)
        view[:] = array
        self.blocks[split] = block
        self.shapes[split] = (array.shape, array.dtype)
        print(f"published {split}: {array.shape} as {block.name}", flush=True)

    def attach(self, split):
        shape, dtype = self.shapes[split]
        block = shared_memory.SharedMemory(name=self.blocks[split].name)
        return np.ndarray(shape, dtype=dtype, buffer=block.buf)

    def statistics(self, split):
        features = self.attach_local(split)
        return features.mean(axis=0), features.std(axis=0) + 1e-6

    def attach_local(self, split):
        shape, dtype = self.shapes[split]
        return np.ndarray(shape, dtype=dtype, buffer=self.blocks[split].buf)

    def close(self):
        for block in self.blocks.values():
            block.close()
            block.unlink()


def extract(count, dim, classes, seed):
    rng = np.random.default_rng(seed)
    centers = np.random.default_rng(7).normal(size=(classes, dim)).astype(np.float32)
    labels = rng.integers(0, classes, size=count)
    features = centers[labels] + rng.normal(scale=1.5, size=(count, dim)).astype(np.float32)
    return features.astype(np.float32), labels


class Probe(nn.Module):
    def __init__(self, dim, classes, mean, std):
        super().__init__()
        self.register_buffer("mean", torch.from_numpy(mean))
        self.register_buffer("std", torch.from_numpy(std))
        self.net = nn.Sequential(nn.Linear(dim, 64), nn.ReLU(), nn.Linear(64, classes))

    def forward(self, x):
        return self.net((x - self.mean) / self.std)


def train(model, features, labels, epochs, batch_size):
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(epochs):
        order = torch.randperm(len(features))
        total = 0.0
        for start in range(0, len(order), batch_size):
            pick = order[start:start + batch_size]
            loss = F.cross_entropy(model(features[pick]), labels[pick])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(pick)
        print(f"epoch {epoch} loss {total / len(order):.4f}", flush=True)


@torch.no_grad()
def evaluate(model, features, labels):
    model.eval()
    hits = 0
    for chunk, want in zip(features.split(256), labels.split(256)):
        hits += int((model(chunk).argmax(1) == want).sum())
    return hits / len(labels)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=128)
    args = parser.parse_args()
    torch.manual_seed(0)

    store = FeatureStore()
    targets = {}
    for seed, (split, count) in enumerate([("train", 6000), ("val", 2000)]):
        features, labels = extract(count, args.dim, args.classes, seed)
        store.publish(split, features)
        targets[split] = torch.from_numpy(labels)

    mean, std = store.statistics("train")
    model = Probe(args.dim, args.classes, mean, std)
    train(model, torch.from_numpy(store.attach_local("train")), targets["train"], args.epochs, args.batch_size)
    val = torch.from_numpy(store.attach("val"))
    print(f"validating on {tuple(val.shape)}", flush=True)
    accuracy = evaluate(model, val, targets["val"])
    print(f"accuracy {accuracy:.3f}")
    del val
    store.close()


if __name__ == "__main__":
    main()
