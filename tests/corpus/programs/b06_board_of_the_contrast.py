import argparse
import os
import queue
import tempfile
import threading

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP


class EventWriter:
    def __init__(self, log_dir):
        self.path = os.path.join(log_dir, "events.txt")
        self._events = queue.Queue(maxsize=100)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        with open(self.path, "a") as file:
            while True:
                tag, value, step = self._events.get()
                file.write(f"{step} {tag} {value}\n")
                file.flush()

    def add_scalar(self, tag, value, step):
        self._events.put((tag, value, step))


def train(gpu, args):
    dist.init_process_group("gloo", init_method=args.dist_url, rank=gpu, world_size=args.world_size)
    model = DDP(nn.Linear(32, args.dim))
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
    for step in range(20):
        query, key = model(torch.randn(8, 32)), model(torch.randn(8, 32))
        loss = nn.functional.cross_entropy(query @ key.T / 0.07, torch.arange(8))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if gpu == 0:
            args.tb.add_scalar("loss/train", loss.item(), step)
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=0.03)
    parser.add_argument("--dim", type=int, default=16)
    parser.add_argument("--world-size", type=int, default=2)
    parser.add_argument("--dist-url", default="tcp://127.0.0.1:28461")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as log_dir:
        args.tb = EventWriter(log_dir)
        args.tb.add_scalar("hparams/lr", args.lr, 0)
        mp.spawn(train, nprocs=args.world_size, args=(args,))


if __name__ == "__main__":
    main()
