import os
import socket
from contextlib import closing

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP


def find_free_port():
    with closing(socket.socket(socket.AF_INET, socket.SOCK_STREAM)) as s:
        s.bind(("127.0.0.1", 0))
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        return str(s.getsockname()[1])


def setup_process(rank, world_size, backend="gloo"):
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    os.environ["MASTER_PORT"] = find_free_port()
    print(f"setting up {rank=} {world_size=} {backend=}", flush=True)
    dist.init_process_group(backend, rank=rank, world_size=world_size)
    print(f"--> done setting up {rank=}", flush=True)


def run_parallel_training_loop(rank, world_size):
    setup_process(rank, world_size)
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(10, 8), nn.ReLU(), nn.Linear(8, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(5):
        x = torch.randn(16, 10)
        loss = nn.functional.mse_loss(model(x), x.sum(1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()


def main():
    world_size = 2
    mp.spawn(run_parallel_training_loop, args=(world_size,), nprocs=world_size)
    print("successful test_setup!", flush=True)


if __name__ == "__main__":
    main()
