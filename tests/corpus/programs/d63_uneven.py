"""Data parallel training of a turn classifier on recordings of unequal length."""
import os

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset

N_MELS = 40
N_CLASSES = 12


class RecordingStream(IterableDataset):
    """Each rank streams its own recordings and cuts them into windows."""

    def __init__(self, rank, world, n_recordings=12, window=50, seed=5):
        g = torch.Generator().manual_seed(seed)
        lengths = torch.randint(1000, 3000, (n_recordings,), generator=g).tolist()
        self.lengths = lengths[rank::world]
        self.window = window
        self.seed = seed + rank
        self.centres = torch.randn(N_CLASSES, N_MELS, generator=g)

    def __iter__(self):
        g = torch.Generator().manual_seed(self.seed)
        for length in self.lengths:
            for _ in range(length // self.window):
                y = torch.randint(0, N_CLASSES, (), generator=g)
                x = torch.randn(self.window, N_MELS, generator=g) + self.centres[y]
                yield x, y


class TurnClassifier(nn.Module):
    def __init__(self, hidden=64):
        super().__init__()
        self.conv = nn.Conv1d(N_MELS, hidden, 5, padding=2)
        self.norm = nn.LayerNorm(hidden)
        self.head = nn.Linear(hidden, N_CLASSES)

    def forward(self, x):
        x = F.relu(self.conv(x.transpose(1, 2))).mean(2)
        return self.head(self.norm(x))


class RunningMean:
    """Mean over the ranks of a value that every step reports."""

    def __init__(self, decay=0.9):
        self.decay, self.value = decay, None

    def update(self, local):
        t = torch.stack([local.detach().double(), torch.ones((), dtype=torch.float64)])
        dist.all_reduce(t)
        mean = (t[0] / t[1]).item()
        self.value = mean if self.value is None else self.decay * self.value + (1 - self.decay) * mean
        return self.value


class Trainer:
    def __init__(self, rank, world):
        self.rank, self.world = rank, world
        torch.manual_seed(0)
        self.model = DDP(TurnClassifier())
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=2e-3)
        self.meter = RunningMean()

    def loader(self, n_recordings, seed):
        data = RecordingStream(self.rank, self.world, n_recordings, seed=seed)
        return DataLoader(data, batch_size=16)

    def train(self, loader, name):
        self.model.train()
        step = 0
        with self.model.join():
            for x, y in loader:
                loss = F.cross_entropy(self.model(x), y)
                self.opt.zero_grad()
                loss.backward()
                self.opt.step()
                smooth = self.meter.update(loss)
                step += 1
                if self.rank == 0 and step % 10 == 0:
                    print(f"{name} step {step}: loss {smooth:.4f}", flush=True)
        print(f"[rank {self.rank}] {name}: {step} steps", flush=True)

    @torch.no_grad()
    def evaluate(self, loader):
        self.model.eval()
        totals = torch.zeros(2)
        for x, y in loader:
            pred = self.model.module(x).argmax(1)
            totals += torch.tensor([(pred == y).sum().item(), len(y)])
        dist.all_reduce(totals)
        return (totals[0] / totals[1]).item()


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    trainer = Trainer(rank, world)
    val = trainer.loader(4, seed=77)
    accuracy = trainer.evaluate(val)
    if rank == 0:
        print(f"before training: accuracy {accuracy:.3f}", flush=True)
    for epoch in range(2):
        trainer.train(trainer.loader(12, seed=5 + epoch), f"epoch {epoch}")
        accuracy = trainer.evaluate(val)
        if rank == 0:
            print(f"epoch {epoch}: accuracy {accuracy:.3f}", flush=True)
    if rank == 0:
        os.makedirs("/tmp/d63_uneven_out", exist_ok=True)
        torch.save(trainer.model.module.state_dict(), "/tmp/d63_uneven_out/model.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
