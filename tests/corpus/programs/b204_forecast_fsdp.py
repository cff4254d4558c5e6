import copy
import logging
import os

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
log = logging.getLogger("forecast")

HISTORY = 48
HORIZON = 12
STATIONS = 8
DIM = 64
STEPS = 24
EVAL_EVERY = 8


class LoadCurves(Dataset):
    def __init__(self, windows, seed):
        g = torch.Generator().manual_seed(seed)
        t = torch.arange(windows + HISTORY + HORIZON, dtype=torch.float32)
        phase = torch.rand(STATIONS, 1, generator=g) * 6.28
        scale = torch.rand(STATIONS, 1, generator=g) + 0.5
        noise = 0.1 * torch.randn(STATIONS, len(t), generator=g)
        self.series = (scale * torch.sin(t / 24 * 6.28 + phase) + noise).T.contiguous()
        self.windows = windows

    def __len__(self):
        return self.windows

    def __getitem__(self, i):
        mid = i + HISTORY
        return self.series[i:mid], self.series[mid:mid + HORIZON]


class MixerBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(DIM)
        self.time = nn.Linear(HISTORY, HISTORY)
        self.up = nn.Linear(DIM, DIM * 2)
        self.down = nn.Linear(DIM * 2, DIM)

    def forward(self, x):
        x = x + self.time(self.norm(x).transpose(1, 2)).transpose(1, 2)
        return x + self.down(F.gelu(self.up(x)))


class Forecaster(nn.Module):
    def __init__(self, depth=4):
        super().__init__()
        self.embed = nn.Linear(STATIONS, DIM)
        self.blocks = nn.ModuleList(MixerBlock() for _ in range(depth))
        self.norm = nn.LayerNorm(DIM)
        self.ahead = nn.Linear(HISTORY, HORIZON)
        self.out = nn.Linear(DIM, STATIONS)

    def forward(self, x):
        x = self.embed(x)
        for block in self.blocks:
            x = block(x)
        x = self.ahead(self.norm(x).transpose(1, 2))
        return self.out(x.transpose(1, 2))


def shard(model):
    for block in model.blocks:
        fully_shard(block)
    return fully_shard(model)


class WeightAverage:
    def __init__(self, model, decay):
        self.model = model
        self.decay = decay

    @torch.no_grad()
    def update(self, source):
        for avg, p in zip(self.model.parameters(), source.parameters()):
            avg.lerp_(p, 1 - self.decay)

    @torch.no_grad()
    def copy_to(self, target):
        for avg, p in zip(self.model.parameters(), target.parameters()):
            p.copy_(avg)


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    error = torch.zeros(2)
    for past, future in loader:
        pred = model(past)
        error += torch.tensor([F.l1_loss(pred, future).item() * len(past), len(past)])
    dist.all_reduce(error)
    model.train()
    return (error[0] / error[1]).item()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    train_set, valid_set = LoadCurves(960, 1), LoadCurves(96, 1)
    loader = DataLoader(train_set, batch_size=16, sampler=DistributedSampler(train_set, seed=3))
    valid = DataLoader(valid_set, batch_size=16, sampler=DistributedSampler(valid_set, shuffle=False))

    model = Forecaster()
    average = WeightAverage(shard(copy.deepcopy(model)), decay=0.95)
    model = shard(model)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)

    batches = iter(loader)
    for step in range(1, STEPS + 1):
        try:
            past, future = next(batches)
        except StopIteration:
            batches = iter(loader)
            past, future = next(batches)
        loss = F.mse_loss(model(past), future)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        average.update(model)
        if rank == 0 and step % 4 == 0:
            log.info("step %d loss %.4f", step, loss.item())
        if step % EVAL_EVERY == 0:
            raw = evaluate(model, valid)
            if rank == 0:
                log.info("step %d valid mae %.4f", step, raw)

    average.copy_to(model)
    final = evaluate(model, valid)
    weights = {name: p.full_tensor() for name, p in average.model.named_parameters()}
    if rank == 0:
        log.info("averaged weights valid mae %.4f, %d tensors", final, len(weights))
        if os.environ.get("FORECAST_OUT"):
            torch.save(weights, os.path.join(os.environ["FORECAST_OUT"], "forecaster.pt"))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
