"""Messages between two ranks: unmatched, in a cycle, and correct."""

import torch
import torch.distributed as dist
from job import agree, main


def unmatched_receive(rank):
    """Rank 1 waits for a third message; rank 0 sent two and continues."""
    agree()
    if rank == 0:
        for _ in range(2):
            dist.send(torch.ones(8), dst=1)
    if rank == 1:
        for _ in range(3):
            dist.recv(torch.empty(8), src=0)
    dist.barrier()


def another_tag(rank):
    """Rank 0 sends with tag 1, rank 1 receives with tag 2."""
    agree()
    if rank == 0:
        dist.send(torch.ones(1 << 16), dst=1, tag=1)
    else:
        dist.recv(torch.empty(1 << 16), src=0, tag=2)
    dist.barrier()


def cycle(rank):
    """Every rank first receives from the previous one: no rank ever sends."""
    agree()
    world = dist.get_world_size()
    dist.recv(torch.empty(8), src=(rank - 1) % world)
    dist.send(torch.ones(8), dst=(rank + 1) % world)
    dist.barrier()


def ring(rank):
    """The same cycle with batched operations, which is correct."""
    world = dist.get_world_size()
    for _ in range(3):
        operations = [
            dist.P2POp(dist.isend, torch.ones(8), (rank + 1) % world),
            dist.P2POp(dist.irecv, torch.empty(8), (rank - 1) % world),
        ]
        for work in dist.batch_isend_irecv(operations):
            work.wait()


def pipeline(rank):
    """Stages in a row: the first only sends, the last only receives."""
    world = dist.get_world_size()
    for batch in range(4):
        activations = torch.full((4, 8), float(batch))
        if rank > 0:
            dist.recv(activations, src=rank - 1, tag=batch)
        if rank < world - 1:
            dist.send(activations, dst=rank + 1, tag=batch)


if __name__ == "__main__":
    main(unmatched_receive, another_tag, cycle, ring, pipeline)
