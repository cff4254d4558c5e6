"""Two-stage video GAN: a low-resolution stage on all clips, then a super-resolution stage on the long ones."""
import argparse
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


def write_partition(root, rng, clips):
    root.mkdir(parents=True, exist_ok=True)
    for number in range(clips):
        frames = int(rng.integers(4, 12))
        video = rng.integers(0, 255, (frames, 3, 16, 16), dtype=np.uint8)
        np.save(root / f"clip_{number:04d}.npy", video)


class VideoDataset(Dataset):
    def __init__(self, root, seq_length, size):
        self.seq_length = seq_length
        self.size = size
        self.clips = []
        for path in sorted(root.glob("clip_*.npy")):
            if np.load(path, mmap_mode="r").shape[0] >= seq_length:
                self.clips.append(path)

    def __len__(self):
        return len(self.clips)

    def __getitem__(self, index):
        video = torch.from_numpy(np.load(self.clips[index])[: self.seq_length]).float() / 127.5 - 1
        return F.interpolate(video, size=(self.size, self.size), mode="area").transpose(0, 1)


def infinite_batches(dataset, batch_size, seed):
    generator = torch.Generator().manual_seed(seed)
    loader = DataLoader(dataset, batch_size=batch_size, shuffle=True, drop_last=True, generator=generator)
    epoch = 0
    while True:
        for video in loader:
            yield epoch, video
        epoch += 1


class Generator(nn.Module):
    def __init__(self, seq_length, size, latent=16):
        super().__init__()
        self.shape = (3, seq_length, size, size)
        self.layers = nn.Sequential(nn.Linear(latent, 64), nn.LeakyReLU(0.2),
                                    nn.Linear(64, 3 * seq_length * size * size), nn.Tanh())

    def forward(self, z):
        return self.layers(z).view(-1, *self.shape)


class Discriminator(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv3d(3, width, 3, padding=1), nn.LeakyReLU(0.2),
                                    nn.AdaptiveAvgPool3d(2), nn.Flatten(), nn.Linear(width * 8, 1))

    def forward(self, video):
        return self.layers(video).squeeze(-1)


class Stage:
    def __init__(self, name, dataset, batch_size, seq_length, size):
        self.name = name
        self.batches = infinite_batches(dataset, batch_size, seed=1)
        self.generator = Generator(seq_length, size)
        self.discriminator = Discriminator()
        self.g_opt = torch.optim.Adam(self.generator.parameters(), lr=1e-3, betas=(0.0, 0.99))
        self.d_opt = torch.optim.Adam(self.discriminator.parameters(), lr=1e-3, betas=(0.0, 0.99))

    def step(self):
        epoch, real = next(self.batches)
        z = torch.randn(len(real), 16)
        fake = self.generator(z)
        d_loss = F.softplus(self.discriminator(fake.detach())).mean() + F.softplus(-self.discriminator(real)).mean()
        self.d_opt.zero_grad()
        d_loss.backward()
        self.d_opt.step()
        g_loss = F.softplus(-self.discriminator(fake)).mean()
        self.g_opt.zero_grad()
        g_loss.backward()
        self.g_opt.step()
        return epoch, d_loss.item(), g_loss.item()

    def train(self, steps):
        for step in range(steps):
            epoch, d_loss, g_loss = self.step()
            if (step + 1) % 20 == 0:
                print(f"{self.name}: step {step + 1} epoch {epoch} d {d_loss:.3f} g {g_loss:.3f}", flush=True)
        torch.save(self.generator.state_dict(), f"{self.name}.pt")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, default=Path("horseback/part_000"))
    parser.add_argument("--clips", type=int, default=72)
    parser.add_argument("--batch", type=int, default=28)
    parser.add_argument("--steps", type=int, default=40)
    args = parser.parse_args()

    torch.manual_seed(0)
    torch.set_num_threads(1)
    write_partition(args.data, np.random.default_rng(5), args.clips)
    low = VideoDataset(args.data, seq_length=4, size=8)
    Stage("lowres", low, args.batch, 4, 8).train(args.steps)
    high = VideoDataset(args.data, seq_length=10, size=16)
    Stage("superres", high, args.batch, 10, 16).train(args.steps)
    print("done", flush=True)


if __name__ == "__main__":
    main()
