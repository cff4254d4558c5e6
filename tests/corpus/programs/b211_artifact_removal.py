import argparse
import logging
import math
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
log = logging.getLogger("restore")


class DegradedPatches(Dataset):
    def __init__(self, count, size, seed):
        g = torch.Generator().manual_seed(seed)
        coarse = torch.rand(count, 3, size // 8, size // 8, generator=g)
        self.sharp = F.interpolate(coarse, size=(size, size), mode="bicubic", align_corners=False).clamp(0, 1)
        small = F.avg_pool2d(self.sharp, 2)
        noise = 0.03 * torch.randn(small.shape, generator=g)
        self.small = (small + noise).clamp(0, 1)

    def __len__(self):
        return len(self.sharp)

    def __getitem__(self, i):
        return self.small[i], self.sharp[i]


class DenseUnit(nn.Module):
    def __init__(self, cin, feats):
        super().__init__()
        self.squeeze = nn.Conv2d(cin, feats, 1)
        self.conv = nn.Conv2d(feats, feats, 3, padding=1)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        y = self.relu(self.conv(self.relu(self.squeeze(x))))
        return torch.cat([y, x], 1)


class DenseResidual(nn.Module):
    def __init__(self, feats, layers):
        super().__init__()
        self.layers = nn.Sequential(*[DenseUnit(feats * (i + 1), feats) for i in range(layers)])
        self.fuse = nn.Conv2d(feats * (layers + 1), feats, 1, bias=False)

    def forward(self, x):
        return x + self.fuse(self.layers(x))


class CrossRegion(nn.Module):
    def __init__(self, feats):
        super().__init__()
        self.mix = nn.Conv2d(feats * 4, feats * 4, 1, bias=False)

    def forward(self, x):
        h, w = x.size(2) // 2, x.size(3) // 2
        quads = [x[:, :, :h, :w], x[:, :, h:, :w], x[:, :, :h, w:], x[:, :, h:, w:]]
        q1, q2, q3, q4 = self.mix(torch.cat(quads, 1)).chunk(4, 1)
        out = x
        out[:, :, :h, :w] = q1
        out[:, :, h:, :w] = q2
        out[:, :, :h, w:] = q3
        out[:, :, h:, w:] = q4
        return out


class AttentionBlock(nn.Module):
    def __init__(self, feats, layers):
        super().__init__()
        self.dense = DenseResidual(feats, layers)
        self.region = CrossRegion(feats)
        self.gate = nn.Conv2d(feats, feats, 3, padding=1, bias=False)

    def forward(self, x):
        body = self.dense(x)
        gate = torch.sigmoid(self.gate(self.region(x)))
        return body * gate


class RestoreNet(nn.Module):
    def __init__(self, feats, layers, blocks):
        super().__init__()
        self.head = nn.Conv2d(3, feats, 3, padding=1)
        self.relu = nn.ReLU(inplace=True)
        self.blocks = nn.ModuleList([AttentionBlock(feats, layers) for _ in range(blocks)])
        self.tail = nn.Conv2d(feats * blocks, feats, 1)
        self.up = nn.Sequential(nn.Conv2d(feats, feats * 4, 3, padding=1), nn.PixelShuffle(2))
        self.coarse = nn.Conv2d(feats, 3, 3, padding=1)
        self.refine = nn.Sequential(nn.Conv2d(3, feats, 3, padding=1), nn.ReLU(inplace=True), nn.Conv2d(feats, 3, 3, padding=1))

    def forward(self, x):
        feat = self.relu(self.head(x))
        outs = []
        for block in self.blocks:
            feat = block(feat)
            outs.append(feat)
        coarse = self.coarse(self.up(self.tail(torch.cat(outs, 1))))
        return coarse, coarse + self.refine(coarse)


def psnr(a, b):
    return -10 * math.log10(F.mse_loss(a, b).item() + 1e-12)


@torch.no_grad()
def evaluate(loader, restore):
    scores = [psnr(restore(small).clamp(0, 1), sharp) for small, sharp in loader]
    return sum(scores) / len(scores)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=2)
    p.add_argument("--batch", type=int, default=8)
    p.add_argument("--feats", type=int, default=24)
    args = p.parse_args()
    torch.manual_seed(7)
    train = DataLoader(DegradedPatches(160, 64, 1), batch_size=args.batch, shuffle=True)
    valid = DataLoader(DegradedPatches(48, 64, 2), batch_size=args.batch)
    net = RestoreNet(args.feats, layers=3, blocks=3)
    log.info("parameters %d", sum(q.numel() for q in net.parameters()))
    bicubic = evaluate(valid, lambda s: F.interpolate(s, scale_factor=2, mode="bicubic", align_corners=False))
    log.info("bicubic %.2f dB, untrained %.2f dB", bicubic, evaluate(valid, lambda s: net(s)[1]))
    optimizer = torch.optim.Adam(net.parameters(), lr=2e-4)
    for epoch in range(args.epochs):
        start, total = time.time(), 0.0
        for small, sharp in train:
            coarse, fine = net(small)
            loss = F.l1_loss(coarse, sharp) + F.l1_loss(fine, sharp)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        log.info("epoch %d loss %.4f (%.1fs)", epoch, total / len(train), time.time() - start)
        log.info("validation %.2f dB", evaluate(valid, lambda s: net(s)[1]))


if __name__ == "__main__":
    main()
