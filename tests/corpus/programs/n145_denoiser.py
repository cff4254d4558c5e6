"""Train a tiny denoiser, then keep a frozen copy of the inference model for comparison."""
import argparse
import copy

import torch
import torch.nn as nn
import torch.nn.functional as F


class TimeEmbedding(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.freqs = nn.Parameter(torch.exp(torch.linspace(0, 4, dim // 2)), requires_grad=False)
        self.proj = nn.Linear(dim, dim)

    def forward(self, t):
        angle = t[:, None] * self.freqs[None]
        return F.silu(self.proj(torch.cat([angle.sin(), angle.cos()], dim=1)))


class DenoiserUNet(nn.Module):
    def __init__(self, channels=16):
        super().__init__()
        self.time = TimeEmbedding(channels)
        self.inp = nn.Conv2d(1, channels, 3, padding=1)
        self.down = nn.Conv2d(channels, channels, 3, stride=2, padding=1)
        self.up = nn.ConvTranspose2d(channels, channels, 2, stride=2)
        self.out = nn.Conv2d(2 * channels, 1, 3, padding=1)

    def forward(self, x, t):
        h = F.relu(self.inp(x))
        mid = F.relu(self.down(h)) + self.time(t)[:, :, None, None]
        return self.out(torch.cat([h, self.up(mid)], dim=1))


class SamplerUNet:
    """Adds sampling options on top of a trained denoiser."""

    def __init__(self, original):
        self.delegate = original
        self.deep_shrink_ratio = None
        self.guidance = 1.0

    def __getattr__(self, name):
        return getattr(self.delegate, name)

    def __call__(self, *args, **kwargs):
        return self.forward(*args, **kwargs)

    def set_deep_shrink(self, ratio):
        self.deep_shrink_ratio = ratio

    def forward(self, x, t):
        if self.deep_shrink_ratio:
            small = F.interpolate(x, scale_factor=self.deep_shrink_ratio)
            noise = F.interpolate(self.delegate(small, t), size=x.shape[-2:])
        else:
            noise = self.delegate(x, t)
        return noise * self.guidance


def make_batch(size, generator):
    base = torch.linspace(0, 3.14, 16)
    phase = torch.rand(size, 1, generator=generator) * 3
    rows = torch.sin(base[None] + phase)
    return (rows[:, :, None] * rows[:, None, :]).unsqueeze(1)


def train(unet, steps, lr, generator):
    optimizer = torch.optim.AdamW(unet.parameters(), lr=lr)
    for step in range(steps):
        clean = make_batch(16, generator)
        t = torch.rand(16, generator=generator)
        noise = torch.randn(clean.shape, generator=generator)
        noisy = clean + t[:, None, None, None] * noise
        loss = F.mse_loss(unet(noisy, t), noise)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)


@torch.no_grad()
def sample(unet, generator, steps=8):
    x = torch.randn(4, 1, 16, 16, generator=generator)
    for i in range(steps, 0, -1):
        t = torch.full((4,), i / steps)
        x = x - unet(x, t) / steps
    return x


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=5)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    generator = torch.Generator().manual_seed(args.seed)
    unet = DenoiserUNet()
    train(unet, args.steps, args.lr, generator)

    unet = SamplerUNet(unet)
    unet.set_deep_shrink(0.5)
    print(f"with shrink: std {sample(unet, generator).std().item():.4f}", flush=True)

    reference = copy.deepcopy(unet)
    reference.set_deep_shrink(None)
    print(f"reference: std {sample(reference, generator).std().item():.4f}", flush=True)


if __name__ == "__main__":
    main()
