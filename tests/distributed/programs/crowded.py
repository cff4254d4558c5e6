"""Two ranks that record much of everything: groups, threads, frames, exceptions; then one dies."""

import ctypes
import threading

import torch
import torch.distributed as dist
from job import classifier, main, train

GROUPS = 140  # two times 8 KB are too small for all of them
THREADS = 8
DEPTH = 100


def descend(depth, act):
    """`depth` frames, then `act`."""
    return act() if depth == 0 else descend(depth - 1, act)


def wait_deep():
    waits = [
        threading.Thread(target=descend, args=(DEPTH, threading.Event().wait), daemon=True) for _ in range(THREADS)
    ]
    for thread in waits:
        thread.start()


def talk():
    """A collective in every group, and another size each time."""
    groups = [dist.new_group([0, 1], group_desc=f"expert parallel group {number}") for number in range(GROUPS)]
    for number, group in enumerate(groups):
        dist.all_reduce(torch.ones(number + 1), group=group)
    return groups


def fail_often():
    """Exceptions in threads, which the rank outlives."""

    def fail(number):
        raise ValueError(f"shard {number} of {'x' * 400} has {number * 7919} rows")

    for number in range(24):
        thread = threading.Thread(target=descend, args=(DEPTH, lambda number=number: fail(number)))
        thread.start()
        thread.join()


def _much(rank, act):
    train(classifier(), 3)
    groups = talk()
    wait_deep()
    if rank == 1:
        fail_often()
        descend(DEPTH, act)
    dist.all_reduce(torch.ones(8), group=groups[-1])


def faults(rank):
    _much(rank, lambda: ctypes.memset(None, 0, 64))


if __name__ == "__main__":
    main(faults)
