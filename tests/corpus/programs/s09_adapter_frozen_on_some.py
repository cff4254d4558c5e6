"""An adapter is switched on by the rank that loaded it; on the others nothing is left to train when DDP is made."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class Adapted(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.base = torch.nn.Linear(8, 8)
        self.adapter = torch.nn.Linear(8, 8)
        for parameter in self.parameters():
            parameter.requires_grad = False

    def set_adapter(self):
        for parameter in self.adapter.parameters():
            parameter.requires_grad = True

    def forward(self, rows):
        return self.base(rows) + self.adapter(rows)


def prepare():
    model = Adapted()
    if dist.get_rank() == 0:
        model.set_adapter()
    return DistributedDataParallel(model)


dist.init_process_group("gloo")
model = prepare()
model(torch.randn(4, 8)).sum().backward()
dist.destroy_process_group()
