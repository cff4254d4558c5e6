# princeton-vl/CornerNet#4: the thread that takes from a queue died, and training stands still
import queue
import threading

import torch

batches = queue.Queue(maxsize=2)
scales = {0: 1.0, 1: 0.5}


def write_previews():
    step = 0
    while True:
        images = batches.get()
        images.mul_(scales[step])
        step += 1


def train():
    for _ in range(10):
        batches.put(torch.rand(2, 8))


threading.Thread(target=write_previews, daemon=True).start()
train()
