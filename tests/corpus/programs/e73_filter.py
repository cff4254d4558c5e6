"""Train a text scorer on a filtered stream, split over the ranks, and report validation accuracy."""
import argparse
import json
import os
import zlib

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

ROOT = "/tmp/e73_filter_data"


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--shards", type=int, default=4)
    p.add_argument("--docs-per-shard", type=int, default=300)
    p.add_argument("--min-quality", type=float, default=0.35)
    p.add_argument("--batch-size", type=int, default=16)
    p.add_argument("--epochs", type=int, default=2)
    return p.parse_args()


def write_shards(args):
    os.makedirs(ROOT, exist_ok=True)
    g = torch.Generator().manual_seed(5)
    for s in range(args.shards):
        quality = torch.rand(args.docs_per_shard, generator=g)
        if s % 2 == 1:
            quality = quality * 0.8
        with open(os.path.join(ROOT, f"shard_{s}.jsonl"), "w") as f:
            for i in range(args.docs_per_shard):
                words = torch.randint(0, 1000, (24,), generator=g).tolist()
                f.write(json.dumps({"text": " ".join(f"w{w}" for w in words),
                                    "quality": round(quality[i].item(), 4),
                                    "label": int(sum(words) % 2)}) + "\n")


class Stream(IterableDataset):
    """Reads the shards of one rank and keeps the documents that pass the filters."""

    def __init__(self, paths, rank, world, filters=()):
        self.paths = paths[rank::world]
        self.filters = filters

    def __iter__(self):
        for path in self.paths:
            with open(path) as f:
                for line in f:
                    doc = json.loads(line)
                    if all(keep(doc) for keep in self.filters):
                        yield doc


class Collate:
    def __init__(self, buckets):
        self.buckets = buckets

    def __call__(self, docs):
        x = torch.zeros(len(docs), self.buckets)
        for i, doc in enumerate(docs):
            for w in doc["text"].split():
                x[i, zlib.crc32(w.encode()) % self.buckets] += 1
        return x, torch.tensor([d["label"] for d in docs])


def average_gradients(model, world):
    for p in model.parameters():
        dist.all_reduce(p.grad)
        p.grad /= world


def train_epoch(model, opt, loader, world):
    seen, total = 0, 0.0
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        average_gradients(model, world)
        opt.step()
        seen += len(y)
        total += loss.item() * len(y)
    return seen, total


@torch.no_grad()
def evaluate(model, loader):
    correct = torch.zeros(2)
    for x, y in loader:
        correct += torch.tensor([(model(x).argmax(1) == y).sum().item(), float(len(y))])
    return correct


def gather_report(report, world):
    reports = [None] * world
    dist.all_gather_object(reports, report)
    return reports


def main():
    args = parse_args()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    if rank == 0:
        write_shards(args)
    dist.barrier()

    paths = [os.path.join(ROOT, f"shard_{s}.jsonl") for s in range(args.shards)]
    filters = [lambda d: d["quality"] >= args.min_quality, lambda d: len(d["text"]) > 40]
    collate = Collate(512)
    train = DataLoader(Stream(paths, rank, world, filters), args.batch_size, collate_fn=collate)
    valid = DataLoader(Stream(paths, rank, world), args.batch_size, collate_fn=collate)

    model = nn.Sequential(nn.Linear(512, 64), nn.ReLU(), nn.Linear(64, 2))
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    correct = evaluate(model, valid)
    dist.all_reduce(correct)
    if rank == 0:
        print(f"start accuracy {(correct[0] / correct[1]).item():.3f}", flush=True)

    for epoch in range(args.epochs):
        seen, total = train_epoch(model, opt, train, world)
        reports = gather_report({"rank": rank, "loss": total / seen}, world)
        if rank == 0:
            print(f"epoch {epoch} {reports}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
