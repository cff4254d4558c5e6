"""Fine-tune a small sequence classifier with DDP; launch with torchrun --nproc-per-node 2."""
import argparse
import math
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class SensorWindows(Dataset):
    """Fixed length windows; a lost sensor leaves NaN in its channel."""

    def __init__(self, n=96, length=50, channels=6, lost=(37,)):
        g = torch.Generator().manual_seed(11)
        self.x = torch.randn(n, length, channels, generator=g)
        self.y = (self.x[:, :, 0].mean(1) > 0).long()
        for i in lost:
            self.x[i, 20:, 3] = math.nan

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i], self.y[i]


class SequenceClassifier(nn.Module):
    def __init__(self, channels=6, hidden=48, classes=2):
        super().__init__()
        self.rnn = nn.LSTM(channels, hidden, num_layers=2, batch_first=True)
        self.norm = nn.LayerNorm(hidden)
        self.head = nn.Linear(hidden, classes)

    def forward(self, x):
        out, _ = self.rnn(x)
        return self.head(self.norm(out[:, -1]))


class Trainer:
    def __init__(self, model, lr):
        self.model = DDP(model)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=lr)
        self.criterion = nn.CrossEntropyLoss()
        self.rank = dist.get_rank()

    def training_step(self, batch):
        x, y = batch
        loss = self.criterion(self.model(x), y)
        if torch.isnan(loss):
            return None
        return loss

    def fit_epoch(self, loader):
        total, steps = torch.zeros(1), 0
        self.model.train()
        for step, batch in enumerate(loader):
            self.optimizer.zero_grad()
            loss = self.training_step(batch)
            if loss is None:
                continue
            loss.backward()
            self.optimizer.step()
            total += loss.detach()
            steps += 1
        return total / max(steps, 1)

    def fit(self, loader, sampler, epochs):
        for epoch in range(epochs):
            sampler.set_epoch(epoch)
            mean = self.fit_epoch(loader)
            dist.all_reduce(mean)
            if self.rank == 0:
                print(f"epoch {epoch} loss {mean.item() / dist.get_world_size():.4f}", flush=True)
                torch.save(self.model.module.state_dict(), "/tmp/sequence_classifier.pt")
            dist.barrier()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--lr", type=float, default=1e-3)
    args = parser.parse_args()
    dist.init_process_group("gloo", timeout=timedelta(seconds=20))
    torch.manual_seed(0)
    dataset = SensorWindows()
    sampler = DistributedSampler(dataset, shuffle=True, seed=0)
    loader = DataLoader(dataset, batch_size=args.batch_size, sampler=sampler)
    Trainer(SequenceClassifier(), args.lr).fit(loader, sampler, args.epochs)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
