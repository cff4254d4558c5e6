# speechbrain/speechbrain#2401: broadcast_object_list below if_main_process
import datetime
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=10))
rank = dist.get_rank()
torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 4))


def save_checkpoint():
    name = [f"step-{time.time():.0f}" if rank == 0 else None]
    dist.broadcast_object_list(name, src=0)
    return name[0]


def train(steps):
    for step in range(steps):
        model(torch.randn(4, 8)).sum().backward()
        if rank == 0 and step == 5:
            save_checkpoint()


train(10)
dist.destroy_process_group()
