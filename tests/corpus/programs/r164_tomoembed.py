"""Embeds the windows of a tomogram with two processes and writes one table.

    python r164_tomoembed.py --mem-mb 640
"""
import argparse
import os
import signal
import socket
import threading
import time

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F

WINDOW = 64
PAGE = os.sysconf("SC_PAGE_SIZE")


class WindowEncoder(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc1 = nn.Linear(WINDOW, 96)
        self.fc2 = nn.Linear(96, dim)

    def forward(self, x):
        return F.normalize(self.fc2(F.relu(self.fc1(x))), dim=1)


class JobLimit(threading.Thread):
    """Holds each process of the job to its memory, as the queue of the cluster does."""

    def __init__(self, limit_mb):
        super().__init__(daemon=True)
        self.limit = limit_mb * 2 ** 20

    def run(self):
        while True:
            for child in mp.active_children():
                try:
                    with open(f"/proc/{child.pid}/statm") as f:
                        resident = int(f.read().split()[1]) * PAGE
                except (OSError, IndexError):
                    continue
                if resident > self.limit:
                    os.kill(child.pid, signal.SIGKILL)
            time.sleep(0.02)


def embed(rank, world, args):
    torch.manual_seed(0)
    model = WindowEncoder(args.dim).eval()
    gen = torch.Generator().manual_seed(40 + rank)
    count = args.windows // world
    parts = []
    with torch.no_grad():
        for start in range(0, count, args.batch):
            n = min(args.batch, count - start)
            parts.append(model(torch.randn(n, WINDOW, generator=gen)))
            if rank == 0 and (start // args.batch) % 20 == 0:
                print(f"embedded {start + n} of {count} windows", flush=True)
    return torch.cat(parts)


def to_table(blocks):
    rows = np.concatenate([b.numpy() for b in blocks])
    table = rows.astype(np.float64)
    position = np.arange(len(table), dtype=np.float64)[:, None]
    table = np.concatenate([position, table], axis=1)
    table[:, 1:] -= table[:, 1:].mean(axis=0)
    table[:, 1:] /= table[:, 1:].std(axis=0)
    return table


def worker(rank, world, port, args):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}",
                            rank=rank, world_size=world)
    mine = embed(rank, world, args)
    blocks = [torch.empty_like(mine) for _ in range(world)] if rank == 0 else None
    dist.gather(mine, blocks, dst=0)
    if rank == 0:
        print("writing the embeddings", flush=True)
        table = to_table(blocks)
        np.save(args.out, table[:: args.keep])
        print(f"{len(table)} rows, spread {table[:, 1:].std():.3f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--windows", type=int, default=240000)
    p.add_argument("--dim", type=int, default=128)
    p.add_argument("--batch", type=int, default=2000)
    p.add_argument("--keep", type=int, default=100)
    p.add_argument("--mem-mb", type=int, default=640)
    p.add_argument("--out", default="embeddings.npy")
    args = p.parse_args()
    JobLimit(args.mem_mb).start()
    world = 2
    mp.spawn(worker, args=(world, free_port(), args), nprocs=world, join=True)
    print("finished", flush=True)


if __name__ == "__main__":
    main()
