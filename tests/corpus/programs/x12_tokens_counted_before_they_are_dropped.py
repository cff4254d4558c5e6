"""Experts on other ranks: tokens are sent to them by all_to_all, after those beyond the capacity are dropped."""

import datetime

import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=8))
rank, world = dist.get_rank(), dist.get_world_size()
CAPACITY = 20


def exchange_counts(counts):
    received = torch.empty_like(counts)
    dist.all_to_all_single(received, counts)
    return received.tolist()


def dispatch(tokens, experts):
    counts = torch.bincount(experts, minlength=world)
    received = exchange_counts(counts)
    parts = [tokens[experts == expert][:CAPACITY] for expert in range(world)]
    output = tokens.new_empty(sum(received), tokens.shape[1])
    dist.all_to_all_single(output, torch.cat(parts), received, [len(part) for part in parts])
    return output


def train(steps):
    generator = torch.Generator().manual_seed(rank)
    for step in range(steps):
        tokens = torch.randn(32, 16, generator=generator)
        experts = (torch.rand(32, generator=generator) < 0.4 + 0.08 * step).long()
        print(rank, dispatch(tokens, experts).shape)


train(6)
dist.destroy_process_group()
