"""Rank 0 makes the plan of sharding, under a lock of the cache folder, and broadcasts it."""

import datetime
import fcntl
import subprocess
import sys

import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=10))
rank = dist.get_rank()
HOLDER = "import fcntl,time; f=open('plan.lock','w'); fcntl.flock(f,fcntl.LOCK_EX); print('locked',flush=True); time.sleep(60)"


def prefetch():
    """Fills the cache in the background."""
    process = subprocess.Popen([sys.executable, "-c", HOLDER], stdout=subprocess.PIPE)
    process.stdout.readline()
    return process


def make_plan(tables):
    with open("plan.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return {name: n % dist.get_world_size() for n, name in enumerate(tables)}


def on_rank_and_broadcast(function, *arguments):
    result = [function(*arguments) if rank == 0 else None]
    dist.broadcast_object_list(result, 0)
    return result[0]


def train(tables):
    worker = prefetch() if rank == 0 else None
    try:
        plan = on_rank_and_broadcast(make_plan, tables)
        own = [name for name, owner in plan.items() if owner == rank]
        total = torch.tensor([float(len(own))])
        dist.all_reduce(total)
        print(rank, own, total.item())
    finally:
        if worker:
            worker.kill()


train(["users", "items", "words"])
dist.destroy_process_group()
