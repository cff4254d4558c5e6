"""Ranks of one node share what their leader has computed."""

import datetime

import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=8))
rank, world = dist.get_rank(), dist.get_world_size()
NODE = 2


def node_groups():
    own = None
    for first in range(0, world, NODE):
        group = dist.new_group(list(range(first, min(first + NODE, world))))
        if first <= rank < first + NODE:
            own = group
    return own


def invoke_on_leader(group, function):
    result = [function() if dist.get_rank(group) == 0 else None]
    dist.broadcast_object_list(result, src=0, group=group)
    return result[0]


def main():
    group = node_groups()
    dist.all_reduce(torch.ones(1))
    plan = invoke_on_leader(group, lambda: {"shards": [1, 2, 3]})
    total = torch.tensor([float(len(plan["shards"]))])
    dist.all_reduce(total)
    print(rank, total.item())


main()
dist.destroy_process_group()
