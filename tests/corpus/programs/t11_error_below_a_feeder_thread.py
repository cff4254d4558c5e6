"""One rank's step raises; its thread that feeds batches is no daemon, so the process stays, and the other rank waits for it."""

import datetime
import queue
import threading

import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=15))
rank = dist.get_rank()
batches = queue.Queue(maxsize=2)


def feed():
    number = 0
    while True:
        size = 7 if (rank, number) == (1, 4) else 8
        batches.put(torch.randn(4, size))
        number += 1


def step(model):
    has_data = torch.ones(1, dtype=torch.int8)
    dist.all_reduce(has_data, op=dist.ReduceOp.MIN)
    return model(batches.get()).sum()


def train(steps):
    model = torch.nn.Linear(8, 1)
    for _ in range(steps):
        step(model)


threading.Thread(target=feed, name="feeder").start()
train(20)
