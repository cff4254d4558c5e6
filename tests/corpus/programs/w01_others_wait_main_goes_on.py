# huggingface/accelerate#2690: the main process saves, the others wait_for_everyone()
import datetime

import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=10))
rank = dist.get_rank()
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 4))


def save(step):
    if rank == 0:
        torch.save(model.module.state_dict(), "/dev/null")
    else:
        dist.barrier()


for step in range(6):
    model(torch.randn(4, 8)).sum().backward()
    if step % 3 == 2:
        save(step)
dist.destroy_process_group()
