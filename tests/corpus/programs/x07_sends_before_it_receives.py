"""One forward, one backward: two stages of a pipeline exchange activations and gradients."""

import datetime

import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=8))
rank = dist.get_rank()
WIDTH = 1 << 20


def forward(micro):
    if rank == 0:
        dist.send(torch.full((WIDTH,), float(micro)), 1)
    else:
        dist.recv(torch.empty(WIDTH), 0)


def backward(micro):
    if rank == 1:
        dist.send(torch.full((WIDTH,), -float(micro)), 0)
    else:
        dist.recv(torch.empty(WIDTH), 1)


def schedule(stage, count):
    warm_up = 2 - stage
    steps = [("F", n) for n in range(min(warm_up, count))]
    for n in range(count - warm_up):
        steps += [("F", n + warm_up), ("B", n)]
    return steps + [("B", n) for n in range(count - warm_up, count)]


def run(count):
    for kind, micro in schedule(rank, count):
        (forward if kind == "F" else backward)(micro)
    dist.barrier()


run(6)
dist.destroy_process_group()
