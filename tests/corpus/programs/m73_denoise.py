"""Denoise small images with data parallel training; the best model so far is kept."""
import functools
import os

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

OUT = "/tmp/m73_denoise_out"


def on_main(fn):
    @functools.wraps(fn)
    def wrapper(self, *args, **kwargs):
        if dist.get_rank() == 0:
            return fn(self, *args, **kwargs)
        return None
    return wrapper


class Block(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, x):
        return x + F.relu(self.norm(self.conv(x)))


class Denoiser(nn.Module):
    def __init__(self, channels=16, depth=3):
        super().__init__()
        self.first = nn.Conv2d(1, channels, 3, padding=1)
        self.body = nn.Sequential(*[Block(channels) for _ in range(depth)])
        self.last = nn.Conv2d(channels, 1, 3, padding=1)

    def forward(self, x):
        return x - self.last(self.body(self.first(x)))


def make_images(count, seed):
    g = torch.Generator().manual_seed(seed)
    low = torch.rand(count, 1, 6, 6, generator=g)
    clean = F.interpolate(low, size=(24, 24), mode="bilinear")
    return TensorDataset(clean + 0.1 * torch.randn(clean.shape, generator=g), clean)


class Trainer:
    def __init__(self, epochs=3):
        self.epochs = epochs
        self.rank = dist.get_rank()
        self.model = DistributedDataParallel(Denoiser())
        self.opt = torch.optim.Adam(self.model.parameters(), lr=2e-3)
        train = make_images(512, 1)
        self.sampler = DistributedSampler(train, shuffle=True)
        self.train_loader = DataLoader(train, batch_size=32, sampler=self.sampler)
        self.val_loader = DataLoader(make_images(128, 2), batch_size=32)
        self.best = -1.0

    def train_epoch(self, epoch):
        self.sampler.set_epoch(epoch)
        self.model.train()
        total = torch.zeros(())
        for noisy, clean in self.train_loader:
            loss = F.mse_loss(self.model(noisy), clean)
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            total += loss.detach()
        dist.all_reduce(total)
        return total.item() / (len(self.train_loader) * dist.get_world_size())

    @on_main
    def log(self, text):
        print(text, flush=True)

    @on_main
    @torch.no_grad()
    def validate(self):
        self.model.eval()
        error = count = 0.0
        for noisy, clean in self.val_loader:
            error += F.mse_loss(self.model(noisy), clean, reduction="sum").item()
            count += clean.numel()
        return -10 * torch.log10(torch.tensor(error / count)).item()

    @on_main
    def keep_best(self, epoch, psnr):
        if psnr > self.best:
            self.best = psnr
            os.makedirs(OUT, exist_ok=True)
            torch.save(self.model.module.state_dict(), os.path.join(OUT, "best.pt"))
        self.log(f"epoch {epoch}: psnr {psnr:.2f} best {self.best:.2f}")

    def fit(self):
        for epoch in range(self.epochs):
            loss = self.train_epoch(epoch)
            self.log(f"epoch {epoch}: loss {loss:.4f}")
            psnr = self.validate()
            self.keep_best(epoch, psnr)
            dist.barrier()
        self.log("finished")


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    Trainer().fit()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
