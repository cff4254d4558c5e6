"""One rank calls a different collective: op, shape, dtype, root, reduce op, order."""

import contextlib

import torch
import torch.distributed as dist
from job import agree, classifier, main

GUILTY = 1


def op(rank):
    """One rank broadcasts what the others reduce."""
    agree()
    metrics = torch.ones(16)
    if rank == GUILTY:
        dist.broadcast(metrics, src=GUILTY)
    else:
        dist.all_reduce(metrics)


def shape(rank):
    """The last batch of one rank is larger. gloo aborts the rank that receives from it."""
    agree()
    rows = 96 if rank == GUILTY else 32
    dist.all_reduce(torch.ones(rows, 512))
    dist.barrier()


def dtype(rank):
    """One rank counts in int32. Nothing dies: bits of floats are added as integers."""
    agree()
    counts = torch.ones(64, dtype=torch.int32 if rank == GUILTY else torch.float32)
    dist.all_reduce(counts)
    agree()


def root(rank):
    """One rank expects the weights from rank 1, the others from rank 0."""
    agree()
    dist.broadcast(torch.full((32,), float(rank)), src=1 if rank == GUILTY else 0)
    agree()


def reduce_op(rank):
    """One rank asks for the maximum, the others for the sum. Nothing dies."""
    agree()
    dist.all_reduce(torch.full((32,), float(rank)), op=dist.ReduceOp.MAX if rank == GUILTY else dist.ReduceOp.SUM)
    agree()


def short_broadcast(rank):
    """The root sends less than the others expect. Nothing dies: the rest of their tensors is unchanged."""
    agree()
    dist.broadcast(torch.ones(16 if rank == 0 else 32), src=0)
    agree()


def order(rank):
    """One rank reduces the loss before the gradients."""
    agree()
    gradients, loss = torch.ones(4096), torch.ones(4)
    for tensor in (loss, gradients) if rank == GUILTY else (gradients, loss):
        dist.all_reduce(tensor)
    dist.barrier()


def accumulates(rank):
    """Gradients of two micro-batches each, and of one more in the end: ranks with other numbers of batches mix them."""
    model = classifier()
    for batch in range(7 if rank == GUILTY else 5):
        with contextlib.nullcontext() if batch % 2 else model.no_sync():
            model(torch.randn(8, 16)).sum().backward()
    model(torch.randn(8, 16)).sum().backward()
    dist.all_reduce(torch.ones(5))


if __name__ == "__main__":
    main(op, shape, dtype, root, reduce_op, short_broadcast, order, accumulates)
