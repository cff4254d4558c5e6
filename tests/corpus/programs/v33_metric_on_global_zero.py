# Lightning-AI/pytorch-lightning#19783: on_validation_epoch_end that gathers below is_global_zero
import datetime

import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=10))
rank = dist.get_rank()
predictions = []


def validation_step(x):
    predictions.append(x.argmax(-1))


def on_validation_epoch_end():
    if rank == 0:
        mine = torch.cat(predictions)
        everyone = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
        dist.all_gather(everyone, mine)
        print(torch.cat(everyone).float().mean())
    predictions.clear()


for epoch in range(3):
    for _ in range(4):
        validation_step(torch.randn(8, 5))
    on_validation_epoch_end()
dist.barrier()
dist.destroy_process_group()
