"""DDP training of a keyword spotter with early stopping.

    torchrun --standalone --nproc-per-node 2 w124_earlystop.py
"""
import argparse
import os

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class EpochCounterWithStopper:
    """Counts epochs; stops once the metric has not improved for `patience` epochs."""

    def __init__(self, limit, patience):
        self.limit = limit
        self.patience = patience
        self.current = 0
        self.best = float("inf")
        self.best_epoch = 0
        self.stop = False

    def __iter__(self):
        return self

    def __next__(self):
        if self.stop or self.current >= self.limit:
            raise StopIteration
        self.current += 1
        return self.current

    def update_metric(self, value):
        if value < self.best - 1e-3:
            self.best, self.best_epoch = value, self.current
        self.stop = self.current - self.best_epoch >= self.patience


def make_split(n, seed):
    gen = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 40, generator=gen)
    direction = torch.linspace(-1, 1, 40)
    noise = 1.5 * torch.randn(n, generator=gen)
    y = ((x @ direction + noise) > 0).long()
    return TensorDataset(x, y)


class Brain:
    def __init__(self, rank, world, args):
        self.rank, self.world, self.args = rank, world, args
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(40, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 2))
        self.model = DDP(net)
        self.opt = torch.optim.Adam(self.model.parameters(), lr=args.lr)
        self.counter = EpochCounterWithStopper(args.epochs, args.patience)

    def fit_train(self, loader, epoch):
        self.model.train()
        loader.sampler.set_epoch(epoch)
        total = 0.0
        for x, y in loader:
            self.opt.zero_grad()
            loss = F.cross_entropy(self.model(x), y)
            loss.backward()
            self.opt.step()
            total += loss.item()
        return total / len(loader)

    @torch.no_grad()
    def evaluate(self, loader):
        self.model.eval()
        stats = torch.zeros(2)
        for x, y in loader:
            stats += torch.tensor([F.cross_entropy(self.model.module(x), y).item() * len(y), float(len(y))])
        dist.all_reduce(stats)
        return (stats[0] / stats[1]).item()

    def on_valid_end(self, epoch, train_loss, valid_loss):
        if self.rank == 0:
            print("epoch %2d  train %.4f  valid %.4f" % (epoch, train_loss, valid_loss), flush=True)
            self.counter.update_metric(valid_loss)
            torch.save(self.model.module.state_dict(), self.args.ckpt)

    def fit(self, train, valid):
        for epoch in self.counter:
            train_loss = self.fit_train(train, epoch)
            self.on_valid_end(epoch, train_loss, self.evaluate(valid))

    def load_best(self):
        dist.barrier()
        self.model.module.load_state_dict(torch.load(self.args.ckpt))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=40)
    ap.add_argument("--patience", type=int, default=3)
    ap.add_argument("--lr", type=float, default=3e-3)
    ap.add_argument("--batch-size", type=int, default=32)
    ap.add_argument("--ckpt", default="spotter.pt")
    args = ap.parse_args()

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()

    def loader(n, seed, shuffle):
        data = make_split(n, seed)
        return DataLoader(data, args.batch_size, sampler=DistributedSampler(data, world, rank, shuffle=shuffle))

    brain = Brain(rank, world, args)
    brain.fit(loader(1024, 1, True), loader(256, 2, False))
    brain.load_best()
    test_loss = brain.evaluate(loader(256, 3, False))
    if rank == 0:
        print("stopped after epoch %d, test loss %.4f" % (brain.counter.current, test_loss), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
