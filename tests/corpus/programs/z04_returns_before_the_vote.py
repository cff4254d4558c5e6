"""A rank that has no request under way returns before the vote of all ranks, and goes on to the next event."""

import datetime

import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=10))
rank = dist.get_rank()
ongoing = {1: "a", 2: "b", 3: "c"}


def next_event(number):
    event = [number if rank == 0 else None]
    dist.broadcast_object_list(event, src=0)
    return event[0]


def may_stop(request):
    if request not in ongoing:
        return True
    ready = torch.ones(1)
    dist.all_reduce(ready, op=dist.ReduceOp.MIN)
    return bool(ready)


if rank == 1:
    del ongoing[3]
for number in range(1, 6):
    may_stop(next_event(number))
dist.destroy_process_group()
