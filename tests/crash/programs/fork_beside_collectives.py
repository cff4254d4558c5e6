"""A process forks repeatedly while one of its threads calls collectives; each child calls one.

Prints how many children ended. The group's name is long, so that a fork may happen during a look-up by it.
"""

from __future__ import annotations

import os
import signal
import threading

import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

FORKS = 40
SECONDS = 20  # of a child, which needs none

dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
dist.group.WORLD._set_group_name("a name " * 1_000_000)
tensor = torch.ones(4)
dist.all_reduce(tensor)
stop = threading.Event()


def call_collectives() -> None:
    """Runs until the parent has forked often enough."""
    while not stop.is_set():
        dist.all_reduce(tensor)


caller = threading.Thread(target=call_collectives)
caller.start()
ended = 0
for _ in range(FORKS):
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(SECONDS)
        dist.all_reduce(tensor)
        os._exit(0)
    if os.waitpid(pid, 0)[1] != 0:
        break
    ended += 1
stop.set()
caller.join()
print(ended, FORKS)
