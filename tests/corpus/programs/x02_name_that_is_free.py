# Lightning-AI/pytorch-lightning#19045: each rank looks for a free checkpoint name by its own metric
import datetime

import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=10))
rank = dist.get_rank()
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(16, 4))
saved = {"best-0.50.ckpt", "best-0.50-v1.ckpt"}


def exists(name):
    found = [name in saved]
    dist.broadcast_object_list(found, src=0)
    return found[0]


def checkpoint_name(score):
    name, version = f"best-{score:.2f}.ckpt", 0
    while exists(name) and name in saved:
        version += 1
        name = f"best-{score:.2f}-v{version}.ckpt"
    return name


def fit():
    for epoch in range(3):
        model(torch.randn(8, 16)).sum().backward()
        score = 0.5 if rank == 0 else 0.25
        saved.add(checkpoint_name(score))
        dist.barrier()


fit()
dist.destroy_process_group()
