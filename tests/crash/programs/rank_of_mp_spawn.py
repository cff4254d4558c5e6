"""torch.multiprocessing.spawn with two ranks over gloo; rank 1 fails: rank_of_mp_spawn.py raise|fault STORE."""

import ctypes
import os
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def read_shard(how):
    if how == "raise":
        raise ValueError("shard 3 has 0 rows")
    ctypes.CDLL(os.environ["FAULTS_LIBRARY"]).read_field(None)


def train(rank, how, store):
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    total = torch.ones(10)
    dist.all_reduce(total)
    if rank == 1:
        read_shard(how)
    dist.all_reduce(total)
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(train, args=(sys.argv[1], sys.argv[2]), nprocs=2)
