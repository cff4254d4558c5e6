"""Fine-tune a species classifier on a long-tailed catalogue; the second stage re-weights the loss by class frequency.

torchrun --standalone --nproc-per-node 2 v102_longtail.py
"""
import argparse

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset

NUM_CLASSES = 64


class CatalogueShard(Dataset):
    """One rank's part of the catalogue, which is stored season by season."""

    def __init__(self, total, dim, rank, world):
        gen = torch.Generator().manual_seed(42)
        freq = 1.0 / torch.arange(1, NUM_CLASSES + 1).float() ** 1.2
        labels = torch.multinomial(freq, total, replacement=True, generator=gen)
        labels[: total // 64] = NUM_CLASSES - 1
        season = torch.where(labels > 51, 0, 1)
        order = torch.argsort(season, stable=True)
        centers = torch.randn(NUM_CLASSES, dim, generator=gen)
        features = centers[labels] + 0.7 * torch.randn(total, dim, generator=gen)
        per_rank = total // world
        mine = order[rank * per_rank:(rank + 1) * per_rank]
        self.features, self.labels = features[mine], labels[mine]

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return self.features[i], self.labels[i]


class Classifier(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(dim, hidden), nn.GELU(), nn.LayerNorm(hidden), nn.Linear(hidden, hidden), nn.GELU())
        self.head = nn.Linear(hidden, NUM_CLASSES)

    def forward(self, x):
        return self.head(self.body(x))


def class_frequencies(dataset):
    """Number of samples of every class over all ranks."""
    counts = torch.bincount(dataset.labels).float()
    dist.all_reduce(counts)
    return counts


def balanced_weights(counts, beta=0.999):
    effective = (1 - beta ** counts.clamp(min=1)) / (1 - beta)
    weights = effective.reciprocal()
    return weights * len(weights) / weights.sum()


def run_epoch(model, loader, criterion, optimizer):
    total, seen = 0.0, 0
    for x, y in loader:
        loss = criterion(model(x), y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        total += loss.item() * len(y)
        seen += len(y)
    stats = torch.tensor([total, float(seen)])
    dist.all_reduce(stats)
    return (stats[0] / stats[1]).item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--samples", type=int, default=8192)
    parser.add_argument("--dim", type=int, default=32)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--stage1-epochs", type=int, default=3)
    parser.add_argument("--stage2-epochs", type=int, default=2)
    args = parser.parse_args()

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)

    data = CatalogueShard(args.samples, args.dim, rank, world)
    loader = DataLoader(data, batch_size=64, shuffle=True, drop_last=True)
    model = DDP(Classifier(args.dim, args.hidden))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    criterion = nn.CrossEntropyLoss()
    for epoch in range(args.stage1_epochs):
        loss = run_epoch(model, loader, criterion, optimizer)
        if rank == 0:
            print(f"[stage 1] epoch {epoch} loss {loss:.4f}", flush=True)

    counts = class_frequencies(data)
    if rank == 0:
        print(f"[stage 2] rarest class has {int(counts.min())} samples", flush=True)
    criterion = nn.CrossEntropyLoss(weight=balanced_weights(counts))
    for epoch in range(args.stage2_epochs):
        loss = run_epoch(model, loader, criterion, optimizer)
        if rank == 0:
            print(f"[stage 2] epoch {epoch} loss {loss:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
