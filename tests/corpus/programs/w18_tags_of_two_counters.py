"""A pipeline of three stages, whose transfers are told apart by tags."""

import datetime

import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=8))
rank, world = dist.get_rank(), dist.get_world_size()


def send_forward(tensor, step, micro, count):
    if rank + 1 < world:
        dist.send(tensor, rank + 1, tag=step * count + micro)


def receive_forward(step, micro):
    tensor = torch.zeros(4)
    if rank > 0:
        dist.recv(tensor, rank - 1, tag=micro)
    return tensor


def run(steps, count):
    for step in range(steps):
        for micro in range(count):
            tensor = receive_forward(step, micro)
            send_forward(tensor + 1, step, micro, count)
    dist.barrier()


run(3, 2)
dist.destroy_process_group()
