"""Click-through model trained on a stream of log shards, one group of shards for each rank."""
import logging
import os
import tempfile

import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset

log = logging.getLogger("streamctr")
FIELDS, BUCKETS = 6, 500


def shard_rows(hour):
    """Traffic of one hour of the day."""
    return 260 + 40 * (hour % 5) + (120 if hour >= 4 else 0)


class ClickStream(IterableDataset):
    def __init__(self, hours, rank, world_size):
        self.hours = hours[rank::world_size]

    def read_shard(self, hour):
        rng = np.random.default_rng(hour)
        n = shard_rows(hour)
        ids = rng.integers(0, BUCKETS, size=(n, FIELDS))
        price = rng.random((n, 1), dtype=np.float32)
        score = np.sin(ids[:, 0] / 40.0) + 0.5 * np.cos(ids[:, 1] / 70.0) - price[:, 0]
        click = (score + 0.3 * rng.standard_normal(n) > 0).astype(np.float32)
        return ids, price, click

    def __iter__(self):
        for hour in self.hours:
            ids, price, click = self.read_shard(hour)
            for k in range(len(click)):
                yield torch.from_numpy(ids[k]), torch.from_numpy(price[k]), torch.tensor(click[k])


class WideDeep(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.embed = nn.ModuleList(nn.Embedding(BUCKETS, dim) for _ in range(FIELDS))
        self.wide = nn.ModuleList(nn.Embedding(BUCKETS, 1) for _ in range(FIELDS))
        self.deep = nn.Sequential(nn.Linear(FIELDS * dim + 1, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, ids, price):
        emb = [e(ids[:, f]) for f, e in enumerate(self.embed)]
        wide = sum(w(ids[:, f]) for f, w in enumerate(self.wide))
        return (self.deep(torch.cat([*emb, price], dim=1)) + wide).squeeze(1)


def train_epoch(model, loader, optim, epoch):
    model.train()
    seen, total = 0, 0.0
    for step, (ids, price, click) in enumerate(loader):
        loss = nn.functional.binary_cross_entropy_with_logits(model(ids, price), click)
        optim.zero_grad()
        loss.backward()
        optim.step()
        seen += len(click)
        total += loss.item() * len(click)
        if step % 10 == 0 and dist.get_rank() == 0:
            log.info("epoch %d step %d loss %.4f", epoch, step, loss.item())
    log.info("rank %d epoch %d: %d rows, mean loss %.4f", dist.get_rank(), epoch, seen, total / seen)


def save_checkpoint(model, optim, epoch, folder):
    if dist.get_rank() == 0:
        torch.save({"epoch": epoch, "model": model.module.state_dict(), "optim": optim.state_dict()},
                   os.path.join(folder, "last.pt"))
    dist.barrier()


def main(epochs=3, batch_size=64):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(23)
    hours = list(range(8))
    loader = DataLoader(ClickStream(hours, rank, world), batch_size=batch_size)
    model = DDP(WideDeep())
    optim = torch.optim.Adam(model.parameters(), lr=2e-3)
    with tempfile.TemporaryDirectory(prefix="ctr_") as folder:
        for epoch in range(epochs):
            train_epoch(model, loader, optim, epoch)
            save_checkpoint(model, optim, epoch, folder)
            if rank == 0:
                log.info("epoch %d saved", epoch)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
