"""Each rank asks its own file system whether there is a checkpoint; one of them does not see it yet."""

import datetime
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=10))
rank = dist.get_rank()


def folder():
    place = Path(tempfile.mkdtemp())  # one for each rank, as the caches of a network file system
    if rank == 0:
        torch.save({"step": 7}, place / "train_state.pt")
    return place


def resume(place):
    state = [None]
    if (place / "train_state.pt").exists():
        if rank == 0:
            state[0] = torch.load(place / "train_state.pt")
        dist.broadcast_object_list(state, src=0)
    return state[0]


def train(state):
    loss = torch.ones(4) * (state["step"] if state else 0)
    for _ in range(3):
        dist.all_reduce(loss)


train(resume(folder()))
dist.destroy_process_group()
