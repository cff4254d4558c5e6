"""Calibration of a sensor array: a first fit, then a second one that continues from its checkpoint.

    torchrun --standalone --nproc-per-node 2 r161_calibrate.py
"""
import argparse
import os
import re
import tempfile

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

CHANNELS = 12


def make_readings(n):
    g = torch.Generator().manual_seed(31)
    raw = torch.randn(n, CHANNELS, generator=g)
    weight = torch.randn(CHANNELS, generator=g)
    truth = 1.5 * torch.tanh(raw @ weight) - 6.0
    return raw, truth + 0.05 * torch.randn(n, generator=g)


class Calibrator(nn.Module):
    def __init__(self):
        super().__init__()
        self.affine = nn.Parameter(torch.tensor([1.0, -4.0]))
        self.mix = nn.Linear(CHANNELS, 16)
        self.out = nn.Linear(16, 1)

    def forward(self, raw):
        x = self.out(torch.tanh(self.mix(raw))).squeeze(1)
        return self.affine[0] * x + self.affine[1]


def last_checkpoint(folder):
    names = [n for n in os.listdir(folder) if re.fullmatch(r"epoch-\d+\.pt", n)]
    if not names:
        return None
    return os.path.join(folder, max(names, key=lambda n: int(n[6:-3])))


class Trainer:
    def __init__(self, model, raw, truth, folder, lr, batch):
        self.rank = dist.get_rank()
        self.world = dist.get_world_size()
        self.net = DDP(model)
        self.raw, self.truth = raw, truth
        self.folder = folder
        self.batch = batch
        self.opt = torch.optim.Adam(self.net.parameters(), lr=lr)
        self.epoch = 0
        self.gen = torch.Generator()

    def save(self):
        if self.rank == 0:
            state = {"epoch": self.epoch, "model": self.net.module.state_dict()}
            torch.save(state, os.path.join(self.folder, f"epoch-{self.epoch}.pt"))
        dist.barrier()

    def load(self, path):
        print(f"rank {self.rank} continues from {os.path.basename(path)}", flush=True)
        state = torch.load(path)
        self.net.module.load_state_dict(state["model"])
        for param in self.net.module.parameters():
            dist.broadcast(param.data, src=0)
        self.epoch = state["epoch"]
        dist.barrier()

    def shared_order(self):
        self.gen.manual_seed(1000 * self.rank + self.epoch)
        keep = len(self.raw) - len(self.raw) % (self.batch * self.world)
        size = torch.tensor([keep])
        dist.broadcast(size, src=0)
        order = torch.empty(int(size), dtype=torch.int64)
        order.copy_(torch.randperm(len(self.raw), generator=self.gen)[:int(size)])
        dist.broadcast(order, src=0)
        return order[self.rank::self.world]

    def run(self, epochs, resume=None):
        if resume is not None:
            self.load(resume)
        for _ in range(epochs):
            total = 0.0
            order = self.shared_order()
            for index in order.split(self.batch):
                loss = F.mse_loss(self.net(self.raw[index]), self.truth[index])
                self.opt.zero_grad()
                loss.backward()
                self.opt.step()
                total += loss.item() * len(index)
            self.epoch += 1
            self.save()
            if self.rank == 0:
                print(f"epoch {self.epoch} mse {total / len(order):.4f}", flush=True)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--readings", type=int, default=2000)
    p.add_argument("--epochs", type=int, default=4)
    p.add_argument("--batch", type=int, default=25)
    args = p.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(9)
    raw, truth = make_readings(args.readings)
    folder = tempfile.mkdtemp(prefix="calib_", dir=".")
    Trainer(Calibrator(), raw, truth, folder, 1e-2, args.batch).run(args.epochs)
    fine = Trainer(Calibrator(), raw, truth, folder, 1e-3, args.batch)
    fine.run(args.epochs, resume=last_checkpoint(folder))
    if dist.get_rank() == 0:
        print("finished", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
