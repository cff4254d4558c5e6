"""Samples are made by a thread that holds the store's lock while it puts them; the reader needs the lock, too."""

import datetime
import queue
import threading

import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=8))
rank = dist.get_rank()


class Replay:
    def __init__(self, size):
        self.lock, self.ready = threading.Lock(), queue.Queue(size)

    def fill(self, count):
        with self.lock:
            for index in range(count):
                self.ready.put(torch.full((2,), float(index)))

    def sample(self):
        with self.lock:
            return self.ready.get()


def train(count):
    replay = Replay(4)
    threading.Thread(target=replay.fill, args=(count,), name="actor", daemon=True).start()
    for _ in range(3):
        value = replay.sample()
        dist.all_reduce(value)


train(8 if rank == 1 else 4)
dist.destroy_process_group()
