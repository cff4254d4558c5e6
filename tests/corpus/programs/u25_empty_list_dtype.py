# torch.tensor([]) is float32: Lightning-AI/torchmetrics-style all_reduce over counts
import datetime

import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=12))
rank = dist.get_rank()


def matches(batch):
    return [i for i, score in enumerate(batch) if score > 0.5]


def count(batch):
    hits = torch.tensor(matches(batch))
    total = hits.new_tensor([len(hits), hits.sum()])
    dist.all_reduce(total)
    return total


print(count([0.9, 0.1, 0.8]))
print(count([0.9, 0.1] if rank == 0 else [0.1, 0.2]))
dist.destroy_process_group()
