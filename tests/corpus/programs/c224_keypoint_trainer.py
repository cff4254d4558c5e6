"""Keypoint regression with a small trainer, metrics and callbacks (DDP)."""
import csv
import logging
import os
import tempfile

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
log = logging.getLogger("keypoints")
NODES = 7


class Frames(Dataset):
    def __init__(self, count, seed):
        gen = torch.Generator().manual_seed(seed)
        self.points = torch.rand(count, NODES, 2, generator=gen)
        grid = torch.linspace(0, 1, 24)
        ys, xs = torch.meshgrid(grid, grid, indexing="ij")
        px, py = self.points[..., 0, None, None], self.points[..., 1, None, None]
        self.frames = torch.exp(-((xs - px) ** 2 + (ys - py) ** 2) / 0.01)

    def __len__(self):
        return len(self.points)

    def __getitem__(self, i):
        return self.frames[i], self.points[i].flatten()


class PoseNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(NODES, 16, 3, stride=2, padding=1), nn.ReLU(),
            nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.ReLU(), nn.Flatten(),
        )
        self.head = nn.Linear(32 * 6 * 6, NODES * 2)

    def forward(self, x):
        return self.head(self.features(x))


class Metric:
    """Running mean over all samples of all processes."""

    def __init__(self):
        self.total = torch.zeros(2, dtype=torch.float64)

    def update(self, value, count):
        self.total += torch.tensor([value * count, count], dtype=torch.float64)

    def compute(self):
        total = self.total.clone()
        if dist.is_initialized():
            dist.all_reduce(total)
        return (total[0] / total[1]).item()


class CSVLogger:
    def __init__(self, path):
        self.path = path

    def on_validation_epoch_end(self, trainer):
        if trainer.is_global_zero:
            metrics = trainer.callback_metrics
            new = not os.path.exists(self.path)
            with open(self.path, "a", newline="") as f:
                writer = csv.writer(f)
                if new:
                    writer.writerow(["epoch", *metrics])
                writer.writerow([trainer.epoch, *metrics.values()])
            log.info("epoch %d %s", trainer.epoch, metrics)
        trainer.barrier()


class Trainer:
    def __init__(self, model, callbacks, epochs):
        self.model, self.callbacks, self.epochs = model, callbacks, epochs
        self.optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        self.loss_fn = nn.MSELoss()
        self.metrics = {}
        self.epoch = 0

    @property
    def is_global_zero(self):
        return dist.get_rank() == 0

    @property
    def callback_metrics(self):
        return {name: round(metric.compute(), 5) for name, metric in self.metrics.items()}

    def barrier(self):
        dist.barrier()

    def fit(self, train_loader, val_loader):
        for self.epoch in range(self.epochs):
            self.metrics = {"train_loss": Metric(), "val_loss": Metric(), "val_distance": Metric()}
            train_loader.sampler.set_epoch(self.epoch)
            self.model.train()
            for frames, points in train_loader:
                loss = self.loss_fn(self.model(frames), points)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                self.metrics["train_loss"].update(loss.item(), len(frames))
            self.validate(val_loader)

    @torch.no_grad()
    def validate(self, loader):
        self.model.eval()
        for frames, points in loader:
            out = self.model.module(frames)
            self.metrics["val_loss"].update(self.loss_fn(out, points).item(), len(frames))
            distance = (out - points).view(-1, NODES, 2).norm(dim=-1).mean()
            self.metrics["val_distance"].update(distance.item(), len(frames))
        for callback in self.callbacks:
            callback.on_validation_epoch_end(self)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(3)
    train_set, val_set = Frames(1024, seed=0), Frames(256, seed=1)
    train_loader = DataLoader(train_set, batch_size=32, sampler=DistributedSampler(train_set))
    val_loader = DataLoader(val_set, batch_size=32, sampler=DistributedSampler(val_set, shuffle=False))
    with tempfile.TemporaryDirectory() as out:
        trainer = Trainer(DDP(PoseNet()), [CSVLogger(os.path.join(out, "metrics.csv"))], epochs=4)
        trainer.fit(train_loader, val_loader)
        if trainer.is_global_zero:
            log.info("training finished")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
