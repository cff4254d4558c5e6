"""Fault classifier for pump vibration windows, data parallel, with validation and early stopping after each epoch.

torchrun --standalone --nproc-per-node 2 k105_earlystop.py
"""
import argparse
import os
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Subset, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def make_windows(count, length=64, classes=4, seed=0):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(classes, (count,), generator=generator)
    time = torch.linspace(0, 6.28, length)
    waves = torch.sin(time[None] * (labels[:, None] + 2) + 6.28 * torch.rand(count, 1, generator=generator))
    noise = torch.tensor([0.9, 1.5]).repeat(count // 2)[:, None]  # drive end and non-drive end, recorded in turn
    return TensorDataset(waves + noise * torch.randn(count, length, generator=generator), labels)


class VibrationNet(nn.Module):
    def __init__(self, classes=4):
        super().__init__()
        self.features = nn.Sequential(nn.Conv1d(1, 16, 9, padding=4), nn.ReLU(), nn.MaxPool1d(2),
                                      nn.Conv1d(16, 32, 9, padding=4), nn.ReLU(), nn.AdaptiveAvgPool1d(4))
        self.classifier = nn.Linear(128, classes)

    def forward(self, x):
        return self.classifier(self.features(x[:, None]).flatten(1))


class ThresholdStopping:
    def __init__(self, monitor="val_acc", threshold=0.0):
        self.monitor = monitor
        self.threshold = threshold
        self.stopped_epoch = None

    def on_epoch_end(self, epoch, logs):
        if logs[self.monitor] > self.threshold:
            self.stopped_epoch = epoch
            return True
        return False


class Trainer:
    def __init__(self, max_epochs, callback):
        self.max_epochs = max_epochs
        self.callback = callback
        self.rank = dist.get_rank()

    def run_training_epoch(self, model, loader, optimizer):
        model.train()
        for windows, labels in loader:
            loss = F.cross_entropy(model(windows), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return loss.item()

    @torch.no_grad()
    def validate(self, model, loader):
        model.eval()
        correct, total = 0, 0
        for windows, labels in loader:
            correct += (model.module(windows).argmax(1) == labels).sum().item()
            total += len(labels)
        return {"val_acc": correct / total}

    def fit(self, model, train_loader, val_loader, optimizer):
        for epoch in range(self.max_epochs):
            train_loader.sampler.set_epoch(epoch)
            loss = self.run_training_epoch(model, train_loader, optimizer)
            logs = self.validate(model, val_loader)
            print(f"[rank {self.rank}] epoch {epoch}: loss {loss:.4f} val_acc {logs['val_acc']:.4f}", flush=True)
            if self.callback.on_epoch_end(epoch, logs):
                print(f"[rank {self.rank}] stop condition reached", flush=True)
                break
        self.teardown(model)

    def teardown(self, model):
        dist.barrier()
        if self.rank == 0:
            torch.save(model.module.state_dict(), os.path.join(os.environ.get("TMPDIR", "/tmp"), "vibration_last.pt"))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--max-epochs", type=int, default=40)
    parser.add_argument("--thresh", type=float, default=0.80)
    parser.add_argument("--batch-size", type=int, default=32)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(minutes=30))

    train_set, val_set = make_windows(1024, seed=1), make_windows(400, seed=2)
    train_loader = DataLoader(train_set, batch_size=args.batch_size, sampler=DistributedSampler(train_set))
    val_loader = DataLoader(val_set, batch_size=50, sampler=DistributedSampler(val_set, shuffle=False))
    model = DDP(VibrationNet())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    trainer = Trainer(args.max_epochs, ThresholdStopping("val_acc", args.thresh))
    trainer.fit(model, train_loader, val_loader, optimizer)
    print(f"[rank {trainer.rank}] finished, stopped at epoch {trainer.callback.stopped_epoch}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
