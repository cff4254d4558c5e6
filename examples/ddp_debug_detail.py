"""A crash of torch 2.13 itself: DDP over gloo with TORCH_DISTRIBUTED_DEBUG=DETAIL, on every rank.

    TORCH_DISTRIBUTED_DEBUG=DETAIL pytracer run -- torchrun --nproc-per-node 2 examples/ddp_debug_detail.py

Nothing is injected. DETAIL wraps the backend in another class, and DDP's constructor logs with a pointer of the wrong
type (c10d::Logger::set_env_variables). Without the variable the same job trains.
"""

from __future__ import annotations

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model = DistributedDataParallel(nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 4)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        model(torch.randn(16, 32)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    print(f"rank {dist.get_rank()} trained", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    main()
