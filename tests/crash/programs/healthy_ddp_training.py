"""Trains with DDP over gloo, and exits normally. Rank 0 prints each loss exactly, every rank its weights."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    net = nn.Sequential(nn.Linear(16, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 4))
    model = DistributedDataParallel(net, gradient_as_bucket_view=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    lines = []
    for step in range(12):
        inputs = torch.randn(32, 16)
        loss = nn.functional.cross_entropy(model(inputs), inputs.argmax(1) % 4)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        lines.append(f"{step} {mean.item().hex()}")
    weights = torch.stack([p.double().sum() for p in net.parameters()]).detach()
    everywhere = [torch.zeros_like(weights) for _ in range(dist.get_world_size())]
    dist.all_gather(everywhere, weights)
    dist.barrier()
    dist.destroy_process_group()
    if rank == 0:
        print("\n".join(lines))
        print([[value.hex() for value in row.tolist()] for row in everywhere], flush=True)


main()
