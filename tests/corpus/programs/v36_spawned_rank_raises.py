# TaoRuijie/ECAPA-TDNN#22: torch.multiprocessing.spawn.ProcessRaisedException
import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def load_shard(rank):
    return {"train-0": torch.randn(64, 8), "train-00001": torch.randn(64, 8)}[f"train-{rank}"]


def worker(rank, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=2)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 4))
    for rows in load_shard(rank).split(8):
        model(rows).sum().backward()


if __name__ == "__main__":
    mp.spawn(worker, args=(29000 + os.getpid() % 1000,), nprocs=2)
