# pytorch/pytorch#1868 (segfault in a multithreaded program)
import threading
import time

import torch

buffer = torch.ones(50_000_000)


def refill():
    for size in (30_000_000, 60_000_000, 90_000_000) * 50:
        time.sleep(0.01)
        buffer.untyped_storage().resize_(0)
        buffer.untyped_storage().resize_(4 * size)


def average():
    return buffer.cumsum(0)[-1]


threading.Thread(target=refill, daemon=True).start()
for step in range(200):
    print(average())
