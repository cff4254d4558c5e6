# Lightning-AI/pytorch-lightning#7773, huggingface/accelerate#167: all_gather of predictions whose last batch is smaller
import datetime

import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=10))
rank, world = dist.get_rank(), dist.get_world_size()


def gather(mine):
    everyone = [torch.empty_like(mine) for _ in range(world)]
    dist.all_gather(everyone, mine)
    return torch.cat(everyone)


samples = torch.arange(61)[rank::world]
for batch in samples.split(8):
    print(gather(batch.float()).sum())
dist.destroy_process_group()
