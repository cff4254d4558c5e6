"""Rank 1 looks for newer data with a limit of time, then trains on."""

import datetime
import os
import signal
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=20))
rank = dist.get_rank()


class TimeLimit:
    def __init__(self, seconds):
        self.seconds = seconds

    def __enter__(self):
        self.before = signal.signal(signal.SIGALRM, self.expired)
        signal.alarm(self.seconds)

    def expired(self, number, frame):
        raise TimeoutError("download")

    def __exit__(self, *error):
        signal.signal(signal.SIGALRM, self.before)


def refresh(folder):
    with TimeLimit(4):
        return sorted(os.listdir(folder))


def step(number, model):
    time.sleep(0.2)
    gradient = torch.rand(64, 64) @ model
    dist.all_reduce(gradient)
    return gradient.mean().item()


def train(steps):
    model = torch.rand(64, 64)
    if rank == 1:
        print("files", len(refresh(".")))
    for number in range(steps):
        loss = step(number, model)
    print(rank, loss)


train(60)
dist.destroy_process_group()
