"""The main process ends DataLoader workers that take too long, and goes on with its loader."""

import os
import signal
import threading
import time

from torch.utils.data import DataLoader, Dataset


class Videos(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, number):
        time.sleep(60 if number == 20 else 0.01)
        return number


def watch(loader, seconds):
    time.sleep(seconds)
    for worker in loader._workers:
        os.kill(worker.pid, signal.SIGKILL)


def train():
    batches = iter(DataLoader(Videos(), batch_size=4, num_workers=1))
    threading.Thread(target=watch, args=(batches, 4), daemon=True).start()
    for batch in batches:
        print(batch)


train()
