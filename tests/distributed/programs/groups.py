"""Process groups that differ between ranks."""

import datetime
import time

import torch
import torch.distributed as dist
from job import SECONDS, agree, main

GUILTY = 1


def group(ranks, description):
    """A group with the time-out of the default one: its own default is 30 minutes."""
    return dist.new_group(ranks, group_desc=description, timeout=datetime.timedelta(seconds=SECONDS))


def made_by_a_subset(rank):
    """new_group() must be called by all ranks, members or not; rank 2 does not, and its count of groups is one less."""
    agree()
    if rank != 2:
        pair = group([0, 1], "tensor parallel")
        dist.all_reduce(torch.ones(8), group=pair)
    everybody = group([0, 1, 2], "data parallel")
    dist.all_reduce(torch.ones(8), group=everybody)


def all_after_a_subset(rank):
    """The same, and the group of all has no list of ranks."""
    agree()
    if rank != 2:
        pair = group([0, 1], "tensor parallel")
        dist.all_reduce(torch.ones(8), group=pair)
    everybody = group(None, "evaluation")
    dist.all_reduce(torch.ones(8), group=everybody)


def made_in_another_order(rank):
    """One rank makes the second group first."""
    agree()
    made = {}
    pairs = [("tensor parallel", [0, 1]), ("pipeline parallel", [1, 2])]
    for description, ranks in reversed(pairs) if rank == GUILTY else pairs:
        made[description] = group(ranks, description)
    for description, ranks in pairs:
        if rank in ranks:
            dist.all_reduce(torch.ones(8), group=made[description])
    dist.barrier()


def stuck_upstream(rank):
    """Rank 3 never enters its pair's collective; rank 2 waits there, 0 and 1 wait for rank 2 in the next stage's."""
    agree()
    data, stage = group([2, 3], "data parallel"), group([0, 1, 2], "pipeline parallel")
    if rank == 3:
        time.sleep(2 * SECONDS)
    if rank in (2, 3):
        dist.all_reduce(torch.ones(8), group=data)
    if rank in (0, 1, 2):
        dist.all_reduce(torch.ones(8), group=stage)


def different_but_legal(rank):
    """Ranks use different groups, a different number of times."""
    first, second = group([0, 1], "first"), group([1, 2], "second")
    for _ in range(3):
        if rank in (0, 1):
            dist.all_reduce(torch.ones(8), group=first)
    for _ in range(7):
        if rank in (1, 2):
            dist.broadcast(torch.ones(3, 5), src=2, group=second)
    dist.barrier()


if __name__ == "__main__":
    main(made_by_a_subset, all_after_a_subset, made_in_another_order, stuck_upstream, different_but_legal)
