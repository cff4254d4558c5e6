"""Load forecasting with a sharded transformer.  torchrun --nproc-per-node 2 p152_shards.py"""
import argparse
import math
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def make_windows(n, length, seed, noise):
    gen = torch.Generator().manual_seed(seed)
    phase = torch.rand(n, 1, generator=gen) * 2 * math.pi
    t = torch.arange(length + 1).float() * 0.4
    series = torch.sin(t + phase) + noise * torch.randn(n, length + 1, generator=gen)
    return series[:, :-1].unsqueeze(-1), series[:, -1]


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attn = nn.MultiheadAttention(dim, heads, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x):
        h = self.norm1(x)
        x = x + self.attn(h, h, h, need_weights=False)[0]
        return x + self.mlp(self.norm2(x))


class Forecaster(nn.Module):
    def __init__(self, dim=32, heads=4, depth=2):
        super().__init__()
        self.inp = nn.Linear(1, dim)
        self.blocks = nn.ModuleList(Block(dim, heads) for _ in range(depth))
        self.out = nn.Linear(dim, 1)

    def forward(self, x):
        x = self.inp(x)
        for block in self.blocks:
            x = block(x)
        return self.out(x[:, -1]).squeeze(-1)


class Run:
    def __init__(self, args):
        self.args, self.rank, self.world = args, dist.get_rank(), dist.get_world_size()
        torch.manual_seed(args.seed)
        mesh = init_device_mesh("cpu", (self.world,))
        self.model = Forecaster()
        for block in self.model.blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(self.model, mesh=mesh)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=args.lr)
        self.train_x, self.train_y = make_windows(args.windows, 24, 100 + self.rank, 0.15)
        self.val_x, self.val_y = make_windows(args.windows // 4, 24, 900 + self.rank, 0.15 + 0.6 * self.rank)
        self.best = float("inf")

    def train_epoch(self):
        self.model.train()
        for xb, yb in zip(self.train_x.split(self.args.batch), self.train_y.split(self.args.batch)):
            loss = nn.functional.mse_loss(self.model(xb), yb)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        return loss.item()

    @torch.no_grad()
    def validate(self):
        self.model.eval()
        stats = torch.zeros(2)
        for xb, yb in zip(self.val_x.split(self.args.batch), self.val_y.split(self.args.batch)):
            stats[0] += nn.functional.mse_loss(self.model(xb), yb).item()
            stats[1] += 1
        dist.reduce(stats, dst=0, op=dist.ReduceOp.SUM)
        return (stats[0] / stats[1]).item()

    def save(self, epoch):
        options = StateDictOptions(full_state_dict=True, cpu_offload=True)
        state = get_model_state_dict(self.model, options=options)
        if self.rank == 0:
            os.makedirs(self.args.out, exist_ok=True)
            torch.save(state, os.path.join(self.args.out, "best.pt"))
            print(f"saved best model of epoch {epoch}", flush=True)

    def fit(self):
        for epoch in range(1, self.args.epochs + 1):
            train_loss = self.train_epoch()
            val_loss = self.validate()
            if self.rank == 0:
                print(f"epoch {epoch}: train {train_loss:.4f} val {val_loss:.4f}", flush=True)
            if val_loss < self.best:
                self.best = val_loss
                self.save(epoch)
        dist.barrier()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--windows", type=int, default=128)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--lr", type=float, default=2e-2)
    parser.add_argument("--seed", type=int, default=4)
    parser.add_argument("--out", default="forecast_ckpt")
    args = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    run = Run(args)
    run.fit()
    if run.rank == 0:
        print(f"best validation loss {run.best:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
