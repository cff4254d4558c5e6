"""A scheduler announces the end by SIGUSR1, to the first process only, whose handler saves with a barrier."""

import datetime
import os
import signal
import subprocess
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=8))
rank = dist.get_rank()
state = {"step": 0}


def save(number, frame):
    dist.barrier()
    if rank == 0:
        print("saved", state)


def train(steps):
    signal.signal(signal.SIGUSR1, save)
    for step in range(steps):
        state["step"] = step
        time.sleep(0.05)
        dist.all_reduce(torch.ones(8))


if rank == 0:
    subprocess.Popen(["sh", "-c", f"sleep 1; kill -USR1 {os.getpid()}"])
train(400)
dist.destroy_process_group()
