"""DDP training on a directory of record shards, one process per core."""
import os
import socket
import tempfile
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset


def write_shards(folder, n_shards=6, per_shard=400):
    gen = torch.Generator().manual_seed(0)
    for s in range(n_shards):
        n = per_shard if s < n_shards - 1 else per_shard - 130
        x = torch.randn(n, 32, generator=gen)
        torch.save({"x": x, "y": x[:, :4].sum(1)}, os.path.join(folder, f"shard-{s:03d}.pt"))


class ShardStream(IterableDataset):
    def __init__(self, folder, rank, world):
        names = sorted(os.listdir(folder))
        self.paths = [os.path.join(folder, n) for n in names[rank::world]]

    def __iter__(self):
        for path in self.paths:
            shard = torch.load(path)
            yield from zip(shard["x"], shard["y"])


class Regressor(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, x):
        return self.net(x).squeeze(1)


def run(rank, world, folder, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=world)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = DDP(Regressor())
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    loader = DataLoader(ShardStream(folder, rank, world), batch_size=20)
    for epoch in range(2):
        seen = 0
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            seen += len(x)
        print(f"[{rank}] epoch {epoch}: {seen} records, loss {loss.item():.4f}", flush=True)
    if rank == 0:
        torch.save(model.module.state_dict(), os.path.join(folder, "model.pt"))
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


if __name__ == "__main__":
    folder = tempfile.mkdtemp(prefix="shards_")
    write_shards(folder)
    mp.spawn(run, args=(2, folder, free_port()), nprocs=2)
