"""Road-sign classifier, two processes. Start with: torchrun --standalone --nproc-per-node 2 v111_validate.py"""
import argparse
import os
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class SignNet(nn.Module):
    def __init__(self, n_classes=12):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2))
        self.body = nn.Sequential(
            nn.Conv2d(16, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU(), nn.AdaptiveAvgPool2d(4))
        self.head = nn.Linear(32 * 16, n_classes)

    def forward(self, x):
        x = self.body(self.stem(x))
        return self.head(x.flatten(1))


def make_split(n, seed, n_classes=12):
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, n_classes, (n,), generator=g)
    x = torch.randn(n, 3, 24, 24, generator=g) + y.view(-1, 1, 1, 1) * 0.15
    return TensorDataset(x, y)


def train_epoch(model, loader, optimizer, epoch, rank):
    model.train()
    total, seen = 0.0, 0
    for images, labels in loader:
        optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        total += loss.item() * labels.numel()
        seen += labels.numel()
    print(f"[rank {rank}] epoch {epoch} train loss {total / seen:.4f}", flush=True)


@torch.no_grad()
def validate(model, loader):
    model.eval()
    correct, seen = 0, 0
    for images, labels in loader:
        scores = model(images)
        correct += (scores.argmax(1) == labels).sum().item()
        seen += labels.numel()
    return correct / seen


def save_checkpoint(model, optimizer, epoch, path):
    torch.save({"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}, path)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--out", default="runs")
    args = parser.parse_args()

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(7)
    if rank == 0:
        os.makedirs(args.out, exist_ok=True)

    train_set = make_split(640, seed=1)
    val_set = make_split(200, seed=2)
    sampler = DistributedSampler(train_set, shuffle=True)
    train_loader = DataLoader(train_set, batch_size=args.batch_size, sampler=sampler)
    val_loader = DataLoader(val_set, batch_size=args.batch_size)

    model = DDP(SignNet())
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)

    best = 0.0
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        start = time.time()
        train_epoch(model, train_loader, optimizer, epoch, rank)
        if rank == 0:
            accuracy = validate(model, val_loader)
            print(f"[rank 0] epoch {epoch} val acc {accuracy:.3f} ({time.time() - start:.1f}s)", flush=True)
            if accuracy >= best:
                best = accuracy
                save_checkpoint(model, optimizer, epoch, os.path.join(args.out, "best.pt"))
        dist.barrier()

    if rank == 0:
        print(f"done, best val acc {best:.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
