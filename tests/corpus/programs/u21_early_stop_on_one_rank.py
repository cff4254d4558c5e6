# Lightning-AI/pytorch-lightning#379
import datetime

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=12))
rank = dist.get_rank()
torch.manual_seed(0)
model = DDP(torch.nn.Linear(16, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def validate(epoch):
    return [1.0, 0.9, 0.95, 0.97][epoch] if rank == 0 else [1.0, 0.9, 0.8, 0.7][epoch]


def fit():
    best, patience = float("inf"), 1
    for epoch in range(4):
        for _ in range(3):
            model(torch.randn(8, 16)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        loss = validate(epoch)
        if loss > best:
            patience -= 1
            if patience == 0:
                break
        best = min(best, loss)


fit()
dist.barrier()
print("rank", rank, "done")
dist.destroy_process_group()
