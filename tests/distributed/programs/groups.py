"""Process groups of which ranks have different ideas."""

import time

import torch
import torch.distributed as dist
from job import agree, main

GUILTY = 1


def made_by_a_subset(rank):
    """new_group() must be called by all ranks, members or not; rank 2 does not, and counts one group less from then on."""
    agree()
    if rank != 2:
        pair = dist.new_group([0, 1], group_desc="tensor parallel")
        dist.all_reduce(torch.ones(8), group=pair)
    everybody = dist.new_group([0, 1, 2], group_desc="data parallel")
    dist.all_reduce(torch.ones(8), group=everybody)


def made_in_another_order(rank):
    """One rank makes the second group first."""
    agree()
    made = {}
    pairs = [("tensor parallel", [0, 1]), ("pipeline parallel", [1, 2])]
    for description, ranks in reversed(pairs) if rank == GUILTY else pairs:
        made[description] = dist.new_group(ranks, group_desc=description)
    for description, ranks in pairs:
        if rank in ranks:
            dist.all_reduce(torch.ones(8), group=made[description])
    dist.barrier()


def stuck_upstream(rank):
    """Rank 3 never comes to its pair; rank 2 waits there, and 0 and 1 wait for rank 2 in the next stage's group."""
    agree()
    data, stage = dist.new_group([2, 3], group_desc="data"), dist.new_group([0, 1, 2], group_desc="stage")
    if rank == 3:
        time.sleep(12)
    if rank in (2, 3):
        dist.all_reduce(torch.ones(8), group=data)
    if rank in (0, 1, 2):
        dist.all_reduce(torch.ones(8), group=stage)


def different_but_legal(rank):
    """Ranks work in different groups, different often."""
    first, second = dist.new_group([0, 1], group_desc="first"), dist.new_group([1, 2], group_desc="second")
    for _ in range(3):
        if rank in (0, 1):
            dist.all_reduce(torch.ones(8), group=first)
    for _ in range(7):
        if rank in (1, 2):
            dist.broadcast(torch.ones(3, 5), src=2, group=second)
    dist.barrier()


if __name__ == "__main__":
    main(made_by_a_subset, made_in_another_order, stuck_upstream, different_but_legal)
