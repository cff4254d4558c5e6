"""Traffic-sign classifier, data parallel, validated once per epoch."""
import argparse
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler

CLASSES = 8


class SignDataset(Dataset):
    def __init__(self, size, seed):
        g = torch.Generator().manual_seed(seed)
        self.labels = torch.randint(0, CLASSES, (size,), generator=g)
        patterns = torch.randn(CLASSES, 3, 24, 24, generator=torch.Generator().manual_seed(1))
        noise = torch.randn(size, 3, 24, 24, generator=g)
        self.images = patterns[self.labels] + 0.5 * noise

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return self.images[i], self.labels[i]


class SignNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.AdaptiveAvgPool2d(4),
        )
        self.classifier = nn.Linear(32 * 16, CLASSES)

    def forward(self, x):
        return self.classifier(self.features(x).flatten(1))


def train_epoch(model, loader, opt):
    model.train()
    total = 0.0
    for images, labels in loader:
        opt.zero_grad()
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        opt.step()
        total += loss.item()
    return total / len(loader)


@torch.no_grad()
def validate(model, loader):
    model.eval()
    hits = count = 0
    for images, labels in loader:
        hits += (model(images).argmax(1) == labels).sum().item()
        count += len(labels)
    return hits / count


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=3)
    ap.add_argument("--batch", type=int, default=32)
    args = ap.parse_args()

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)

    train_set = SignDataset(512, seed=2)
    sampler = DistributedSampler(train_set, shuffle=True)
    train_loader = DataLoader(train_set, batch_size=args.batch, sampler=sampler)
    valid_loader = DataLoader(SignDataset(128, seed=3), batch_size=args.batch)

    model = DDP(SignNet())
    opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        loss = train_epoch(model, train_loader, opt)
        print(f"[{rank}] epoch {epoch} train loss {loss:.4f}", flush=True)
        if rank == 0:
            acc = validate(model, valid_loader)
            print(f"[{rank}] epoch {epoch} accuracy {acc:.3f}", flush=True)
            torch.save(model.module.state_dict(), f"signs_{os.getpid()}.pt")
        dist.barrier()

    if rank == 0:
        os.remove(f"signs_{os.getpid()}.pt")
        print("finished", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
