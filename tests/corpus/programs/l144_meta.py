"""Meta-learn a learner on synthetic regression tasks with several workers.

    python l144_meta.py --nprocs 2
"""
import argparse
import os
import socket
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def find_free_port():
    """Ask the OS for a port that is not used on this machine."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as s:
        s.bind(("127.0.0.1", 0))
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        return s.getsockname()[1]


def setup_process(rank, world_size, backend="gloo"):
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    os.environ["MASTER_PORT"] = str(find_free_port())
    dist.init_process_group(backend, rank=rank, world_size=world_size)
    print(f"worker {rank}/{world_size} is set up", flush=True)


def cleanup():
    dist.destroy_process_group()


class SineTasks(torch.utils.data.Dataset):
    def __init__(self, n_tasks, shots=10, seed=0):
        g = torch.Generator().manual_seed(seed)
        self.amp = torch.rand(n_tasks, 1, generator=g) * 4.9 + 0.1
        self.phase = torch.rand(n_tasks, 1, generator=g) * 3.14
        self.x = torch.rand(n_tasks, 2 * shots, generator=g) * 10 - 5
        self.y = self.amp * torch.sin(self.x + self.phase)
        self.shots = shots

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        k = self.shots
        return self.x[i, :k], self.y[i, :k], self.x[i, k:], self.y[i, k:]


class Learner(nn.Module):
    """Summarises the support set, then predicts the query points."""

    def __init__(self, width=64):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(2, width), nn.ReLU(), nn.Linear(width, width))
        self.dec = nn.Sequential(nn.Linear(width + 1, width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, sx, sy, qx):
        r = self.enc(torch.stack([sx, sy], -1)).mean(1, keepdim=True)
        r = r.expand(-1, qx.shape[1], -1)
        return self.dec(torch.cat([r, qx.unsqueeze(-1)], -1)).squeeze(-1)


def pretrain(model, dataset, steps):
    """A short warm-up in the parent, so that all the workers start from it."""
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    loader = torch.utils.data.DataLoader(dataset, batch_size=32, shuffle=True)
    for step, (sx, sy, qx, qy) in zip(range(steps), loader):
        loss = (model(sx, sy, qx) - qy).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 20 == 0:
            print(f"warm-up {step:3d} loss {loss.item():.3f}", flush=True)


def train(rank, world_size, args, state):
    torch.set_num_threads(1)
    setup_process(rank, world_size)
    model = Learner()
    model.load_state_dict(state)
    model = DDP(model)
    dataset = SineTasks(args.tasks)
    sampler = torch.utils.data.DistributedSampler(dataset, world_size, rank)
    loader = torch.utils.data.DataLoader(dataset, batch_size=32, sampler=sampler)
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for sx, sy, qx, qy in loader:
            loss = (model(sx, sy, qx) - qy).pow(2).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
        if rank == 0:
            print(f"epoch {epoch} loss {loss.item():.3f}", flush=True)
    cleanup()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--nprocs", type=int, default=2)
    parser.add_argument("--tasks", type=int, default=2048)
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(0)
    model = Learner()
    pretrain(model, SineTasks(args.tasks), steps=60)
    start = time.time()
    mp.spawn(train, args=(args.nprocs, args, model.state_dict()), nprocs=args.nprocs)
    print(f"done in {time.time() - start:.1f}s", flush=True)


if __name__ == "__main__":
    main()
