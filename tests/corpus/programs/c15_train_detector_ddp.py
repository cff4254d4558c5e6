"""Train a tiny tree-crown detector with DDP, validate with recall after each epoch."""
import os
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

WORLD_SIZE = 2


class CrownTiles(Dataset):
    """Tiles of an orthophoto; a tile without annotations is a valid (empty) sample."""

    def __init__(self, n, boxes_per_tile, seed):
        g = torch.Generator().manual_seed(seed)
        self.images = torch.rand(n, 3, 32, 32, generator=g)
        self.counts = torch.tensor([boxes_per_tile[i % len(boxes_per_tile)] for i in range(n)])

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        return self.images[i], self.counts[i].float()


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU(),
                                      nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1))
        self.count_head = nn.Linear(32, 1)

    def forward(self, images):
        return self.count_head(self.backbone(images).flatten(1)).squeeze(1)


class BoxRecall:
    def __init__(self):
        self.reset()

    def reset(self):
        self.found, self.groundtruth_labels = [], []

    def update(self, pred, target):
        self.found.append(torch.minimum(pred.round().clamp(min=0), target))
        self.groundtruth_labels.append(target)

    def compute(self):
        stats = torch.stack([torch.cat(self.found).sum(), torch.cat(self.groundtruth_labels).sum()])
        gathered = [torch.zeros_like(stats) for _ in range(dist.get_world_size())]
        dist.all_gather(gathered, stats)
        found, total = torch.stack(gathered).sum(0)
        return (found / total).item()


def validate(model, loader, metric):
    model.eval()
    metric.reset()
    with torch.no_grad():
        for images, counts in loader:
            keep = counts > 0
            if keep.any():
                metric.update(model.module(images[keep]), counts[keep])
    metrics = {}
    if len(metric.groundtruth_labels) > 0:
        metrics["box_recall"] = metric.compute()
    return metrics


def run(rank):
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29641")
    dist.init_process_group("gloo", rank=rank, world_size=WORLD_SIZE, timeout=timedelta(seconds=20))
    torch.manual_seed(0)
    torch.set_num_threads(1)
    train_set = CrownTiles(64, [3, 1, 4, 2], seed=1)
    val_set = CrownTiles(12, [2, 0], seed=2)
    sampler = DistributedSampler(train_set, WORLD_SIZE, rank)
    train_loader = DataLoader(train_set, batch_size=8, sampler=sampler)
    val_loader = DataLoader(val_set, batch_size=3,
                            sampler=DistributedSampler(val_set, WORLD_SIZE, rank, shuffle=False))
    model = DDP(Detector())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    metric = BoxRecall()
    for epoch in range(3):
        sampler.set_epoch(epoch)
        model.train()
        for images, counts in train_loader:
            optimizer.zero_grad()
            nn.functional.smooth_l1_loss(model(images), counts).backward()
            optimizer.step()
        metrics = validate(model, val_loader, metric)
        print(f"[rank {rank}] epoch {epoch} {metrics}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(run, nprocs=WORLD_SIZE)
