"""Sleep stage classification from EEG epochs, data parallel over the recorders of the lab."""
import argparse
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Subset, TensorDataset
from torch.utils.data.distributed import DistributedSampler

STAGES = 5
CHANNELS = 24


def make_recordings(count, seed):
    gen = torch.Generator().manual_seed(seed)
    centers = torch.randn(STAGES, CHANNELS, generator=torch.Generator().manual_seed(7))
    stage = torch.randint(0, STAGES, (count,), generator=gen)
    noise = torch.randn(count, CHANNELS, generator=gen)
    recorder = torch.arange(count) % 2
    scale = torch.where(recorder == 0, 1.9, 0.5).unsqueeze(1)
    return TensorDataset(centers[stage] + scale * noise, stage)


class StageNet(nn.Module):
    def __init__(self, hidden=64):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(CHANNELS, hidden), nn.ReLU(), nn.Dropout(0.1))
        self.head = nn.Linear(hidden, STAGES)

    def forward(self, x):
        return self.head(self.encoder(x))


class ThresholdStopping:
    """Ends the training as soon as the monitored value is good enough."""

    def __init__(self, threshold, min_epochs=2):
        self.threshold = threshold
        self.min_epochs = min_epochs
        self.stopped_epoch = None

    def on_epoch_end(self, epoch, logs):
        if epoch + 1 >= self.min_epochs and logs["val_acc"] > self.threshold:
            self.stopped_epoch = epoch
            return True
        return False


class Trainer:
    def __init__(self, args, rank, world):
        self.args, self.rank, self.world = args, rank, world
        torch.manual_seed(11)
        self.train_set = make_recordings(args.samples, seed=1)
        val_set = make_recordings(400, seed=2)
        self.sampler = DistributedSampler(self.train_set, world, rank, shuffle=True)
        self.train_loader = DataLoader(self.train_set, batch_size=args.batch, sampler=self.sampler)
        self.val_loader = DataLoader(Subset(val_set, range(rank, len(val_set), world)), batch_size=100)
        self.model = DDP(StageNet())
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=args.lr)
        self.criterion = nn.CrossEntropyLoss()
        self.stopping = ThresholdStopping(args.threshold)

    def train_epoch(self, epoch):
        self.model.train()
        self.sampler.set_epoch(epoch)
        total = 0.0
        for x, y in self.train_loader:
            self.optimizer.zero_grad()
            loss = self.criterion(self.model(x), y)
            loss.backward()
            self.optimizer.step()
            total += loss.item()
        return total / len(self.train_loader)

    @torch.no_grad()
    def validate(self):
        self.model.eval()
        hits, seen = 0, 0
        for x, y in self.val_loader:
            hits += (self.model.module(x).argmax(1) == y).sum().item()
            seen += y.numel()
        return hits / seen

    def fit(self):
        for epoch in range(self.args.epochs):
            train_loss = self.train_epoch(epoch)
            logs = {"loss": train_loss, "val_acc": self.validate()}
            if self.rank == 0:
                print(f"epoch {epoch} loss {logs['loss']:.4f} val_acc {logs['val_acc']:.3f}", flush=True)
            if self.stopping.on_epoch_end(epoch, logs):
                break
        self.finish()

    def finish(self):
        dist.barrier()
        if self.rank == 0:
            torch.save(self.model.module.state_dict(), os.path.join(self.args.out, "stagenet.pt"))
            print("model saved", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--samples", type=int, default=2048)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--threshold", type=float, default=0.97)
    parser.add_argument("--out", default=".")
    args = parser.parse_args()
    dist.init_process_group("gloo")
    Trainer(args, dist.get_rank(), dist.get_world_size()).fit()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
