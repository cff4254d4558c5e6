"""A rank does not enter a collective: it skips it, is late, ends early, or has nothing to reduce."""

import time

import torch
import torch.distributed as dist
from job import SECONDS, agree, classifier, main, train
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel

ABSENT = 1


def evaluate_for_long():
    time.sleep(SECONDS + 4)


def skipped(rank):
    """One rank takes another branch, and computes until the others have timed out."""
    agree()
    if rank == ABSENT:
        evaluate_for_long()
    dist.all_reduce(torch.ones(8))


def skipped_monitored_barrier(rank):
    """The same before a monitored barrier, in which rank 0 names the absent rank and all the others time out."""
    agree()
    if rank == ABSENT:
        evaluate_for_long()
    dist.monitored_barrier()


def late(rank):
    """A slow rank that enters before the time-out."""
    agree()
    if rank == ABSENT:
        time.sleep(SECONDS / 3)
    dist.all_reduce(torch.ones(8))
    agree()


def returns_early(rank):
    """One rank has fewer batches than the others, and is done."""
    train(classifier(), 3 if rank == ABSENT else 6)


def returns_at_once(rank):
    """One rank takes a branch on which it never trains."""
    if rank == ABSENT:
        return
    agree()


def uneven_with_join(rank):
    """Fewer batches on one rank are legal in join()."""
    model = classifier()
    with Join([model]):
        train(model, 3 if rank == ABSENT else 6)


class TwoHeads(nn.Module):
    """Two heads: which are used, and in which order."""

    def __init__(self):
        super().__init__()
        self.body, self.first, self.second = nn.Linear(16, 64), nn.Linear(64, 4), nn.Linear(64, 4)

    def forward(self, x, names):
        hidden = self.body(x).relu()
        return sum(getattr(self, name)(hidden) for name in names)


def _train_two_heads(*names, **options):
    torch.manual_seed(0)
    model = DistributedDataParallel(TwoHeads(), **options)
    for _ in range(3):
        model(torch.randn(8, 16), names).square().mean().backward()


def unused_parameters(rank):
    """No rank uses the second head: all raise in the second forward."""
    _train_two_heads("first")


def unused_on_one_rank(rank):
    """One rank does not use the second head; the others wait for its gradients."""
    _train_two_heads(*(["first"] if rank == ABSENT else ["first", "second"]))


def unused_but_searched(rank):
    """With find_unused_parameters, which makes it legal."""
    _train_two_heads(*(["first"] if rank == ABSENT else ["first", "second"]), find_unused_parameters=True)


def ready_in_another_order(rank):
    """The same gradients become ready in another order on one rank, which DDP supports."""
    _train_two_heads(*(["second", "first"] if rank == ABSENT else ["first", "second"]), bucket_cap_mb=0.0001)


if __name__ == "__main__":
    main(
        skipped, skipped_monitored_barrier, late, returns_early, returns_at_once, uneven_with_join, unused_parameters,
        unused_on_one_rank, unused_but_searched, ready_in_another_order,
    )  # fmt: skip
