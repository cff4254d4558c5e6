"""Two jobs, one after the other, by torch.multiprocessing: a sweep over dtypes. `sweep.py [fail]`.

With `fail`, rank 1 of the first job raises, and the script continues with the second one.
"""

import os
import sys
import tempfile

os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def train(rank, store, dtype, fails):
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    dist.all_reduce(torch.ones(4, dtype=dtype))
    if fails and rank == 1:
        raise ValueError("the learning rate is negative")
    dist.destroy_process_group()


if __name__ == "__main__":
    fails = sys.argv[1:] == ["fail"]
    for dtype in (torch.float32, torch.int64):
        with tempfile.TemporaryDirectory() as directory:
            try:
                mp.start_processes(
                    train,
                    (f"{directory}/store", dtype, fails and dtype == torch.float32),
                    nprocs=2,
                    start_method="fork",
                )
            except mp.ProcessRaisedException:
                print("a job of the sweep failed", flush=True)
