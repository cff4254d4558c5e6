"""A node is to be taken away: its rank is told by SIGTERM, finishes the step, saves and leaves. The other trains on."""

import os
import signal
import subprocess

import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
rank = dist.get_rank()
model = nn.parallel.DistributedDataParallel(nn.Linear(4, 2))
stop = False


def ask(number, frame):
    global stop
    stop = True


def train(steps):
    for step in range(steps):
        model(torch.randn(8, 4)).sum().backward()
        if rank == 1 and step == 4:
            subprocess.run(["sh", "-c", f"kill -TERM {os.getpid()}"], check=True)
        if stop:
            print("saved at step", step)
            return


signal.signal(signal.SIGTERM, ask)
train(20)
dist.destroy_process_group()
