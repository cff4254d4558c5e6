"""Train a small product image tagger and score the catalogue shards in parallel."""
import argparse
import os
import time
from multiprocessing import Process, Queue

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


class TaggerNet(nn.Module):
    def __init__(self, n_tags=12, width=16):
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 3, padding=1)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1)
        self.pool = nn.AdaptiveAvgPool2d(4)
        self.head = nn.Linear(width * 16, n_tags)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.head(self.pool(x).flatten(1))


class Catalogue:
    def __init__(self, n_items, n_tags, seed):
        rng = np.random.default_rng(seed)
        self.images = rng.random((n_items, 3, 48, 48), dtype=np.float32)
        self.tags = rng.integers(0, n_tags, n_items)

    def batches(self, size):
        for start in range(0, len(self.tags), size):
            sl = slice(start, start + size)
            yield torch.from_numpy(self.images[sl]), torch.from_numpy(self.tags[sl])

    def shard(self, index, count):
        return self.images[index::count]


def fit(model, catalogue, args):
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    model.train()
    for epoch in range(args.epochs):
        total = 0.0
        for images, tags in catalogue.batches(args.batch_size):
            loss = F.cross_entropy(model(images), tags)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(tags)
        print(f"epoch {epoch} loss {total / len(catalogue.tags):.4f}", flush=True)


def score_shard(model, images, shard_id, results):
    print(f"shard {shard_id}: {len(images)} items, pid {os.getpid()}", flush=True)
    model.eval()
    scores = []
    with torch.no_grad():
        for start in range(0, len(images), 16):
            batch = torch.from_numpy(images[start:start + 16])
            scores.append(model(batch).softmax(1).max(1).values)
    results.put((shard_id, float(torch.cat(scores).mean())))


def score_catalogue(model, catalogue, n_shards):
    results = Queue()
    workers = []
    for shard_id in range(n_shards):
        worker = Process(target=score_shard,
                         args=(model, catalogue.shard(shard_id, n_shards), shard_id, results))
        worker.start()
        workers.append(worker)
    for worker in workers:
        worker.join()
    return dict(results.get() for _ in workers)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--items", type=int, default=96)
    parser.add_argument("--shards", type=int, default=2)
    parser.add_argument("--lr", type=float, default=0.02)
    args = parser.parse_args()

    torch.manual_seed(3)
    torch.set_num_threads(2)
    catalogue = Catalogue(args.items, 12, seed=3)
    model = TaggerNet()
    fit(model, catalogue, args)

    began = time.time()
    confidence = score_catalogue(model, catalogue, args.shards)
    for shard_id in sorted(confidence):
        print(f"shard {shard_id} mean confidence {confidence[shard_id]:.4f}")
    print(f"scored in {time.time() - began:.1f}s")


if __name__ == "__main__":
    main()
