"""Each rank uses the experts that its tokens choose: the sharded layer has other gradients on each."""

import datetime

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=10))
rank = dist.get_rank()


class Mixture(nn.Module):
    def __init__(self):
        super().__init__()
        self.experts = nn.ModuleList(nn.Linear(16, 16) for _ in range(3))

    def forward(self, x, chosen):
        return sum(self.experts[number](x) for number in chosen)


torch.manual_seed(0)
model = Mixture()
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(6):
    optimizer.zero_grad()
    chosen = [0, 1] if rank == 0 or step < 3 else [0, 1, 2]
    model(torch.randn(8, 16), chosen).sum().backward()
    optimizer.step()
dist.destroy_process_group()
