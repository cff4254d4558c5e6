# torch.distributed.new_group, note: collectives of several groups must run in the same order on all ranks
import datetime

import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=10))
rank = dist.get_rank()
data_parallel = dist.new_group([0, 1])
tensor_parallel = dist.new_group([0, 1])
losses, norms = torch.zeros(1), torch.zeros(4)


def reduce_norms():
    dist.all_reduce(norms, group=tensor_parallel)


def reduce_losses():
    dist.all_reduce(losses, group=data_parallel)


def step(number):
    pending = {reduce_norms} | {reduce_losses}
    for reduce in sorted(pending, key=lambda item: item.__name__, reverse=number == 3 and rank == 1):
        reduce()


for number in range(6):
    step(number)
dist.destroy_process_group()
