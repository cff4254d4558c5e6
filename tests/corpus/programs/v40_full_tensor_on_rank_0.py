# areal-project/AReaL#187: DTensor.full_tensor() on rank 0 only
import datetime

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=10))
rank = dist.get_rank()
mesh = dist.init_device_mesh("cpu", (2,))
model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Linear(32, 4))
fully_shard(model, mesh=mesh)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def log_norms():
    for name, parameter in model.named_parameters():
        print(name, parameter.full_tensor().norm())


for step in range(6):
    model(torch.randn(4, 16)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    if rank == 0 and step == 3:
        log_norms()
dist.destroy_process_group()
