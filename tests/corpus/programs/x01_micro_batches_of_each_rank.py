"""Dynamic batching: each rank cuts its samples into micro batches of at most so many tokens; the model is sharded."""

import datetime

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=8))
rank = dist.get_rank()
LENGTHS = [[40, 50, 60, 40], [90, 30, 80, 70]]


def micro_batches(lengths, limit, group=None):
    count = -(-sum(lengths) // limit)
    if group is not None:
        shared = torch.tensor([count])
        dist.all_reduce(shared, dist.ReduceOp.MAX, group=group)
        count = int(shared)
    return [lengths[at::count] for at in range(count)]


def update(model, optimizer, lengths):
    parts = micro_batches(lengths, limit=100)
    for part in parts:
        loss = sum(model(torch.randn(length, 16)).square().mean() for length in part[:1]) / len(parts)
        loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    return norm.full_tensor().item()


def main():
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
    mesh = init_device_mesh("cpu", (2,))
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(3):
        print(rank, update(model, optimizer, LENGTHS[rank]))


main()
dist.destroy_process_group()
