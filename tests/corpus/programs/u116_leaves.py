"""Train a leaf disease classifier under the batch system's memory accounting (--mem of the job script)."""
import argparse
import os
import signal
import subprocess
import sys
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class LeafDataset(Dataset):
    def __init__(self, count, size=224, classes=5):
        self.count = count
        self.size = size
        self.classes = classes
        self.images = {}

    def __len__(self):
        return self.count

    def decode(self, i):
        rng = np.random.default_rng(i)
        raw = rng.integers(0, 256, size=(3, self.size, self.size), dtype=np.uint8)
        raw[i % 3, ::7] = 40 * (i % self.classes)
        return raw

    def __getitem__(self, i):
        if i not in self.images:
            raw = self.decode(i)
            self.images[i] = (raw.astype(np.float32) / 255.0 - 0.45) / 0.22
        image = self.images[i]
        if torch.rand(()) < 0.5:
            image = image[:, :, ::-1].copy()
        return torch.from_numpy(image), i % self.classes


class LeafNet(nn.Module):
    def __init__(self, classes=5):
        super().__init__()
        self.features = nn.Sequential(
            nn.AvgPool2d(8), nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(),
        )
        self.head = nn.Linear(8 * 16, classes)

    def forward(self, x):
        return self.head(self.features(x))


def children(pid):
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as f:
            own = [int(p) for p in f.read().split()]
    except OSError:
        return []
    return own + [p for child in own for p in children(child)]


def resident_mb(pid):
    with open(f"/proc/{pid}/statm") as f:
        return int(f.read().split()[1]) * 4096 / 2**20


def account(pid, mem_mb, log):
    """Stand-in for the node's step daemon: samples the resident memory of the whole job."""
    with open(log, "w") as out:
        while os.path.exists(f"/proc/{pid}"):
            tasks = {}
            for task in [pid] + children(pid):
                try:
                    if task != os.getpid():
                        tasks[task] = resident_mb(task)
                except OSError:
                    pass
            used = sum(tasks.values())
            if used > mem_mb:
                top = max((p for p in tasks if p != pid), key=tasks.get)
                print(f"job {pid}: {used:.0f} MB of {mem_mb} MB in {tasks}, task {top} signal 9", file=out, flush=True)
                os.kill(top, signal.SIGKILL)
                return
            time.sleep(0.1)


def submit(args):
    cmd = [sys.executable, os.path.abspath(__file__), "--account", str(os.getpid()), "--mem", str(args.mem)]
    return subprocess.Popen(cmd)


def train(args):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    loader = DataLoader(LeafDataset(args.images), batch_size=16, shuffle=True, num_workers=args.workers,
                        persistent_workers=True)
    model, loss_fn = LeafNet(), nn.CrossEntropyLoss()
    opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for epoch in range(args.epochs):
        seen, total = 0, 0.0
        for images, labels in loader:
            loss = loss_fn(model(images), labels)
            opt.zero_grad()
            loss.backward()
            opt.step()
            seen += len(labels)
            total += loss.item() * len(labels)
            if seen % 160 == 0:
                print(f"epoch {epoch} {seen}/{args.images} loss {total / seen:.4f}", flush=True)
    print("training finished")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--images", type=int, default=2400)
    p.add_argument("--epochs", type=int, default=2)
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--mem", type=int, default=1300, help="memory of the job in MB")
    p.add_argument("--account", type=int, default=0, help=argparse.SUPPRESS)
    args = p.parse_args()
    if args.account:
        account(args.account, args.mem, "job_accounting.log")
        return
    daemon = submit(args)
    try:
        train(args)
    finally:
        daemon.terminate()


if __name__ == "__main__":
    main()
