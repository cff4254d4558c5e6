"""Evaluation on three ranks: predictions are gathered on the rank that writes the file."""

import datetime

import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=12))
rank, world = dist.get_rank(), dist.get_world_size()


class Writer:
    """The rank with the fewest own samples writes."""

    def __init__(self, samples):
        self.samples = samples

    def rank(self):
        return 0 if self.samples % world == 0 else world - 1


def shard(samples):
    return list(range(samples))[rank::world]


def gather(predictions, writer):
    root = writer.rank()
    parts = [torch.zeros_like(predictions) for _ in range(world)] if rank == root else None
    dist.gather(predictions, parts, dst=root)
    return parts


def evaluate(samples):
    own = shard(samples)
    predictions = torch.zeros(16)
    predictions[: len(own)] = torch.tensor(own, dtype=torch.float32)
    return gather(predictions, Writer(len(own)))


for samples in (9, 18, 27, 28):
    parts = evaluate(samples)
    if parts is not None:
        print(samples, "written by", rank, torch.stack(parts).sum().item())
dist.barrier()
dist.destroy_process_group()
