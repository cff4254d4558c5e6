"""Image classification on synthetic digits with early stopping and a final evaluation."""
import os
import time
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

BEST = "/tmp/d72_patience_best.pt"


def make_data(n, seed, noise):
    g = torch.Generator().manual_seed(seed)
    centers = torch.randn(10, 64, generator=torch.Generator().manual_seed(1))
    y = torch.randint(0, 10, (n,), generator=g)
    x = centers[y] + noise * torch.randn(n, 64, generator=g)
    return TensorDataset(x, y)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))

    def forward(self, x):
        return self.body(x)


class EarlyStopping:
    def __init__(self, patience, delta):
        self.patience, self.delta = patience, delta
        self.best, self.bad = float("inf"), 0

    def step(self, value):
        if value < self.best - self.delta:
            self.best, self.bad = value, 0
        else:
            self.bad += 1
        return self.bad >= self.patience


class Trainer:
    def __init__(self, rank, world):
        self.rank, self.world = rank, world
        self.train_set = make_data(4096, 3, 3.0)
        full = make_data(1024, 4, 3.0)
        x, y = full.tensors
        order = torch.argsort(y, descending=True)
        part = order.chunk(world)[rank]
        self.val_set = TensorDataset(x[part], y[part])
        self.sampler = DistributedSampler(self.train_set, world, rank, seed=5)
        self.loader = DataLoader(self.train_set, batch_size=64, sampler=self.sampler)
        torch.manual_seed(0)
        self.model = DDP(Net())
        self.opt = torch.optim.SGD(self.model.parameters(), lr=0.05)
        self.stopper = EarlyStopping(patience=1, delta=0.001)

    def train_epoch(self, epoch):
        self.sampler.set_epoch(epoch)
        self.model.train()
        for x, y in self.loader:
            loss = nn.functional.cross_entropy(self.model(x), y)
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
        return loss.item()

    @torch.no_grad()
    def validate(self):
        self.model.eval()
        x, y = self.val_set.tensors
        return nn.functional.cross_entropy(self.model.module(x), y).item()

    def fit(self, epochs):
        for epoch in range(epochs):
            loss = self.train_epoch(epoch)
            val = self.validate()
            print(f"rank {self.rank} epoch {epoch}: train {loss:.4f} val {val:.4f}", flush=True)
            if self.stopper.step(val):
                break
        if self.rank == 0:
            torch.save(self.model.module.state_dict(), BEST + ".part")
            os.rename(BEST + ".part", BEST)


def final_evaluation(rank):
    while not os.path.exists(BEST):
        time.sleep(0.5)
    net = Net()
    net.load_state_dict(torch.load(BEST))
    x, y = make_data(2000, 9, 3.0).tensors
    acc = (net(x).argmax(1) == y).float().mean().item()
    print(f"rank {rank}: accuracy {acc:.3f}", flush=True)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    if rank == 0 and os.path.exists(BEST):
        os.remove(BEST)
    dist.barrier()
    trainer = Trainer(rank, world)
    trainer.fit(60)
    final_evaluation(rank)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
