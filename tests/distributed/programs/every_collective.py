"""Runs every collective and message of c10d once, on two ranks; also in other ways, and in DDP."""

import os

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from job import classifier, main


def once(rank):
    x = torch.ones(10, 3)
    dist.all_reduce(x)
    dist.all_reduce(x, op=dist.ReduceOp.MAX)
    dist.broadcast(x.to(torch.int64), src=1)
    dist.reduce(x, dst=1, op=dist.ReduceOp.MIN)
    dist.all_gather([torch.empty(10, 3) for _ in range(2)], x)
    dist.all_gather_into_tensor(torch.empty(20, 3), x)
    dist.gather(x, [torch.empty(10, 3) for _ in range(2)] if rank == 0 else None, dst=0)
    dist.scatter(x, [torch.ones(10, 3)] * 2 if rank == 1 else None, src=1)
    dist.reduce_scatter(torch.empty(5, 3), [torch.ones(5, 3)] * 2)
    dist.reduce_scatter_tensor(torch.empty(5, 3), x, op=dist.ReduceOp.PRODUCT)
    dist.all_to_all_single(torch.empty(4, dtype=torch.float64), torch.ones(4, dtype=torch.float64))
    dist.barrier()


def messages(rank):
    other = 1 - rank
    x = torch.ones(6, dtype=torch.float16)
    for tag in (7, 8):
        if rank == 0:
            dist.send(x, other, tag=tag)
        else:
            dist.recv(x, other, tag=tag)
    for work in dist.batch_isend_irecv(
        [dist.P2POp(dist.isend, x, other), dist.P2POp(dist.irecv, torch.empty_like(x), other)]
    ):
        work.wait()
    if rank == 0:
        dist.recv(x)  # from any rank
    else:
        dist.send(x, other)


def groups(rank):
    """A group with its ranks in reverse order."""
    mirror = dist.new_group([1, 0], group_desc="mirror", sort_ranks=False)
    dist.all_reduce(torch.ones(4))
    dist.broadcast(torch.ones(5), src=0, group=mirror)
    dist.all_reduce(torch.ones(6), group=mirror, async_op=True).wait()
    dist.all_reduce(torch.ones(4))


def other_ways(rank):
    """Functional collectives, inference mode, objects, futures."""
    x = torch.ones(4, 2)
    functional.wait_tensor(functional.all_reduce(x, "sum", dist.group.WORLD))
    functional.wait_tensor(functional.all_gather_tensor(x, 0, dist.group.WORLD))
    with torch.inference_mode():
        dist.all_reduce(torch.ones(2))
    works = [dist.all_reduce(torch.ones(n), async_op=True) for n in (3, 5)]
    for work in works:
        work.wait()
    gathered = [None, None]
    dist.all_gather_object(gathered, {"rank": rank})
    dist.monitored_barrier()


def ddp(rank):
    """Two steps: the buckets' all-reduces are DDP's own."""
    model = classifier()
    for _ in range(2):
        model(torch.randn(8, 16)).square().mean().backward()


def forked(rank):
    """A child forked after collectives ran has none of them."""
    dist.all_reduce(torch.ones(4))
    child = os.fork()
    if child == 0:
        torch.ones(100)
        os._exit(0)
    os.waitpid(child, 0)
    dist.all_reduce(torch.ones(4))


def many(rank):
    """More than the ring holds."""
    x = torch.ones(2)
    for _ in range(1500):
        dist.all_reduce(x)


if __name__ == "__main__":
    main(once, messages, groups, other_ways, ddp, forked, many)
