"""Train a weather emulator step predictor, data parallel over the processes started by torchrun."""
import datetime
import logging
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

GRID = (24, 48)
FIELDS = ["temperature", "humidity", "wind_u", "wind_v"]
OUT = "/tmp/s83_emulator_run"


class Reanalysis(Dataset):
    """Consecutive states of a synthetic atmosphere; archive gaps are stored with the fill value."""

    def __init__(self, days=320, seed=1):
        g = torch.Generator().manual_seed(seed)
        lat = torch.linspace(-1, 1, GRID[0])[:, None]
        lon = torch.linspace(0, 6.28, GRID[1])[None]
        t = torch.arange(days + 1)[:, None, None]
        base = torch.sin(lon + 0.1 * t) * torch.cos(lat * 1.5)
        self.states = torch.stack([base * (1 + 0.2 * k) for k in range(len(FIELDS))], 1)
        self.states += 0.05 * torch.randn(self.states.shape, generator=g)
        self.states[:, 1] = self.states[:, 1].clamp(min=-0.9) + 1.0
        self.states[162, 1, 6:9, 20:30] = -999.0

    def __len__(self):
        return len(self.states) - 1

    def __getitem__(self, i):
        return self._normalise(self.states[i]), self._normalise(self.states[i + 1])

    def _normalise(self, x):
        x = x.clone()
        x[1] = torch.log(x[1])
        return x


class Emulator(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        c = len(FIELDS)
        self.inp = nn.Conv2d(c, width, 3, padding=1)
        self.mid = nn.Conv2d(width, width, 3, padding=1)
        self.out = nn.Conv2d(width, c, 1)

    def forward(self, x):
        h = torch.relu(self.inp(x))
        h = h + torch.relu(self.mid(h))
        return x + self.out(h)


class History:
    """Collects the losses of one process and joins those of all processes when it is closed."""

    def __init__(self, rank, world):
        self.rank, self.world = rank, world
        self.values = []

    def add(self, value):
        self.values.append(value)

    def close(self):
        size = torch.tensor([len(self.values)])
        sizes = [torch.zeros_like(size) for _ in range(self.world)]
        dist.all_gather(sizes, size)
        if self.rank == 0:
            os.makedirs(OUT, exist_ok=True)
            torch.save({"losses": self.values, "sizes": sizes}, os.path.join(OUT, "history.pt"))
            logging.info("history written: %s steps", [int(s) for s in sizes])


class Optimization:
    def __init__(self, model, lr=1e-3):
        self.opt = torch.optim.AdamW(model.parameters(), lr=lr)

    def _validate(self, loss):
        if torch.isnan(loss):
            raise ValueError("loss is NaN, stopping")

    def step(self, loss):
        self._validate(loss)
        self.opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.opt.param_groups[0]["params"], 1.0)
        self.opt.step()


class Trainer:
    def __init__(self, rank, world, epochs=2, batch=8):
        torch.manual_seed(0)
        data = Reanalysis()
        self.sampler = DistributedSampler(data, world, rank, shuffle=True, seed=7)
        self.loader = DataLoader(data, batch, sampler=self.sampler, drop_last=True)
        self.model = DistributedDataParallel(Emulator())
        self.optimization = Optimization(self.model)
        self.history = History(rank, world)
        self.epochs, self.rank = epochs, rank

    def run(self):
        for epoch in range(self.epochs):
            self.sampler.set_epoch(epoch)
            for i, (now, later) in enumerate(self.loader):
                loss = torch.mean((self.model(now) - later) ** 2)
                self.optimization.step(loss)
                self.history.add(loss.item())
                if i % 5 == 0 and self.rank == 0:
                    logging.info("epoch %d step %d loss %.4f", epoch, i, loss.item())


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    dist.init_process_group("gloo", timeout=datetime.timedelta(minutes=20))
    rank, world = dist.get_rank(), dist.get_world_size()
    trainer = Trainer(rank, world)
    try:
        trainer.run()
        logging.info("rank %d done", rank)
    finally:
        trainer.history.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
