"""1-D denoising diffusion on windows of a wearable's accelerometer (12 channels, 50 Hz)."""
import argparse
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


def accelerometer_windows(n, channels=12, length=150, seed=0):
    g = torch.Generator().manual_seed(seed)
    t = torch.linspace(0, 3, length)
    freq = 0.5 + 2.5 * torch.rand(n, channels, 1, generator=g)
    phase = 2 * math.pi * torch.rand(n, channels, 1, generator=g)
    noise = 0.05 * torch.randn(n, channels, length, generator=g)
    return torch.sin(2 * math.pi * freq * t + phase) + noise


def step_embedding(t, dim):
    half = dim // 2
    freqs = torch.exp(-math.log(10000.0) * torch.arange(half) / half)
    args = t[:, None].float() * freqs[None]
    return torch.cat([args.sin(), args.cos()], dim=-1)


class Block(nn.Module):
    def __init__(self, dim_in, dim_out, emb_dim):
        super().__init__()
        self.conv = nn.Conv1d(dim_in, dim_out, 3, padding=1)
        self.norm = nn.GroupNorm(4, dim_out)
        self.shift = nn.Linear(emb_dim, dim_out)

    def forward(self, x, emb):
        h = self.norm(self.conv(x)) + self.shift(emb)[:, :, None]
        return F.silu(h)


class Denoiser1D(nn.Module):
    def __init__(self, channels, dim=32, emb_dim=32):
        super().__init__()
        self.emb_dim = emb_dim
        self.inp = Block(channels, dim, emb_dim)
        self.mid = Block(dim, dim, emb_dim)
        self.out = nn.Conv1d(dim, channels, 1)

    def forward(self, x, t):
        emb = step_embedding(t, self.emb_dim)
        return self.out(self.mid(self.inp(x, emb), emb))


class GaussianDiffusion1D(nn.Module):
    def __init__(self, model, timesteps=200):
        super().__init__()
        self.model = model
        self.timesteps = timesteps
        betas = torch.linspace(1e-4, 0.02, timesteps)
        self.register_buffer("alphas_cumprod", torch.cumprod(1 - betas, dim=0))

    def forward(self, x):
        t = torch.randint(0, self.timesteps, (x.shape[0],))
        a = self.alphas_cumprod[t][:, None, None]
        noise = torch.randn_like(x)
        noisy = a.sqrt() * x + (1 - a).sqrt() * noise
        return F.mse_loss(self.model(noisy, t), noise)


class Trainer:
    def __init__(self, diffusion, dataset, batch_size, lr, num_steps, accumulate=1):
        self.diffusion = diffusion
        self.loader = DataLoader(dataset, batch_size=batch_size, shuffle=True, drop_last=True)
        self.opt = torch.optim.Adam(diffusion.parameters(), lr=lr)
        self.num_steps = num_steps
        self.accumulate = accumulate

    def batches(self):
        while True:
            for (x,) in self.loader:
                yield x

    def train(self):
        source = self.batches()
        for step in range(1, self.num_steps + 1):
            total = 0.0
            for _ in range(self.accumulate):
                loss = self.diffusion(next(source)) / self.accumulate
                total += loss.item()
                loss.backward()
            nn.utils.clip_grad_norm_(self.diffusion.parameters(), 1.0)
            self.opt.step()
            self.opt.zero_grad()
            if step == 1 or step % 20 == 0:
                print(f"step {step:4d} loss {total:.4f}", flush=True)


def linear_baseline(windows, steps=30):
    model = nn.Conv1d(windows.shape[1], windows.shape[1], 5, padding=2)
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(steps):
        x = windows[torch.randint(0, len(windows), (32,))]
        loss = F.mse_loss(model(x + 0.3 * torch.randn_like(x)), x)
        opt.zero_grad()
        loss.backward()
        opt.step()
    return loss.item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--windows", type=int, default=512)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--channels", type=int, default=4)
    args = parser.parse_args()
    torch.manual_seed(7)

    windows = accelerometer_windows(args.windows)
    print(f"linear denoiser mse {linear_baseline(windows):.4f}", flush=True)

    to_model_input = nn.Conv1d(windows.shape[1], args.channels, kernel_size=23)
    series = to_model_input(windows)
    print("training data", tuple(series.shape), flush=True)

    diffusion = GaussianDiffusion1D(Denoiser1D(args.channels))
    Trainer(diffusion, TensorDataset(series), 32, 8e-4, args.steps).train()
    print("done", flush=True)


if __name__ == "__main__":
    main()
