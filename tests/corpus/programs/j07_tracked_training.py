import json
import multiprocessing as mp
import os
import signal
import sys
import tempfile
from queue import Empty

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset


def sync_loop(queue, path):
    """Runs in the sync process: writes the metrics of the run to disk."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = os.getppid()
    with open(path, "a") as f:
        while os.getppid() == parent:
            try:
                item = queue.get(timeout=1)
            except Empty:
                continue
            if item is None:
                return
            f.write(json.dumps(item) + "\n")
            f.flush()


class Run:
    """Small experiment tracker. Metrics go through a queue to a sync process."""

    def __init__(self, path):
        self.queue = mp.Queue()
        self.sync = mp.Process(target=sync_loop, args=(self.queue, path), daemon=True)
        self.sync.start()
        self.closing = False
        signal.signal(signal.SIGCHLD, self._on_sync_exit)

    def _on_sync_exit(self, signum, frame):
        if not self.closing:
            self.queue.cancel_join_thread()
            os.write(2, b"tracker: lost the sync process, closing the run\n")
            os._exit(70)

    def log(self, **metrics):
        self.queue.put(metrics)

    def stop(self):
        self.closing = True
        self.queue.put(None)
        self.sync.join()


class Spectra(Dataset):
    def __init__(self, n):
        g = torch.Generator().manual_seed(n)
        self.x = torch.rand(n, 64, generator=g)
        self.y = (self.x[:, :8].sum(dim=1, keepdim=True) > 4).float()

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i], self.y[i]


def train(run, epochs=3):
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.Adam(model.parameters())
    loader = DataLoader(Spectra(512), batch_size=32, shuffle=True, num_workers=2)
    for epoch in range(epochs):
        for step, (x, y) in enumerate(loader):
            loss = nn.functional.binary_cross_entropy_with_logits(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            run.log(epoch=epoch, step=step, loss=loss.item())
        print(f"epoch {epoch} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    run = Run(os.path.join(tempfile.gettempdir(), f"run-{os.getpid()}.jsonl"))
    train(run)
    run.stop()
    sys.exit(0)
