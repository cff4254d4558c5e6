"""Train sparse autoencoders on cached transformer activations.

    torchrun --standalone --nproc-per-node 2 l143_sae.py
"""
import argparse
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn


@dataclass
class SaeConfig:
    d_in: int = 64
    expansion: int = 8
    k: int = 16


class Sae(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.cfg = cfg
        width = cfg.d_in * cfg.expansion
        self.encoder = nn.Linear(cfg.d_in, width)
        self.W_dec = nn.Parameter(self.encoder.weight.data.clone())
        self.b_dec = nn.Parameter(torch.zeros(cfg.d_in))

    def forward(self, x):
        pre = torch.relu(self.encoder(x - self.b_dec))
        top, idx = pre.topk(self.cfg.k, dim=-1)
        latents = torch.zeros_like(pre).scatter(-1, idx, top)
        recon = latents @ self.W_dec + self.b_dec
        return (recon - x).pow(2).mean(), idx

    def save_to_disk(self, path):
        path.mkdir(parents=True, exist_ok=True)
        torch.save(self.state_dict(), path / "sae.pt")
        (path / "cfg.json").write_text(json.dumps(asdict(self.cfg)))


class ActivationCache:
    """Stands for the residual stream of the language model, one shard per rank."""

    def __init__(self, hooks, d_in, rank):
        self.gen = torch.Generator().manual_seed(17 + rank)
        self.hooks = hooks
        self.basis = torch.randn(32, d_in, generator=torch.Generator().manual_seed(3))

    def next(self, n):
        for hook in self.hooks:
            codes = torch.rand(n, 32, generator=self.gen).pow(4)
            yield hook, codes @ self.basis


class SaeTrainer:
    def __init__(self, args, rank, world):
        self.args, self.rank, self.world = args, rank, world
        torch.manual_seed(0)
        self.hooks = [f"layers.{i}" for i in range(args.layers)]
        self.saes = {h: Sae(SaeConfig()) for h in self.hooks}
        params = [p for s in self.saes.values() for p in s.parameters()]
        self.optimizer = torch.optim.Adam(params, lr=1e-3)
        self.cache = ActivationCache(self.hooks, SaeConfig().d_in, rank)
        self.fired = {h: torch.zeros(512) for h in self.hooks}

    def all_reduce_grads(self):
        for sae in self.saes.values():
            for p in sae.parameters():
                dist.all_reduce(p.grad)
                p.grad /= self.world

    def step(self, step):
        total = 0.0
        for hook, acts in self.cache.next(self.args.batch):
            loss, idx = self.saes[hook](acts)
            loss.backward()
            self.fired[hook][idx.flatten()] = step
            total += loss.item()
        self.all_reduce_grads()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return total / len(self.hooks)

    def fit(self):
        for step in range(1, self.args.steps + 1):
            loss = self.step(step)
            if self.rank == 0 and step % 20 == 0:
                print(f"step {step}: fvu {loss:.4f}", flush=True)
            if step % self.args.save_every == 0:
                self.save()
        if self.rank == 0:
            print("training finished", flush=True)

    def save(self):
        """Save the SAEs to disk."""
        if self.rank != 0:
            return
        print("Saving checkpoint", flush=True)
        for hook, sae in self.saes.items():
            sae.save_to_disk(Path(self.args.out) / hook)
        dist.barrier()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--save-every", type=int, default=50)
    parser.add_argument("--out", default="sae-ckpts")
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    trainer = SaeTrainer(args, dist.get_rank(), dist.get_world_size())
    trainer.fit()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
