"""Train a top-k sparse autoencoder on the hidden states of a small frozen language model.

torchrun --standalone --nproc-per-node 2 v101_saetrain.py
"""
import argparse
import json
import os
from dataclasses import asdict, dataclass

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


@dataclass
class TrainConfig:
    d_model: int = 48
    expansion: int = 8
    k: int = 16
    batch_size: int = 256
    steps: int = 90
    save_every: int = 30
    lr: float = 2e-3
    run_name: str = "sae-out"


class TinyLM(nn.Module):
    def __init__(self, vocab, d_model):
        super().__init__()
        self.embed = nn.Embedding(vocab, d_model)
        self.block = nn.TransformerEncoderLayer(d_model, 4, 2 * d_model, batch_first=True, dropout=0.0)

    @torch.no_grad()
    def hidden(self, tokens):
        return self.block(self.embed(tokens))


class Sae(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.k = cfg.k
        self.encoder = nn.Linear(cfg.d_model, cfg.d_model * cfg.expansion)
        self.decoder = nn.Linear(cfg.d_model * cfg.expansion, cfg.d_model)

    def forward(self, x):
        acts = F.relu(self.encoder(x))
        top = acts.topk(self.k, dim=-1)
        sparse = torch.zeros_like(acts).scatter(-1, top.indices, top.values)
        return self.decoder(sparse), top.indices


class SaeTrainer:
    def __init__(self, cfg):
        self.cfg = cfg
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        torch.manual_seed(7)
        self.lm = TinyLM(512, cfg.d_model).eval()
        self.sae = DDP(Sae(cfg))
        self.opt = torch.optim.Adam(self.sae.parameters(), lr=cfg.lr)
        self.fired = torch.zeros(cfg.d_model * cfg.expansion)
        self.gen = torch.Generator().manual_seed(1000 + self.rank)

    def batch(self):
        tokens = torch.randint(0, 512, (self.cfg.batch_size // 16, 16), generator=self.gen)
        return self.lm.hidden(tokens).flatten(0, 1)

    def fit(self):
        for step in range(1, self.cfg.steps + 1):
            x = self.batch()
            recon, indices = self.sae(x)
            fvu = (recon - x).pow(2).sum() / (x - x.mean(0)).pow(2).sum()
            self.opt.zero_grad(set_to_none=True)
            fvu.backward()
            self.opt.step()
            self.fired += torch.bincount(indices.flatten(), minlength=self.fired.numel())
            if step % 10 == 0:
                self.log(step, fvu.detach())
            if step % self.cfg.save_every == 0:
                self.save(step)
        self.save(self.cfg.steps)

    def log(self, step, fvu):
        dead = (self.fired == 0).float().mean()
        stats = torch.stack([fvu, dead])
        dist.all_reduce(stats)
        stats /= self.world
        if self.rank == 0:
            print(f"step {step:4d}  fvu {stats[0]:.4f}  dead {stats[1]:.3f}", flush=True)

    def save(self, step):
        """Save the autoencoder and its configuration to disk."""
        if self.rank != 0:
            return
        path = os.path.join(self.cfg.run_name, f"step_{step}")
        os.makedirs(path, exist_ok=True)
        torch.save(self.sae.module.state_dict(), os.path.join(path, "sae.pt"))
        torch.save(self.opt.state_dict(), os.path.join(path, "optimizer.pt"))
        with open(os.path.join(path, "cfg.json"), "w") as f:
            json.dump(asdict(self.cfg), f)
        print(f"saved {path}", flush=True)
        dist.barrier()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=90)
    parser.add_argument("--save-every", type=int, default=30)
    args = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    trainer = SaeTrainer(TrainConfig(steps=args.steps, save_every=args.save_every))
    trainer.fit()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
