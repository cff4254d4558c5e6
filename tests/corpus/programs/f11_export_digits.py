"""Train a small digit classifier and export it for the C++ demo app."""
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


class PosEncoding(nn.Module):
    def __init__(self, grid, dim):
        super().__init__()
        self.grid = grid
        self.weight = nn.Parameter(torch.randn(1, grid * grid, dim) * 0.02)

    def forward(self, x):
        b, c, h, w = x.shape
        tokens = x.flatten(2).transpose(1, 2)
        try:
            return tokens + self.weight
        except RuntimeError:
            pos = self.weight.reshape(1, self.grid, self.grid, c).permute(0, 3, 1, 2)
            pos = F.interpolate(pos, size=(h, w), mode="bilinear", align_corners=False)
            return tokens + pos.flatten(2).transpose(1, 2)


class DigitNet(nn.Module):
    def __init__(self, dim=32, classes=10):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, dim, 4, stride=4), nn.GELU())
        self.pos = PosEncoding(7, dim)
        self.block = nn.TransformerEncoderLayer(dim, 4, 64, batch_first=True, dropout=0.0)
        self.head = nn.Linear(dim, classes)

    def forward(self, x):
        x = self.pos(self.stem(x))
        x = self.block(x)
        return self.head(x.mean(1))


def train(model, steps):
    data = TensorDataset(torch.rand(512, 1, 28, 28), torch.randint(0, 10, (512,)))
    loader = DataLoader(data, batch_size=64, shuffle=True)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    it = iter(loader)
    for step in range(steps):
        x, y = next(it)
        loss = F.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        print(f"step {step} loss {loss.item():.4f}", flush=True)


def export(model, size, path):
    model.eval()
    example = torch.rand(1, 1, size, size)
    with torch.no_grad():
        print("eager output", tuple(model(example).shape), flush=True)
        traced = torch.jit.trace(model, example)
    traced.save(path)
    print("saved", path)


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=5)
    p.add_argument("--export-size", type=int, default=32)
    p.add_argument("--out", default="/tmp/digitnet.pt")
    args = p.parse_args()
    torch.manual_seed(0)
    net = DigitNet()
    train(net, args.steps)
    export(net, args.export_size, args.out)
