"""Evaluation over a stream whose length depends on the rank; the number of samples is summed batch by batch."""

import datetime

import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=8))
rank = dist.get_rank()


class Stream:
    def __init__(self, records):
        self.records = records

    def __iter__(self):
        batch = []
        for record in self.records:
            if record % 5 == 4:
                continue
            batch.append(record)
            if len(batch) == 3:
                yield torch.tensor(batch, dtype=torch.float32)
                batch = []
        if batch:
            yield torch.tensor(batch, dtype=torch.float32)


def last_samples(batch):
    count = torch.tensor([len(batch)])
    dist.all_reduce(count)
    return int(count)


def evaluate(stream):
    iterator, total, seen = iter(stream), torch.zeros(1), 0
    while True:
        try:
            batch = next(iterator)
        except StopIteration:
            break
        seen += last_samples(batch)
        total += batch.sum()
    scores = [torch.zeros(1) for _ in range(dist.get_world_size())]
    dist.all_gather(scores, total)
    return sum(scores).item() / seen


print(rank, evaluate(Stream(range(30) if rank == 0 else range(28, 62))))
dist.destroy_process_group()
