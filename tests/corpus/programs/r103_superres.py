"""Super-resolution of small aerial tiles, factor 2. Jobs on this node have a memory limit
and are ended when they go over it."""
import argparse
import math
import multiprocessing
import os
import signal
import time

import sys
import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


def hold_job_to_limit(pid, limit_mb):
    statm = f"/proc/{pid}/statm"
    while os.path.exists(statm):
        if int(open(statm).read().split()[1]) * 4096 > limit_mb * 2 ** 20:
            os.kill(pid, signal.SIGKILL)
            return
        time.sleep(0.02)


class AerialTiles(Dataset):
    """High-resolution tiles (roofs and roads drawn on noise); train gives crops, val whole tiles."""

    def __init__(self, count, tile, crop=None, seed=0):
        gen = torch.Generator().manual_seed(seed)
        self.tiles = 0.1 * torch.rand(count, 3, tile, tile, generator=gen)
        for image in self.tiles:
            for _ in range(12):
                y, x, h, w = (int(v) for v in torch.randint(4, tile // 2, (4,), generator=gen))
                image[:, y:y + h, x:x + w] += torch.rand(3, 1, 1, generator=gen)
        self.tiles.clamp_(0, 1)
        self.crop = crop

    def __len__(self):
        return len(self.tiles)

    def __getitem__(self, index):
        hr = self.tiles[index]
        if self.crop:
            y, x = (int(v) for v in torch.randint(0, hr.shape[-1] - self.crop, (2,)))
            hr = hr[:, y:y + self.crop, x:x + self.crop]
        lr = F.avg_pool2d(hr[None], 2)[0]
        return lr, hr


class ResidualBlock(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1)
        self.bn1 = nn.BatchNorm2d(channels)
        self.prelu = nn.PReLU()
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1)
        self.bn2 = nn.BatchNorm2d(channels)

    def forward(self, x):
        residual = self.prelu(self.bn1(self.conv1(x)))
        return x + self.bn2(self.conv2(residual))


class Generator(nn.Module):
    def __init__(self, channels=32, blocks=5):
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, channels, 5, padding=2), nn.PReLU())
        self.blocks = nn.Sequential(*(ResidualBlock(channels) for _ in range(blocks)))
        self.up = nn.Sequential(nn.Conv2d(channels, channels * 4, 3, padding=1), nn.PixelShuffle(2), nn.PReLU())
        self.last = nn.Conv2d(channels, 3, 5, padding=2)

    def forward(self, x):
        x = self.first(x)
        return (torch.tanh(self.last(self.up(self.blocks(x) + x))) + 1) / 2


def train_epoch(generator, loader, optimizer):
    generator.train()
    results = {"batch_sizes": 0, "loss": 0.0}
    for lr, hr in loader:
        optimizer.zero_grad()
        loss = F.mse_loss(generator(lr), hr)
        loss.backward()
        optimizer.step()
        results["batch_sizes"] += lr.shape[0]
        results["loss"] += loss.item() * lr.shape[0]
    return results["loss"] / results["batch_sizes"]


def validate(generator, loader):
    generator.eval()
    results = {"mse": 0, "batch_sizes": 0, "psnr": 0.0}
    for number, (lr, hr) in enumerate(loader):
        sr = generator(lr)
        results["batch_sizes"] += lr.shape[0]
        results["mse"] += ((sr - hr) ** 2).mean() * lr.shape[0]
        results["psnr"] = 10 * math.log10(results["batch_sizes"] / results["mse"].item())
        if number % 5 == 0:
            print(f"  [converting LR images to SR images] {number:3d} PSNR {results['psnr']:.2f} dB", flush=True)
    return results["psnr"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--val-tiles", type=int, default=24)
    parser.add_argument("--memory-mb", type=int, default=1000)
    args = parser.parse_args()
    multiprocessing.Process(target=hold_job_to_limit, args=(os.getpid(), args.memory_mb), daemon=True).start()
    print(f"memory limit of this job: {args.memory_mb} MB", flush=True)
    torch.manual_seed(11)
    torch.set_num_threads(2)
    train_loader = DataLoader(AerialTiles(64, 192, crop=48, seed=1), batch_size=16, shuffle=True)
    val_loader = DataLoader(AerialTiles(args.val_tiles, 216, seed=2), batch_size=1)
    generator = Generator()
    optimizer = torch.optim.Adam(generator.parameters(), lr=1e-3)
    for epoch in range(1, args.epochs + 1):
        loss = train_epoch(generator, train_loader, optimizer)
        print(f"epoch {epoch}/{args.epochs} train loss {loss:.4f}", flush=True)
        psnr = validate(generator, val_loader)
        torch.save(generator.state_dict(), f"netG_epoch_{epoch}.pth")
        print(f"epoch {epoch}/{args.epochs} PSNR {psnr:.2f} dB", flush=True)


if __name__ == "__main__":
    main()
