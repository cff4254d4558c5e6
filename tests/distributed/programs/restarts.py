"""Two ranks; in the first attempt rank 1 reads through a null pointer, in the second rank 0 raises."""

import ctypes
import os
import sys
import time

import torch
import torch.distributed as dist


def main():
    attempt = os.environ["TORCHELASTIC_RESTART_COUNT"]
    # A store of its own for each attempt, since torch 2.13 leaves addresses of gloo's first one in the agent's; and for
    # each job: a store that a crash left makes a later job wait for ever for ranks that are gone.
    store = f"{sys.argv[1]}.{os.environ['TORCHELASTIC_RUN_ID']}.{attempt}"
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=size)
    dist.all_reduce(torch.ones(4))
    if attempt == "0" and rank == 1:
        ctypes.memset(None, 0, 64)
    if attempt == "1" and rank == 0 and sys.argv[2] == "fail":
        raise ValueError("the second attempt")
    if attempt == "0":
        time.sleep(20)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
