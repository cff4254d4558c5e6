"""Sentence-pair classification with DDP, a serialization directory and one event log per process."""
import json
import logging
import os
import shutil
import tempfile
import time

import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
log = logging.getLogger("pairs")
VOCAB, LENGTH = 800, 20


class Pairs(Dataset):
    def __init__(self, count, seed):
        rng = np.random.default_rng(seed)
        self.first = torch.from_numpy(rng.integers(1, VOCAB, (count, LENGTH)))
        self.second = torch.from_numpy(rng.integers(1, VOCAB, (count, LENGTH)))
        self.label = torch.from_numpy(rng.integers(0, 2, count))
        same = self.label.bool()
        self.second[same] = self.first[same].roll(1, dims=1)

    def __len__(self):
        return len(self.label)

    def __getitem__(self, i):
        return self.first[i], self.second[i], self.label[i]


class PairModel(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, width)
        self.mlp = nn.Sequential(nn.Linear(2 * width, width), nn.ReLU(), nn.Linear(width, 2))

    def forward(self, first, second):
        a, b = self.embed(first).mean(1), self.embed(second).mean(1)
        return self.mlp(torch.cat([(a - b).abs(), a * b], dim=1))


class EventWriter:
    """Appends scalars to events.<rank>.jsonl in a log directory."""

    def __init__(self, directory, rank, describe):
        fresh = not os.path.exists(directory)
        header = {"fresh": fresh, "data": describe()}
        if fresh:
            os.makedirs(directory)
        self.file = open(os.path.join(directory, f"events.{rank}.jsonl"), "w")
        self.add("header", header)

    def add(self, tag, value, step=0):
        self.file.write(json.dumps({"tag": tag, "value": value, "step": step, "time": time.time()}) + "\n")
        self.file.flush()

    def close(self):
        self.file.close()


def describe_set(dataset):
    tokens = torch.cat([dataset.first, dataset.second]).numpy()
    values, counts = np.unique(tokens, return_counts=True)
    order = counts.argsort()[::-1]
    pairs = [len(np.intersect1d(a, b)) for a, b in zip(dataset.first.numpy(), dataset.second.numpy())]
    return {"size": len(dataset), "types": len(values), "common": values[order[:20]].tolist(),
            "overlap": float(np.mean(pairs)), "positive": float(dataset.label.float().mean())}


@torch.no_grad()
def evaluate(model, loader):
    stats = torch.zeros(2)
    for first, second, label in loader:
        stats += torch.tensor([(model(first, second).argmax(1) == label).sum(), len(label)])
    dist.all_reduce(stats)
    return (stats[0] / stats[1]).item()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(5)
    train_set, dev_set = Pairs(8000, seed=1), Pairs(8000, seed=2)
    run_dir = os.path.join(tempfile.gettempdir(), f"pairs-{os.environ['MASTER_PORT']}")
    if rank == 0:
        shutil.rmtree(run_dir, ignore_errors=True)
        os.makedirs(run_dir)
    dist.barrier()
    train_log = EventWriter(os.path.join(run_dir, "log", "train"), rank, lambda: describe_set(train_set))
    dev_log = EventWriter(os.path.join(run_dir, "log", "validation"), rank, lambda: describe_set(dev_set))

    sampler = DistributedSampler(train_set)
    loader = DataLoader(train_set, batch_size=64, sampler=sampler)
    dev_loader = DataLoader(dev_set, batch_size=64, sampler=DistributedSampler(dev_set, shuffle=False))
    model = DDP(PairModel())
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    loss_fn = nn.CrossEntropyLoss()
    log.info("rank %d: %d training batches", rank, len(loader))

    step = 0
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for first, second, label in loader:
            optimizer.zero_grad()
            loss = loss_fn(model(first, second), label)
            loss.backward()
            optimizer.step()
            step += 1
            train_log.add("loss", loss.item(), step)
        accuracy = evaluate(model.module, dev_loader)
        dev_log.add("accuracy", accuracy, epoch)
        if rank == 0:
            log.info("epoch %d loss %.4f accuracy %.3f", epoch, loss.item(), accuracy)

    train_log.close()
    dev_log.close()
    dist.barrier()
    if rank == 0:
        shutil.rmtree(run_dir)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
