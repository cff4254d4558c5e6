"""Small vision transformer on texture patches.

    torchrun --standalone --nproc-per-node 2 l146_vit.py
"""
import argparse
import builtins
import math
import sys
from collections import defaultdict

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler


def setup_for_distributed(is_master):
    """Only the master writes to the console."""
    builtin_print = builtins.print

    def print(*args, **kwargs):
        force = kwargs.pop("force", False)
        if is_master or force:
            builtin_print(*args, flush=True, **kwargs)

    builtins.print = print


def init_distributed_mode():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    dist.barrier()
    setup_for_distributed(dist.get_rank() == 0)


class TexturePatches(Dataset):
    """32 x 32 patches of satellite tiles; water and cloud tiles are flat."""

    def __init__(self, n=1024, flat_every=732, seed=5):
        g = torch.Generator().manual_seed(seed)
        self.labels = torch.randint(0, 4, (n,), generator=g)
        freq = (self.labels + 1).view(n, 1, 1) * 0.4
        grid = torch.arange(32.0)
        wave = torch.sin(grid.view(1, 32, 1) * freq) * torch.cos(grid.view(1, 1, 32) * freq)
        self.tiles = wave + 0.3 * torch.randn(n, 32, 32, generator=g)
        self.tiles[flat_every - 1::flat_every] = 0.25

    def __len__(self):
        return len(self.tiles)

    def __getitem__(self, i):
        tile = self.tiles[i]
        tile = (tile - tile.mean()) / tile.std()
        return tile.unsqueeze(0), self.labels[i]


class TinyViT(nn.Module):
    def __init__(self, dim=48, depth=2, classes=4):
        super().__init__()
        self.patch = nn.Conv2d(1, dim, 8, stride=8)
        self.pos = nn.Parameter(torch.zeros(1, 16, dim))
        layer = nn.TransformerEncoderLayer(dim, 4, dim * 2, dropout=0.0, batch_first=True)
        self.blocks = nn.TransformerEncoder(layer, depth)
        self.head = nn.Linear(dim, classes)

    def forward(self, x):
        tokens = self.patch(x).flatten(2).transpose(1, 2) + self.pos
        return self.head(self.blocks(tokens).mean(1))


class MetricLogger:
    def __init__(self):
        self.values = defaultdict(list)

    def update(self, **kwargs):
        for k, v in kwargs.items():
            self.values[k].append(v)

    def __str__(self):
        return "  ".join(f"{k}: {sum(v) / len(v):.4f}" for k, v in self.values.items())


def train_one_epoch(model, criterion, loader, optimizer, epoch, print_freq):
    model.train()
    logger = MetricLogger()
    for it, (samples, targets) in enumerate(loader):
        outputs = model(samples)
        loss = criterion(outputs, targets)
        loss_value = loss.item()
        if not math.isfinite(loss_value):
            print(f"Loss is {loss_value}, stopping training")
            sys.exit(1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        acc = (outputs.argmax(1) == targets).float().mean().item()
        logger.update(loss=loss_value, acc1=acc)
        if it % print_freq == 0:
            print(f"Epoch: [{epoch}]  [{it}/{len(loader)}]  {logger}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--print-freq", type=int, default=4)
    args = parser.parse_args()
    init_distributed_mode()
    torch.manual_seed(0)
    dataset = TexturePatches()
    sampler = DistributedSampler(dataset, shuffle=False)
    loader = DataLoader(dataset, batch_size=args.batch_size, sampler=sampler)
    model = DistributedDataParallel(TinyViT())
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    for epoch in range(args.epochs):
        train_one_epoch(model, nn.CrossEntropyLoss(), loader, optimizer, epoch, args.print_freq)
    print("Training finished")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
