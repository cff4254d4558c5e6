"""Nothing is wrong, though much looks uneven."""

import time

import torch
import torch.distributed as dist
from job import classifier, main, train


def training(rank):
    """DDP on different data; rank 0 alone prints and saves."""
    model = classifier()
    train(model, 6, seed=rank)
    if rank == 0:
        print("trained", flush=True)
    dist.barrier()


def uneven(rank):
    """Contents, lists and sizes differ between ranks where they may."""
    world = dist.get_world_size()
    gathered = [None] * world
    dist.all_gather_object(gathered, {"rank": rank, "words": "x" * 100 * rank})
    rows = [torch.empty(4) for _ in range(world)]
    dist.all_gather(rows, torch.full((4,), float(rank)))
    dist.gather(torch.ones(4), rows if rank == 2 else None, dst=2)
    dist.scatter(torch.empty(4), rows if rank == 1 else None, src=1)
    dist.reduce(torch.ones(4), dst=2)
    objects = [{"epoch": 3}] if rank == 0 else [None]
    dist.broadcast_object_list(objects, src=0)
    splits = [[1, 2, 3], [2, 1, 1], [3, 1, 2]]
    received = [splits[other][rank] for other in range(world)]
    dist.all_to_all_single(torch.empty(sum(received)), torch.ones(sum(splits[rank])), received, splits[rank])
    work = dist.all_reduce(torch.ones(8), async_op=True)
    dist.all_reduce(torch.ones(3))
    work.wait()
    for _ in range(rank):  # work of a single rank
        torch.ones(8).sum()
    dist.monitored_barrier()


def saves_at_the_end(rank):
    """Rank 0 continues for a while after the last collective; the others have ended by then."""
    model = classifier()
    train(model, 3)
    if rank == 0:
        time.sleep(3)


if __name__ == "__main__":
    main(training, uneven, saves_at_the_end)
