"""Windowed transformer for tile classification, progressive tile size, data parallel."""
import argparse
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.checkpoint import checkpoint

CLASSES = 6


class WindowBlock(nn.Module):
    def __init__(self, dim, heads=4):
        super().__init__()
        self.norm1 = nn.LayerNorm(dim)
        self.attention = nn.MultiheadAttention(dim, heads, batch_first=True)
        self.norm2 = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x):
        y = self.norm1(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.mlp(self.norm2(x))


class Stage(nn.Module):
    def __init__(self, dim, depth):
        super().__init__()
        self.blocks = nn.ModuleList(WindowBlock(dim) for _ in range(depth))
        self.use_checkpoint = False

    def forward(self, x):
        for block in self.blocks:
            if self.use_checkpoint and self.training:
                x = checkpoint(block, x, use_reentrant=True)
            else:
                x = block(x)
        return x


class WindowNet(nn.Module):
    def __init__(self, dim=32, depths=(2, 2), patch=4):
        super().__init__()
        self.patch_embed = nn.Conv2d(3, dim, patch, patch)
        self.stages = nn.ModuleList(Stage(dim, d) for d in depths)
        self.aux_head = nn.Linear(dim, CLASSES)
        self.head = nn.Linear(dim, CLASSES)

    def set_checkpointing(self, value):
        for stage in self.stages:
            stage.use_checkpoint = value

    def forward(self, tiles, with_aux=False):
        x = self.patch_embed(tiles).flatten(2).transpose(1, 2)
        aux = None
        for i, stage in enumerate(self.stages):
            x = stage(x)
            if i == 0 and with_aux:
                aux = self.aux_head(x.mean(1))
        return self.head(x.mean(1)), aux


def tile_batch(batch, size, gen):
    label = torch.randint(0, CLASSES, (batch,), generator=gen)
    tiles = 0.3 * torch.randn(batch, 3, size, size, generator=gen)
    tiles[:, 0] += (label.view(-1, 1, 1) / CLASSES) - 0.5
    tiles[:, 1] -= (label.view(-1, 1, 1) % 3) * 0.4
    return tiles, label


class ProgressiveTrainer:
    """Small tiles first, then large tiles where activations are recomputed to save memory."""

    def __init__(self, args):
        self.args = args
        self.rank = dist.get_rank()
        torch.manual_seed(21)
        self.model = DDP(WindowNet(), find_unused_parameters=True)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=args.lr)
        self.criterion = nn.CrossEntropyLoss()
        self.gen = torch.Generator().manual_seed(500 + self.rank)

    def phase(self, name, size, steps, save_memory):
        self.model.train()
        self.model.module.set_checkpointing(save_memory)
        for step in range(steps):
            tiles, label = tile_batch(self.args.batch, size, self.gen)
            with_aux = step % 2 == 0
            self.optimizer.zero_grad()
            logits, aux = self.model(tiles, with_aux)
            loss = self.criterion(logits, label)
            if aux is not None:
                loss = loss + 0.4 * self.criterion(aux, label)
            loss.backward()
            self.optimizer.step()
            if self.rank == 0 and step % 10 == 0:
                print(f"{name} step {step} loss {loss.item():.4f}", flush=True)

    def run(self):
        self.phase("tiles16", 16, self.args.steps, save_memory=False)
        self.phase("tiles32", 32, self.args.steps, save_memory=True)
        if self.rank == 0:
            torch.save(self.model.module.state_dict(), os.path.join(self.args.out, "windownet.pt"))
            print("finished", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--out", default=".")
    args = parser.parse_args()
    dist.init_process_group("gloo")
    ProgressiveTrainer(args).run()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
