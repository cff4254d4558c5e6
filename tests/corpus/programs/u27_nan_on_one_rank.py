# QwenAudio/CosyVoice#180-style: one rank ends, the other one reports a closed connection
import datetime

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=12))
rank = dist.get_rank()
torch.manual_seed(rank)
model = DDP(torch.nn.Linear(16, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def step(i):
    x = torch.randn(8, 16)
    if rank == 1 and i == 5:
        x[3] = float("inf")
    loss = model(x).log_softmax(-1).mean()
    assert torch.isfinite(loss), f"loss is {loss.item()} at step {i}"
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()


for i in range(10):
    step(i)
dist.destroy_process_group()
