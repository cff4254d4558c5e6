# pytorch/pytorch#141069: an iterable dataset of other length on each rank
import datetime

import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=10))
rank = dist.get_rank()


class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        for _ in range(28 if rank == 0 else 33):
            yield torch.randn(8)


model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 4))
for epoch in range(2):
    for batch in torch.utils.data.DataLoader(Stream(), batch_size=4):
        model(batch).sum().backward()
dist.barrier()
dist.destroy_process_group()
