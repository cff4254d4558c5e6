"""Trains a traffic-sign classifier and collects per-sample scores of all ranks after each epoch."""
import logging
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, Subset
from torch.utils.data.distributed import DistributedSampler

log = logging.getLogger("signs")
NAMES = ["stop", "yield", "limit", "crossing"]


class Signs(Dataset):
    def __init__(self, n, seed, occluded_every=0):
        g = torch.Generator().manual_seed(seed)
        self.label = torch.randint(0, len(NAMES), (n,), generator=g)
        self.image = torch.randn(n, 3, 16, 16, generator=g) * 0.4
        self.occluded = torch.zeros(n, dtype=torch.bool)
        for i, c in enumerate(self.label.tolist()):
            self.image[i, c % 3, 4 * (c // 2):4 * (c // 2) + 8, 4:12] += 1.0
        if occluded_every:
            self.occluded[occluded_every // 2::occluded_every] = True
            self.image[self.occluded, :, :, 8:] = 0.0

    def __len__(self):
        return len(self.label)

    def __getitem__(self, i):
        return self.image[i], self.label[i], self.occluded[i]


class SignNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten())
        self.head = nn.Linear(128, len(NAMES))

    def forward(self, x):
        return self.head(self.features(x))


def process_sample(logits, label, occluded):
    result = {"acc": float(logits.argmax() == label),
              "nll": float(nn.functional.cross_entropy(logits[None], label[None]))}
    if occluded:
        result["acc_occluded"] = result["acc"]
    return result


@torch.no_grad()
def evaluate(model, loader):
    rank, world = dist.get_rank(), dist.get_world_size()
    model.eval()
    sample_metrics = {}
    for image, label, occluded in loader:
        logits = model.module(image)
        for k in range(len(label)):
            for name, value in process_sample(logits[k], label[k], occluded[k]).items():
                sample_metrics.setdefault(name, []).append(value)

    merged = {}
    for name, values in sample_metrics.items():
        parts = [None] * world if rank == 0 else None
        dist.gather_object(values, parts, dst=0)
        if rank == 0:
            merged[name] = [v for part in parts for v in part]
    dist.barrier()
    model.train()
    return {name: sum(v) / len(v) for name, v in merged.items()}


def train_epoch(model, loader, optim, epoch):
    loader.sampler.set_epoch(epoch)
    for step, (image, label, _) in enumerate(loader):
        loss = nn.functional.cross_entropy(model(image), label)
        optim.zero_grad()
        loss.backward()
        optim.step()
        if dist.get_rank() == 0 and step % 10 == 0:
            log.info("epoch %d step %d loss %.4f", epoch, step, loss.item())


def main(epochs=3, batch_size=16):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(5)
    train_set, val_set = Signs(640, seed=1), Signs(128, seed=2, occluded_every=64)
    train_loader = DataLoader(train_set, batch_size, sampler=DistributedSampler(train_set), drop_last=True)
    share = range(dist.get_rank(), len(val_set), dist.get_world_size())
    val_loader = DataLoader(Subset(val_set, list(share)), batch_size)
    log.info("rank %d pid %d validates %d images", dist.get_rank(), os.getpid(), len(share))
    model = DDP(SignNet())
    optim = torch.optim.Adam(model.parameters(), lr=2e-3)
    for epoch in range(epochs):
        train_epoch(model, train_loader, optim, epoch)
        scores = evaluate(model, val_loader)
        if dist.get_rank() == 0:
            log.info("epoch %d %s", epoch, "  ".join(f"{k} {v:.3f}" for k, v in scores.items()))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
