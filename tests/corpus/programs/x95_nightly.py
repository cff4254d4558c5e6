"""Nightly service: trains the demand model of each shop on two processes, and reports what it does.

python x95_nightly.py --shops north south
"""
import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

FEATURES = 24


def sales(seed, rows):
    random = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, FEATURES, generator=random)
    weight = torch.randn(FEATURES, 1, generator=random)
    return x, torch.relu(x @ weight) + 0.1 * torch.randn(rows, 1, generator=random)


def make_model():
    return nn.Sequential(nn.Linear(FEATURES, 64), nn.ReLU(), nn.Linear(64, 1))


def fit(model, x, y, steps, batch):
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(steps):
        at = step * batch % (len(x) - batch)
        loss = nn.functional.mse_loss(model(x[at:at + batch]), y[at:at + batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


@torch.no_grad()
def backtest(model, seed, weeks):
    errors = []
    for week in range(weeks):
        x, y = sales(seed + week, 20000)
        errors.append((model(x) - y).abs().mean().item())
    return sum(errors) / len(errors)


def train_shop(rank, world, shop, folder, args):
    torch.set_num_threads(1)
    torch.manual_seed(5)
    dist.init_process_group("gloo", init_method=f"file://{folder}/{shop}.store", rank=rank, world_size=world)
    model = DDP(make_model())
    x, y = sales(sum(map(ord, shop)), 8192)
    loss = fit(model, x[rank::world], y[rank::world], args.steps, 64)
    dist.barrier()
    dist.destroy_process_group()
    print(f"  {shop}: rank {rank} trained, loss {loss:.4f}", flush=True)
    if rank == 0:
        error = backtest(model.module, 1000, args.weeks)
        torch.save({"model": model.module.state_dict(), "error": error}, f"{folder}/{shop}.pt")
        print(f"  {shop}: saved, error {error:.4f} over {args.weeks} weeks", flush=True)


class Reporter:
    """Hands each event to a helper program, without waiting for it."""

    def __init__(self, folder):
        self.path = os.path.join(folder, "events.log")

    def __call__(self, event):
        line = f"{time.strftime('%H:%M:%S')} {event}"
        subprocess.Popen(["sh", "-c", 'echo "$1" >> "$2"', "report", line, self.path])


class Service:
    def __init__(self, folder, args):
        self.folder = folder
        self.args = args
        self.report = Reporter(folder)
        self.trained = []
        # helpers that have ended are not to stay in the process table
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)

    def calibrate(self):
        x, y = sales(0, 4096)
        loss = fit(make_model(), x, y, 200, 64)
        self.report(f"calibrated, loss {loss:.4f}")
        print(f"calibrated, loss {loss:.4f}", flush=True)

    def run(self, shops):
        self.calibrate()
        for shop in shops:
            self.report(f"start {shop}")
            mp.spawn(train_shop, args=(2, shop, self.folder, self.args), nprocs=2)
            self.trained.append(shop)
            self.report(f"done {shop}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--shops", nargs="+", default=["north", "south"])
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--weeks", type=int, default=150)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="nightly_") as folder:
        service = Service(folder, args)
        service.run(args.shops)
        print(f"{len(service.trained)} shops trained: {', '.join(service.trained)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
