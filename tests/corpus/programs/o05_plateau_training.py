"""Data parallel training of a denoiser that ends when the validation error stops improving."""
import copy
import os
import shutil
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

WORK = "/tmp/o05_denoiser"


class Denoiser(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(32, width), nn.GELU(), nn.Linear(width, 8))
        self.decode = nn.Sequential(nn.Linear(8, width), nn.GELU(), nn.Linear(width, 32))

    def forward(self, x):
        return self.decode(self.encode(x))


def make_signals(n, seed):
    g = torch.Generator().manual_seed(seed)
    t = torch.linspace(0, 6.28, 32)
    phase = torch.rand(n, 1, generator=g) * 6.28
    freq = 1 + 2 * torch.rand(n, 1, generator=g)
    clean = torch.sin(freq * t + phase)
    return TensorDataset(clean + 0.3 * torch.randn(n, 32, generator=g), clean)


class Plateau:
    """Remembers the best score and tells when it has not improved for some epochs."""

    def __init__(self, patience, margin):
        self.patience, self.margin = patience, margin
        self.best, self.bad = float("inf"), 0
        self.snapshot = None

    def update(self, score, model):
        if score < self.best - self.margin:
            self.best, self.bad = score, 0
            self.snapshot = copy.deepcopy(model.state_dict())
        else:
            self.bad += 1
        return self.bad >= self.patience


def train_epoch(model, opt, loader):
    model.train()
    total = torch.zeros(2)
    for noisy, clean in loader:
        loss = F.mse_loss(model(noisy), clean)
        opt.zero_grad()
        loss.backward()
        opt.step()
        total += torch.tensor([loss.item(), 1.0])
    dist.all_reduce(total)
    return (total[0] / total[1]).item()


@torch.no_grad()
def validate(model, loader):
    model.eval()
    errors = [F.mse_loss(model(noisy), clean) for noisy, clean in loader]
    return torch.stack(errors).mean().item()


def run(rank):
    torch.manual_seed(0)
    train = make_signals(2048, 0)
    sampler = DistributedSampler(train, shuffle=True)
    loader = DataLoader(train, batch_size=64, sampler=sampler)
    model = DDP(Denoiser())
    opt = torch.optim.AdamW(model.parameters(), 3e-3)
    stop = torch.zeros(1, dtype=torch.int64)
    if rank == 0:
        valid = DataLoader(make_signals(256, 1), batch_size=128)
        plateau = Plateau(patience=2, margin=0.02)

    for epoch in range(40):
        sampler.set_epoch(epoch)
        started = time.time()
        loss = train_epoch(model, opt, loader)
        if rank == 0:
            score = validate(model.module, valid)
            print(f"epoch {epoch} train {loss:.4f} valid {score:.4f} "
                  f"({time.time() - started:.2f}s)", flush=True)
            if plateau.update(score, model.module):
                stop.fill_(1)
                print(f"no progress since {plateau.best:.4f}", flush=True)
                break
        dist.broadcast(stop, src=0)
        if stop.item():
            break

    if rank == 0:
        torch.save(plateau.snapshot, os.path.join(WORK, "best.pt"))
    dist.barrier()
    model.module.load_state_dict(torch.load(os.path.join(WORK, "best.pt")))
    final = validate(model.module, DataLoader(make_signals(512, 2 + rank), batch_size=128))
    print(f"rank {rank}: test error {final:.4f}", flush=True)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    if rank == 0:
        shutil.rmtree(WORK, ignore_errors=True)
        os.makedirs(WORK)
    dist.barrier()
    run(rank)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
