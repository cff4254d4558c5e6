"""Two ranks add up gradients with an asynchronous all-reduce; rank 0 releases its memory before wait().

Rank 1 enters late, so that the collective is running on rank 0 when the memory is freed. FSDP frees memory in the same
way, by resizing the storage to zero.
"""

import os
import time

os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")

import torch
import torch.distributed as dist


def reduce_gradients(rank):
    gradients = torch.ones(16 << 20)
    if rank == 1:
        time.sleep(2)
    work = dist.all_reduce(gradients, async_op=True)
    if rank == 0:
        time.sleep(0.5)
        gradients.untyped_storage().resize_(0)
    work.wait()


def main():
    dist.init_process_group("gloo")
    dist.all_reduce(torch.ones(1))
    reduce_gradients(dist.get_rank())


main()
