"""Programs of the generators in several processes at a time: each takes its share, and hands over what it judged."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

P = TypeVar("P")
J = TypeVar("J")
_LONGEST_S = 600  # for one program


def in_workers(
    work: Callable[[Sequence[P]], Iterator[J]], programs: Sequence[P], jobs: int, tell: Callable[[J], None]
) -> list[J]:
    """What `work` yields for all programs, in the order of their ends; `tell` is called for each as it arrives."""
    context = multiprocessing.get_context("fork")
    queue: multiprocessing.Queue[Any] = context.Queue()
    workers = [context.Process(target=_put, args=(queue, work, programs[n::jobs])) for n in range(jobs)]
    for worker in workers:
        worker.start()
    judged: list[J] = []
    running = jobs
    while running:
        item = queue.get(timeout=_LONGEST_S)
        if item is None:
            running -= 1
            continue
        judged.append(item)
        tell(item)
    for worker in workers:
        worker.join()
    return judged


def _put(queue: multiprocessing.Queue[Any], work: Callable[[Sequence[P]], Iterator[J]], programs: Sequence[P]) -> None:
    for judged in work(programs):
        queue.put(judged)
    queue.put(None)
