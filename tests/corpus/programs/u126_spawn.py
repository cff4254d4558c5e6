"""Super-resolution of small grey patches: warm up in the main process, then stream patches with loader workers."""
import argparse

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

parser = argparse.ArgumentParser()
parser.add_argument("--scale", type=int, default=2)
parser.add_argument("--patches", type=int, default=256)
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--n-workers", type=int, default=1)
opt = parser.parse_args()

torch.manual_seed(10)
torch.set_num_threads(1)


class PatchSet(Dataset):
    """Synthetic HR patches (gratings) with their box-filtered LR version."""

    def __init__(self, count, size=32, scale=2):
        rng = np.random.default_rng(3)
        self.angles = rng.uniform(0, np.pi, count)
        self.freqs = rng.uniform(0.1, 0.9, count)
        self.size, self.scale = size, scale
        self.grid = np.stack(np.meshgrid(np.arange(size), np.arange(size), indexing="ij"))

    def __len__(self):
        return len(self.angles)

    def __getitem__(self, i):
        direction = np.array([np.cos(self.angles[i]), np.sin(self.angles[i])])
        hr = np.sin(self.freqs[i] * np.tensordot(direction, self.grid, axes=1)).astype(np.float32)
        hr = torch.from_numpy(hr)[None]
        lr = nn.functional.avg_pool2d(hr, self.scale)
        return lr, hr


class Upscaler(nn.Module):
    def __init__(self, scale, width=24):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, width, 3, padding=1), nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1), nn.ReLU(),
            nn.Conv2d(width, scale * scale, 3, padding=1))
        self.shuffle = nn.PixelShuffle(scale)

    def forward(self, x):
        return self.shuffle(self.body(x))


def psnr(pred, target):
    mse = (pred - target).pow(2).mean()
    return float(10 * torch.log10(4.0 / mse))


def optimise(net, optim, lr, hr):
    pred = net(lr)
    loss = nn.functional.l1_loss(pred, hr)
    optim.zero_grad()
    loss.backward()
    optim.step()
    return loss.item(), psnr(pred.detach(), hr)


print("===> Loading patches")
train_set = PatchSet(opt.patches, scale=opt.scale)
warm_loader = DataLoader(train_set, batch_size=16, shuffle=True)
train_loader = DataLoader(train_set, batch_size=16, shuffle=True, num_workers=opt.n_workers,
                          multiprocessing_context="spawn" if opt.n_workers else None)

print("===> Building model")
model = Upscaler(opt.scale)
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)

print("===> Warm-up")
for it, (lr, hr) in enumerate(warm_loader):
    loss, quality = optimise(model, optimizer, lr, hr)
    if it % 5 == 0:
        print(f"warm-up {it:3d} l1 {loss:.4f} psnr {quality:.2f}", flush=True)

print("===> Training")
for epoch in range(opt.epochs):
    losses = []
    for lr, hr in train_loader:
        loss, quality = optimise(model, optimizer, lr, hr)
        losses.append(loss)
    print(f"epoch {epoch} l1 {np.mean(losses):.4f} psnr {quality:.2f}", flush=True)

torch.save(model.state_dict(), "upscaler.pth")
print("===> Saved upscaler.pth")
