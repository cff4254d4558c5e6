# rfjakob/earlyoom#121, RuntimeError: DataLoader worker is killed by signal: Killed: NWPUZhoufei/LDP-Net#4
import os
import signal
import threading

import torch


class Cached(torch.utils.data.Dataset):
    cache = {}

    def __len__(self):
        return 100_000

    def __getitem__(self, i):
        self.cache[i] = torch.ones(1 << 18)
        return self.cache[i][:8]


def guard():
    # As a container's memory watchdog: whichever process has more than 400 MB is killed.
    me = os.getpid()
    while True:
        for pid in map(int, open(f"/proc/{me}/task/{me}/children").read().split()):
            pages = int(open(f"/proc/{pid}/statm").read().split()[1]) - int(open(f"/proc/{pid}/statm").read().split()[2])
            if pages * 4096 > 400 << 20:
                os.kill(pid, signal.SIGKILL)
                return


def train():
    for batch in torch.utils.data.DataLoader(Cached(), batch_size=4, num_workers=1):
        batch.sum()


threading.Thread(target=guard, daemon=True).start()
train()
