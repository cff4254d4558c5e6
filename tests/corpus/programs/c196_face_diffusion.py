import argparse
import logging
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

logging.basicConfig(format="%(asctime)s %(levelname)s: %(message)s", level=logging.INFO)
log = logging.getLogger("said")


class BlendshapeClips(Dataset):
    def __init__(self, num_clips, num_shapes=32, window=120, audio_dim=48, seed=0):
        rng = np.random.default_rng(seed)
        mixing = rng.standard_normal((num_shapes, audio_dim)) / np.sqrt(audio_dim)
        t = np.arange(window) / 60
        self.audio, self.coeffs = [], []
        for _ in range(num_clips):
            freq = rng.uniform(0.5, 6, (audio_dim, 1))
            audio = np.sin(2 * np.pi * freq * t + rng.uniform(0, 6, (audio_dim, 1)))
            audio += 0.1 * rng.standard_normal(audio.shape)
            kernel = np.hanning(9) / np.hanning(9).sum()
            coeffs = np.stack([np.convolve(row, kernel, "same") for row in mixing @ audio])
            self.audio.append(audio.astype(np.float32))
            self.coeffs.append((1 / (1 + np.exp(-2 * coeffs))).astype(np.float32))
        stacked = np.stack(self.coeffs)
        self.mean = torch.from_numpy(stacked.mean((0, 2)))[:, None]
        self.std = torch.from_numpy(stacked.std((0, 2)))[:, None]

    def __len__(self):
        return len(self.audio)

    def __getitem__(self, i):
        coeffs = torch.from_numpy(self.coeffs[i])
        return torch.from_numpy(self.audio[i]), ((coeffs - self.mean) / (3 * self.std)).clamp(-1, 1)


class NoiseScheduler:
    def __init__(self, steps=200):
        self.steps = steps
        self.alphas = torch.cumprod(1 - torch.linspace(1e-4, 0.04, steps), 0)

    def add_noise(self, x, noise, t):
        a = self.alphas[t].view(-1, 1, 1)
        return a.sqrt() * x + (1 - a).sqrt() * noise


class Block(nn.Module):
    def __init__(self, dim, dilation):
        super().__init__()
        self.conv = nn.Conv1d(dim, 2 * dim, 3, padding=dilation, dilation=dilation)
        self.cond = nn.Linear(dim, dim)
        self.out = nn.Conv1d(dim, dim, 1)

    def forward(self, x, emb):
        gate, value = self.conv(x + self.cond(emb).unsqueeze(-1)).chunk(2, dim=1)
        return x + self.out(torch.sigmoid(gate) * F.silu(value))


class SAID(nn.Module):
    def __init__(self, num_shapes=32, audio_dim=48, dim=96, depth=4):
        super().__init__()
        self.inp = nn.Conv1d(num_shapes + audio_dim, dim, 1)
        self.time = nn.Sequential(nn.Linear(16, dim), nn.SiLU(), nn.Linear(dim, dim))
        self.blocks = nn.ModuleList(Block(dim, 2 ** i) for i in range(depth))
        self.head = nn.Conv1d(dim, num_shapes, 1)

    def forward(self, noisy, audio, t):
        freqs = torch.exp(torch.linspace(0, -5, 8))
        angles = t.float().unsqueeze(-1) * freqs
        emb = self.time(torch.cat([angles.sin(), angles.cos()], -1))
        x = self.inp(torch.cat([noisy, audio], 1))
        for block in self.blocks:
            x = block(x, emb)
        return torch.tanh(self.head(x))


def step_losses(model, scheduler, batch, stats, args):
    audio, coeffs = batch
    mean, std = stats
    t = torch.randint(0, scheduler.steps, (len(coeffs),))
    drop = (torch.rand(len(audio), 1, 1) < args.uncond_prob).float()
    noisy = scheduler.add_noise(coeffs, torch.randn_like(coeffs), t)
    pred = model(noisy, audio * (1 - drop), t)
    loss_simple = F.l1_loss(pred, coeffs)
    answer = coeffs.clone()
    for curves in (pred, answer):
        curves *= 3 * std
        curves += mean
    loss_vel = F.l1_loss(pred.diff(dim=-1), answer.diff(dim=-1))
    loss_range = F.relu(-pred).mean() + F.relu(pred - 1).mean()
    return loss_simple, loss_vel, loss_range


def run_epoch(model, scheduler, loader, stats, args, optimizer=None):
    totals = np.zeros(3)
    for batch in loader:
        losses = step_losses(model, scheduler, batch, stats, args)
        if optimizer is not None:
            loss = losses[0] + args.weight_vel * losses[1] + args.weight_range * losses[2]
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        totals += [value.item() for value in losses]
    return totals / len(loader)


def main():
    parser = argparse.ArgumentParser(description="audio-driven blendshape diffusion")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch_size", type=int, default=8)
    parser.add_argument("--clips", type=int, default=320)
    parser.add_argument("--learning_rate", type=float, default=1e-3)
    parser.add_argument("--uncond_prob", type=float, default=0.1)
    parser.add_argument("--weight_vel", type=float, default=1.0)
    parser.add_argument("--weight_range", type=float, default=0.1)
    args = parser.parse_args()
    torch.manual_seed(0)
    train_set, val_set = BlendshapeClips(args.clips, seed=1), BlendshapeClips(args.clips // 4, seed=2)
    train_loader = DataLoader(train_set, batch_size=args.batch_size, shuffle=True)
    val_loader = DataLoader(val_set, batch_size=args.batch_size)
    stats = (train_set.mean, train_set.std)
    model, scheduler = SAID(), NoiseScheduler()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.learning_rate)
    log.info("%d training clips, %d validation clips", len(train_set), len(val_set))
    for epoch in range(args.epochs + 1):
        t0 = time.time()
        if epoch > 0:
            model.train()
            values = run_epoch(model, scheduler, train_loader, stats, args, optimizer)
            log.info("epoch %d train simple %.4f vel %.4f range %.4f (%.1fs)", epoch, *values, time.time() - t0)
        model.eval()
        with torch.no_grad():
            values = run_epoch(model, scheduler, val_loader, stats, args)
        log.info("epoch %d valid simple %.4f vel %.4f range %.4f", epoch, *values)


if __name__ == "__main__":
    main()
