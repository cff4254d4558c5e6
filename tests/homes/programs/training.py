"""The small training that every home starts, and the deaths that it dies on request.

A line that ends a rank, or keeps the others waiting, has the name of the death as its comment: cells.toml refers to it.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import queue
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Dataset, get_worker_info

VICTIM, LAST_STEP, STEPS = 1, 3, 6
BATCH, FEATURES, CLASSES = 4, 16, 10
MOST_KEPT = 256  # of 16 MiB: more than any limit of the homes, and less than a machine has
UNMAPPED_AT_ONCE = 10 << 20  # elements of float32: beyond 32 MiB glibc maps a block of its own


class Samples(Dataset):
    """Random features with random labels, the same ones in each process."""

    def __init__(self, death: str = "none", rank: int = 0) -> None:
        self.death, self.rank = death, rank
        generator = torch.Generator().manual_seed(7)
        self.features = torch.randn(BATCH * STEPS, FEATURES, generator=generator)
        self.labels = torch.randint(0, CLASSES, (BATCH * STEPS,), generator=generator)

    def __len__(self) -> int:
        return len(self.features)

    def __getitem__(self, index: int):
        if self.death == "worker" and self.rank == VICTIM and get_worker_info() and index >= BATCH * LAST_STEP:
            decode(index)
        return self.features[index], self.labels[index]


def decode(index: int) -> bytes:
    """A native decoder that is given a bad address."""
    tell("dies")
    return ctypes.string_at(0x10, index)  # worker


def samples(death: str, rank: int) -> DataLoader:
    may_start = not multiprocessing.current_process().daemon  # the server's engine cores may not
    workers = 1 if death in ("none", "worker") and may_start else 0
    return DataLoader(Samples(death, rank), batch_size=BATCH, num_workers=workers)


def classifier() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(FEATURES, 32), nn.ReLU(), nn.Linear(32, CLASSES))


def die(death: str, rank: int, step: int) -> None:
    """Called before each step."""
    if step != LAST_STEP:
        return
    if death == "desync" and rank != VICTIM:
        log_loss()
    if rank != VICTIM or death == "none":
        return
    tell("dies")
    if death == "fault":
        read_freed_batch()
    elif death == "kill":
        wait_for_the_killer()
    elif death == "oom":
        keep_batches()
    elif death == "exception":
        check_labels()
    elif death == "hang":
        next_shard()


def read_freed_batch() -> None:
    """Native code that keeps the address of a tensor which is gone."""
    batch = torch.ones(UNMAPPED_AT_ONCE)
    address = batch.data_ptr()
    del batch
    ctypes.string_at(address, 64)  # fault


def wait_for_the_killer() -> None:
    """Somebody with a shell ends this process: see tests/homes/runner.py."""
    tell("victim")
    time.sleep(120)  # kill


def keep_batches() -> None:
    """A cache without a limit, in a memory cgroup that has one (tests/homes/runner.py)."""
    cache = []
    while len(cache) < MOST_KEPT:
        cache.append(torch.ones(4 << 20))  # oom
    raise RuntimeError("there is no limit")


def tell(what: str) -> None:
    """To tests/homes/runner.py, by a file with the pid."""
    named = Path(os.environ["HOMES_WORK"], what)
    named.with_suffix(".new").write_text(str(os.getpid()))
    named.with_suffix(".new").rename(named)


def check_labels() -> None:
    raise ValueError("label 11 in shard 3, but there are 10 classes")  # exception


def log_loss() -> None:
    """The mean for the log, but on some ranks only."""
    loss = torch.zeros(1)
    dist.all_reduce(loss)  # desync


def next_shard() -> object:
    """From a thread that was never started."""
    tell("hangs")
    return queue.Queue().get()  # hang


def train(death: str, rank: int, model: nn.Module, batches: DataLoader) -> float:
    """The loop of those homes that have none."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loss = torch.zeros(())
    for step, (features, labels) in enumerate(batches):
        die(death, rank, step)
        loss = nn.functional.cross_entropy(model(features), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return float(loss)


def train_rank(death: str, rank: int) -> float:
    """One rank of a group that exists already."""
    torch.set_num_threads(1)
    model = nn.parallel.DistributedDataParallel(classifier())
    loss = train(death, rank, model, samples(death, rank))
    dist.barrier()
    return loss


def spawned(rank: int, death: str, store: str, world: int = 2) -> None:
    """One rank that multiprocessing started."""
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
    try:
        loss = train_rank(death, rank)
        if rank == 0:
            print(f"loss {loss:.4f}", flush=True)
    finally:
        dist.destroy_process_group()
