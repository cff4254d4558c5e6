# pytorch/pytorch#44353: an error of one batch is caught on one rank, and the batch skipped
import datetime

import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=10))
rank = dist.get_rank()
torch.manual_seed(rank)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 4))
batches = [torch.randn(4, 8) for _ in range(10)]
if rank == 1:
    batches[4] = torch.randn(4, 7)


def train():
    for batch in batches:
        try:
            loss = model(batch).sum()
        except RuntimeError as error:
            print("skipped:", error)
            continue
        loss.backward()


train()
dist.destroy_process_group()
