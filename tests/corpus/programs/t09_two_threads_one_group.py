"""A checkpoint is gathered by a thread, on the default group, on which the main thread calls barrier() meanwhile."""

import datetime
import threading
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=12))
rank = dist.get_rank()


def gather_shards(state):
    time.sleep(0.2 if rank == 0 else 1.5)  # as long as the copy of this rank's shard takes
    sizes = [torch.zeros(1) for _ in range(dist.get_world_size())]
    dist.all_gather(sizes, torch.tensor([float(len(state))]))
    return sizes


def save_async(state):
    thread = threading.Thread(target=gather_shards, args=(state,), name="checkpoint")
    thread.start()
    return thread


def save(state):
    thread = save_async(state)
    time.sleep(0.8)
    dist.barrier()
    thread.join()


def train(steps):
    for step in range(steps):
        save({"step": step})


train(2)
dist.destroy_process_group()
