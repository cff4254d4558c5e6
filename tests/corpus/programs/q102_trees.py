"""Train a tree-crown detector with DDP and report IoU and recall after every epoch."""
import argparse

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler

TILE = 32


class CrownTiles(Dataset):
    """Aerial tiles of one flight line; some tiles show no crown at all."""

    def __init__(self, count, seed, mixed_from=None):
        gen = torch.Generator().manual_seed(seed)
        centers = 8 + 16 * torch.rand(count, 2, generator=gen)
        radius = 4 + 3 * torch.rand(count, generator=gen)
        self.present = torch.ones(count)
        if mixed_from is not None:
            self.present[mixed_from:] = torch.arange(count - mixed_from) % 2 == 0
        y, x = torch.meshgrid(torch.arange(TILE), torch.arange(TILE), indexing="ij")
        dist2 = (y - centers[:, :1, None]) ** 2 + (x - centers[:, 1:, None]) ** 2
        crown = (dist2 < radius.view(-1, 1, 1) ** 2).float() * self.present.view(-1, 1, 1)
        self.images = crown.unsqueeze(1) + 0.2 * torch.randn(count, 1, TILE, TILE, generator=gen)
        self.targets = torch.cat([centers / TILE, radius.view(-1, 1) / TILE, self.present.view(-1, 1)], 1)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        return self.images[index], self.targets[index]


class CrownDetector(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 8, 3, 2, 1), nn.ReLU(), nn.Conv2d(8, 16, 3, 2, 1), nn.ReLU(),
            nn.Flatten(), nn.Linear(16 * 8 * 8, 32), nn.ReLU(), nn.Linear(32, 4),
        )

    def forward(self, images):
        return self.body(images)


class MeanMetric:
    """Sum and count per rank, gathered from all ranks by compute()."""

    def reset(self):
        self.state = torch.zeros(2)

    def update(self, values):
        self.state += torch.tensor([values.sum().item(), float(values.numel())])

    def compute(self):
        dist.barrier()
        parts = [torch.zeros_like(self.state) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, self.state)
        total, count = torch.stack(parts).sum(dim=0).tolist()
        return total / max(count, 1.0)


def circle_iou(pred, target):
    gap = (pred[:, :2] - target[:, :2]).norm(dim=1)
    inner = torch.minimum(pred[:, 2], target[:, 2])
    outer = torch.maximum(pred[:, 2], target[:, 2]) + gap
    return (inner / outer).clamp(0, 1)


class Trainer:
    def __init__(self, args):
        torch.manual_seed(args.seed)
        self.rank = dist.get_rank()
        self.model = DDP(CrownDetector())
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=args.lr)
        self.train_set = CrownTiles(args.tiles, args.seed)
        self.train_sampler = DistributedSampler(self.train_set, seed=args.seed)
        self.train_loader = DataLoader(self.train_set, args.batch_size, sampler=self.train_sampler)
        self.iou, self.recall = MeanMetric(), MeanMetric()

    def train_epoch(self, epoch):
        self.train_sampler.set_epoch(epoch)
        for images, targets in self.train_loader:
            out = self.model(images)
            loss = F.mse_loss(out[:, :3], targets[:, :3])
            loss = loss + F.binary_cross_entropy_with_logits(out[:, 3], targets[:, 3])
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()

    @torch.no_grad()
    def validate(self, tiles):
        self.iou.reset(), self.recall.reset()
        loader = DataLoader(tiles, 8, sampler=DistributedSampler(tiles, shuffle=False))
        for images, targets in loader:
            out = self.model.module(images)
            crowns = targets[:, 3] > 0
            if crowns.any():
                self.iou.update(circle_iou(out[crowns], targets[crowns]))
            self.recall.update(((out[:, 3] > 0) == crowns).float())
        metrics = {}
        if self.iou.state[1] > 0:
            metrics["iou"] = self.iou.compute()
        metrics["recall"] = self.recall.compute()
        return metrics


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tiles", type=int, default=1920)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--lr", type=float, default=5e-3)
    parser.add_argument("--seed", type=int, default=21)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    trainer = Trainer(args)
    surveys = [CrownTiles(64, 1), CrownTiles(64, 2), CrownTiles(64, 3, mixed_from=0), CrownTiles(64, 4)]
    for epoch, survey in enumerate(surveys):
        trainer.train_epoch(epoch)
        metrics = trainer.validate(survey)
        if trainer.rank == 0:
            print(f"epoch {epoch}", {k: round(v, 4) for k, v in metrics.items()}, flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
