"""The cache of features is written under a file lock, within which the ranks also meet."""

import datetime
import fcntl
import os
import tempfile

import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=8))
rank = dist.get_rank()
path = os.path.join(tempfile.gettempdir(), f"w27-{os.getppid()}.lock")


def prepare():
    with open(path, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        features = torch.randn(8)
        dist.barrier()
    return features


print(prepare().shape)
dist.destroy_process_group()
