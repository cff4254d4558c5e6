"""Lesion segmentation with a small U-shaped network on several processes.

    torchrun --standalone --nproc-per-node 2 r162_medseg.py
"""
import argparse

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Slices(Dataset):
    """Noisy slices with one bright disc each, and the mask of the disc."""

    def __init__(self, n, size=24):
        g = torch.Generator().manual_seed(8)
        yy, xx = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
        cx = torch.randint(6, size - 6, (n, 1, 1), generator=g)
        cy = torch.randint(6, size - 6, (n, 1, 1), generator=g)
        r = torch.randint(3, 6, (n, 1, 1), generator=g)
        self.mask = (((xx - cx) ** 2 + (yy - cy) ** 2) < r ** 2).float().unsqueeze(1)
        self.image = self.mask + 0.4 * torch.randn(n, 1, size, size, generator=g)

    def __len__(self):
        return len(self.image)

    def __getitem__(self, i):
        return self.image[i], self.mask[i]


class Block(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.conv1 = nn.Conv2d(cin, cout, 3, padding=1)
        self.conv2 = nn.Conv2d(cout, cout, 3, padding=1)

    def forward(self, x):
        return F.relu(self.conv2(F.relu(self.conv1(x))))


class Encoder(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.b1 = Block(1, width)
        self.b2 = Block(width, width * 2)

    def forward(self, x):
        s1 = self.b1(x)
        s2 = self.b2(F.max_pool2d(s1, 2))
        return s1, s2


class Denoiser(nn.Module):
    def __init__(self, encoder, width):
        super().__init__()
        self.encoder = encoder
        self.out = nn.Conv2d(width * 3, 1, 3, padding=1)

    def forward(self, x):
        s1, s2 = self.encoder(x)
        return self.out(torch.cat([s1, F.interpolate(s2, scale_factor=2)], dim=1))


class SegNet(nn.Module):
    def __init__(self, encoder, width):
        super().__init__()
        self.encoder = encoder
        self.middle = Block(width * 2, width * 2)
        self.attn_gate = nn.Conv2d(width * 2, width, 1)
        self.decode = Block(width * 3, width)
        self.head = nn.Conv2d(width, 1, 1)

    def forward(self, x):
        s1, s2 = self.encoder(x)
        up = F.interpolate(self.middle(s2), scale_factor=2)
        return self.head(self.decode(torch.cat([s1, up], dim=1)))


def fit(model, loader, sampler, epochs, loss_fn, target, name):
    net = DDP(model)
    opt = torch.optim.Adam(net.parameters(), lr=2e-3)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        total = 0.0
        for image, mask in loader:
            pred = net(image)
            loss = loss_fn(pred, target(image, mask))
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.item()
        if dist.get_rank() == 0:
            print(f"{name} epoch {epoch} loss {total / len(loader):.4f}", flush=True)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--slices", type=int, default=160)
    p.add_argument("--width", type=int, default=8)
    p.add_argument("--epochs", type=int, default=2)
    args = p.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(6)
    data = Slices(args.slices)
    sampler = DistributedSampler(data, seed=1)
    loader = DataLoader(data, batch_size=8, sampler=sampler, drop_last=True)
    encoder = Encoder(args.width)
    fit(Denoiser(encoder, args.width), loader, sampler, args.epochs,
        F.mse_loss, lambda image, mask: image, "pretext")
    fit(SegNet(encoder, args.width), loader, sampler, args.epochs,
        F.binary_cross_entropy_with_logits, lambda image, mask: mask, "segment")
    dist.barrier()
    if dist.get_rank() == 0:
        print("finished", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
