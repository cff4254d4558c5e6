"""Drivable-area and lane segmentation on several processes.

torchrun --standalone --nproc-per-node 2 h102_lanes.py
"""
import argparse

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class RoadDataset(Dataset):
    """Synthetic road frames with a lane mask; some frames have no lane pixel at all."""

    def __init__(self, num_frames=96, size=32):
        gen = torch.Generator().manual_seed(11)
        self.images = torch.rand(num_frames, 3, size, size, generator=gen)
        self.lanes = (torch.rand(num_frames, size, size, generator=gen) < 0.15).float()
        for frame in (45, 53):
            self.lanes[frame].zero_()

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        return self.images[index], self.lanes[index]


class LaneNet(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(3, width, 3, stride=2, padding=1), nn.ReLU(),
            nn.Conv2d(width, 2 * width, 3, stride=2, padding=1), nn.ReLU(),
        )
        self.decoder = nn.Sequential(
            nn.Upsample(scale_factor=2), nn.Conv2d(2 * width, width, 3, padding=1), nn.ReLU(),
            nn.Upsample(scale_factor=2), nn.Conv2d(width, 1, 3, padding=1),
        )

    def forward(self, x):
        return self.decoder(self.encoder(x)).squeeze(1)


class TverskyLoss(nn.Module):
    def __init__(self, alpha=0.7, beta=0.3):
        super().__init__()
        self.alpha, self.beta = alpha, beta

    def forward(self, logits, target):
        prob = logits.sigmoid()
        positives = target.sum(dim=(1, 2))
        tp = (prob * target).sum(dim=(1, 2)) / positives
        fn = ((1 - prob) * target).sum(dim=(1, 2)) / positives
        fp = (prob * (1 - target)).sum(dim=(1, 2)) / (1 - target).sum(dim=(1, 2))
        return (1 - tp / (tp + self.alpha * fn + self.beta * fp)).mean()


class ModelWithLoss(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model
        self.tversky = TverskyLoss()

    def forward(self, images, lanes):
        logits = self.model(images)
        return F.binary_cross_entropy_with_logits(logits, lanes) + self.tversky(logits, lanes)


def train_epoch(epoch, model, loader, optimizer, rank):
    model.train()
    running, steps = 0.0, 0
    for step, (images, lanes) in enumerate(loader):
        optimizer.zero_grad()
        loss = model(images, lanes)
        if loss == 0 or not torch.isfinite(loss):
            continue
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        running += loss.item()
        steps += 1
        if step % 2 == 0:
            print(f"[rank {rank}] epoch {epoch} step {step}: loss {loss.item():.4f}", flush=True)
    return running / steps


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--lr", type=float, default=1e-3)
    args = parser.parse_args()

    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    dataset = RoadDataset()
    sampler = DistributedSampler(dataset, world_size, rank, shuffle=False)
    loader = DataLoader(dataset, batch_size=args.batch_size, sampler=sampler)
    model = DDP(ModelWithLoss(LaneNet()))
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)

    for epoch in range(args.epochs):
        mean_loss = train_epoch(epoch, model, loader, optimizer, rank)
        dist.barrier()
        if rank == 0:
            print(f"epoch {epoch}: mean loss {mean_loss:.4f}", flush=True)
    if rank == 0:
        torch.save(model.module.model.state_dict(), "lanenet.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
