"""Train a tabular regressor from sharded parquet-like files on two CPU ranks."""
import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset

SHARDS = [f"part-{i:05d}" for i in range(5)]


def load_shard(name, rows=40):
    g = torch.Generator().manual_seed(int(name[-5:]))
    x = torch.randn(rows, 16, generator=g)
    return x, x.sum(1, keepdim=True) + 0.1 * torch.randn(rows, 1, generator=g)


class ShardedDataset(IterableDataset):
    def __init__(self, shards, rank, world_size):
        self.shards = shards[rank::world_size]

    def __iter__(self):
        for shard in self.shards:
            x, y = load_shard(shard)
            yield from zip(x, y)


class Regressor(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, x):
        return self.net(x)


class Trainer:
    def __init__(self, rank, world_size):
        self.rank = rank
        self.model = DDP(Regressor())
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-2)
        self.train_loader = DataLoader(ShardedDataset(SHARDS, rank, world_size), batch_size=10)
        self.val_loader = DataLoader(ShardedDataset(SHARDS[:2], rank, world_size), batch_size=10)

    def train_epoch(self):
        for step, (x, y) in enumerate(self.train_loader):
            loss = nn.functional.mse_loss(self.model(x), y)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            print(f"{self.rank}: step {step} loss {loss.item():.3f}", flush=True)

    @torch.no_grad()
    def validate(self):
        total, count = torch.zeros(1), torch.zeros(1)
        for x, y in self.val_loader:
            total += nn.functional.mse_loss(self.model.module(x), y, reduction="sum")
            count += len(y)
        stats = torch.cat([total, count])
        dist.all_reduce(stats)
        return (stats[0] / stats[1]).item()


def run(rank, world_size, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
    torch.manual_seed(0)
    trainer = Trainer(rank, world_size)
    for epoch in range(3):
        trainer.train_epoch()
        val = trainer.validate()
        if rank == 0:
            print(f"epoch {epoch} val_loss {val:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        free_port = s.getsockname()[1]
    mp.spawn(run, args=(2, free_port), nprocs=2)
