"""Shared by the programs of this directory: how a rank starts, joins and leaves, and the usual model.

PROGRAM SCENARIO runs as one rank under torchrun; PROGRAM SCENARIO --spawn N STORE starts N ranks with mp.spawn.
"""

import datetime
import os
import pathlib
import sys
import threading
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

SECONDS = 6  # every time-out: long enough to start on two busy cores, short enough to wait for


def join(rank=None, world=None, store=None):
    """Makes the default process group over gloo."""
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{store}" if store else "env://", timeout=datetime.timedelta(seconds=SECONDS),
        rank=int(os.environ["RANK"]) if rank is None else rank,
        world_size=int(os.environ["WORLD_SIZE"]) if world is None else world,
    )  # fmt: skip


def keep_dumping(directory):
    """Writes torch's Flight Recorder to DIRECTORY/dump_RANK repeatedly: more than a dying job usually leaves."""
    path = pathlib.Path(directory, f"dump_{dist.get_rank()}")
    aside = path.with_name(f"new.{dist.get_rank()}")

    def dump():
        while True:
            aside.write_bytes(torch._C._distributed_c10d._dump_fr_trace(True, False, False))
            aside.rename(path)
            time.sleep(0.3)

    threading.Thread(target=dump, daemon=True).start()


def take_part(rank, scenario, world, store):
    """One rank from its beginning to its end."""
    join(rank, world, store)
    if "FLIGHT_RECORDER_DUMPS" in os.environ:
        keep_dumping(os.environ["FLIGHT_RECORDER_DUMPS"])
    scenario(dist.get_rank())
    dist.destroy_process_group()


def main(*scenarios):
    """Runs the scenario that the command line names."""
    scenario = {function.__name__: function for function in scenarios}[sys.argv[1]]
    if sys.argv[2:3] == ["--spawn"]:
        world, store = int(sys.argv[3]), sys.argv[4]
        mp.spawn(take_part, args=(scenario, world, store), nprocs=world)
    else:
        take_part(None, scenario, None, None)


def classifier(**options):
    """A small DDP model, the same on every rank."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4))
    return DistributedDataParallel(net, **options)


def train(model, steps, seed=0):
    """Some steps of training."""
    torch.manual_seed(seed)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(8, 16)).square().mean().backward()
        optimizer.step()


def agree(count=3):
    """Some collectives on which all ranks agree."""
    for _ in range(count):
        dist.all_reduce(torch.ones(8))
