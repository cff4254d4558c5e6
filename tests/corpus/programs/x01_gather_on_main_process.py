# huggingface/accelerate#2785: metrics are gathered inside `if is_main_process`
import datetime

import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=10))
rank, size = dist.get_rank(), dist.get_world_size()
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(16, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def gather(values):
    rows = [torch.empty_like(values) for _ in range(size)]
    dist.all_gather(rows, values)
    return torch.cat(rows)


def evaluate():
    accuracy = torch.rand(8)
    if rank == 0:
        print("accuracy", gather(accuracy).mean())


for epoch in range(3):
    for _ in range(4):
        optimizer.zero_grad()
        model(torch.randn(8, 16)).sum().backward()
        optimizer.step()
    evaluate()
dist.destroy_process_group()
