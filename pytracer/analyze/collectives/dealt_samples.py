"""Samples of one data set that a line of the program deals out to the ranks, and that do not divide evenly."""

from __future__ import annotations

import msgspec

from pytracer._text import count_words
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.journal import Loader


class DealtSamples(msgspec.Struct, frozen=True):
    """`samples`: of the data set, as many on each rank; `dataset`: its class."""

    samples: int
    dataset: str | None
    ranks: int

    @property
    def words(self) -> str:
        """`the 61 samples of CutSet, which 2 ranks cannot share evenly`."""
        of = f" of {self.dataset}" if self.dataset is not None else ""
        return f"the {count_words(self.samples, 'sample')}{of}, which {self.ranks} ranks cannot share evenly"


def dealt_samples(one: ProcessView, other: ProcessView, ranks: int) -> DealtSamples | None:
    """Of the only DataLoader of two ranks, which has a sampler of the program and the same data set on both."""
    mine, theirs = ([fact.data for fact in view.process.snapshot.recorded(Loader)] for view in (one, other))
    if len(mine) != 1 or mine != theirs:
        return None
    (loader,) = mine
    by_torch = loader.distributed or loader.plain or loader.iterable
    if by_torch or not loader.samples or ranks < 2 or loader.samples % ranks == 0:
        return None
    return DealtSamples(loader.samples, loader.dataset, ranks)
