import os
import tempfile
import time
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

WORLD = 2
SYNC = os.path.join(tempfile.gettempdir(), f"width_sweep_{os.getuid()}_{os.getpid()}")


def load_shard(rank, keep=200):
    # the second site writes far more log lines per day
    gen = torch.Generator().manual_seed(rank)
    days = []
    for line in range(keep if rank == 0 else 400_000):
        values = torch.randn(8, generator=gen).clamp(-3, 3)
        if line % 64 == 0 and len(days) < keep:
            days.append(values + torch.randn(64, 8, generator=gen))
    return days


def train(rank, sync, width, steps):
    torch.set_num_threads(1)
    shard = load_shard(rank)
    dist.init_process_group(
        "gloo", init_method=f"file://{sync}", rank=rank, world_size=WORLD, timeout=timedelta(seconds=15)
    )
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(8, width), nn.ReLU(), nn.Linear(width, 1)))
    optim = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(steps):
        x = shard[step % len(shard)]
        loss = nn.functional.mse_loss(model(x), (x ** 2).sum(1, keepdim=True))
        optim.zero_grad()
        loss.backward()
        optim.step()
    if rank == 0:
        print(f"width {width} final loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


def run_trial(width, steps, budget):
    print("start width", width, flush=True)
    context = mp.spawn(train, args=(SYNC, width, steps), nprocs=WORLD, join=False)
    deadline = time.monotonic() + budget
    while not context.join(timeout=1):
        if time.monotonic() > deadline:
            for process in context.processes:
                process.terminate()
                process.join()
            print(f"width {width} is too slow, stopped after {budget} s", flush=True)
            return


if __name__ == "__main__":
    run_trial(400_000, steps=300, budget=18)
    run_trial(128, steps=300, budget=40)
    print("all trials finished")
