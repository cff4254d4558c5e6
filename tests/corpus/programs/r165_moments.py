"""Sharded training of a token scorer, with the second moments of Adam written at the end.

    torchrun --standalone --nproc-per-node 2 r165_moments.py
"""
import argparse
import os

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor


class Layer(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.up = nn.Linear(dim, dim * 2)
        self.down = nn.Linear(dim * 2, dim)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Scorer(nn.Module):
    def __init__(self, vocab=64, dim=32, depth=3):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.layers = nn.ModuleList([Layer(dim) for _ in range(depth)])
        self.head = nn.Linear(dim, vocab)

    def forward(self, tokens):
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def build(mesh):
    torch.manual_seed(1)
    model = Scorer()
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


class Batches:
    def __init__(self, rank, batch=16, length=12, vocab=64):
        self.gen = torch.Generator().manual_seed(70 + rank)
        self.shape = (batch, 1)
        self.length = length
        self.vocab = vocab

    def next(self):
        start = torch.randint(0, self.vocab, self.shape, generator=self.gen)
        tokens = (start * 3 + 5 * torch.arange(self.length + 1)) % self.vocab
        return tokens[:, :-1], tokens[:, 1:]


def train(model, opt, batches, steps, rank):
    for step in range(steps):
        inputs, target = batches.next()
        loss = F.cross_entropy(model(inputs).flatten(0, 1), target.flatten())
        opt.zero_grad()
        loss.backward()
        opt.step()
        if rank == 0 and step % 10 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)


def collect_second_moments(model, opt):
    moments = {}
    for name, param in model.named_parameters():
        value = opt.state[param]["exp_avg_sq"]
        if isinstance(value, DTensor):
            value = value.full_tensor()
        moments[name] = value.cpu()
    return moments


def save_second_moments(model, opt, path, rank):
    moments = collect_second_moments(model, opt)
    if rank == 0:
        torch.save(moments, path)
        size = os.path.getsize(path)
        print(f"wrote {len(moments)} moments, {size} bytes", flush=True)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=40)
    p.add_argument("--lr", type=float, default=3e-3)
    p.add_argument("--out", default="run_moments")
    args = p.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    model = build(mesh)
    opt = torch.optim.Adam(model.parameters(), lr=args.lr)
    train(model, opt, Batches(rank), args.steps, rank)
    if rank == 0:
        os.makedirs(args.out, exist_ok=True)
        save_second_moments(model, opt, os.path.join(args.out, "optimizer.pt"), rank)
    dist.barrier()
    if rank == 0:
        print("finished", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
