"""Code that knows nothing of FSDP puts a whole tensor where a shard lies."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel

dist.init_process_group("gloo")
model = FullyShardedDataParallel(nn.Linear(8, 8), device_id=torch.device("cpu"), use_orig_params=True)


def resize_embeddings(rows):
    model.module.weight.data = torch.zeros(rows, 8)


def step():
    return model(torch.randn(4, 8)).sum()


step()
resize_embeddings(12)
step()
dist.destroy_process_group()
