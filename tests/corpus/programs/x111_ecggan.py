"""Synthetic heartbeat generator: a small GAN over single ECG beats."""
import argparse
import math

import torch
import torch.nn as nn

BEAT_LEN = 96
LATENT = 12


def real_beats(n, gen):
    t = torch.linspace(0, 1, BEAT_LEN).unsqueeze(0)
    shift = 0.02 * torch.randn(n, 1, generator=gen)
    height = 1.0 + 0.1 * torch.randn(n, 1, generator=gen)
    p_wave = 0.15 * torch.exp(-((t - 0.25 - shift) ** 2) / 0.002)
    qrs = height * torch.exp(-((t - 0.45 - shift) ** 2) / 0.0004)
    t_wave = 0.3 * torch.exp(-((t - 0.7 - shift) ** 2) / 0.005)
    drift = 0.02 * torch.sin(2 * math.pi * t)
    return p_wave + qrs + t_wave + drift


class Generator(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(LATENT, hidden),
            nn.ReLU(),
            nn.Linear(hidden, BEAT_LEN),
        )

    def forward(self, z):
        return self.body(z)


class Discriminator(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(BEAT_LEN, hidden),
            nn.ReLU(),
            nn.Linear(hidden, 1),
            nn.Sigmoid(),
        )

    def forward(self, x):
        return self.body(x)


class BeatGAN:
    def __init__(self, args):
        self.args = args
        self.gen = torch.Generator().manual_seed(args.seed)
        self.G = Generator(args.hidden)
        self.D = Discriminator(args.hidden)
        self.opt_G = torch.optim.Adam(self.G.parameters(), lr=args.lr)
        self.opt_D = torch.optim.Adam(self.D.parameters(), lr=args.lr)

    def noise(self):
        return torch.randn(self.args.batch, LATENT, generator=self.gen)

    def pretrain(self, steps):
        for step in range(steps):
            beats = real_beats(self.args.batch, self.gen)
            loss = nn.functional.mse_loss(self.G(self.noise()), beats)
            self.opt_G.zero_grad()
            loss.backward()
            self.opt_G.step()
            if step % 50 == 0:
                print(f"pretrain {step:4d} mse {loss.item():.4f}", flush=True)

    def train_step(self):
        beats = real_beats(self.args.batch, self.gen)
        fakes = self.G(self.noise())
        p_real = self.D(beats)
        p_fake = self.D(fakes)

        d_loss = -torch.mean(torch.log(p_real + 1e-6) + torch.log(1.0 - p_fake + 1e-6))
        g_loss = torch.mean(torch.log(1.0 - p_fake + 1e-6))

        self.opt_D.zero_grad()
        d_loss.backward(retain_graph=True)
        self.opt_D.step()

        self.opt_G.zero_grad()
        g_loss.backward()
        self.opt_G.step()
        return d_loss.item(), g_loss.item()

    def train(self, steps):
        for step in range(steps):
            d_loss, g_loss = self.train_step()
            if step % 50 == 0:
                print(f"step {step:4d} D {d_loss:.3f} G {g_loss:.3f}", flush=True)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=200)
    ap.add_argument("--batch", type=int, default=64)
    ap.add_argument("--hidden", type=int, default=128)
    ap.add_argument("--lr", type=float, default=1e-3)
    ap.add_argument("--seed", type=int, default=5)
    args = ap.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    gan = BeatGAN(args)
    gan.pretrain(151)
    gan.train(args.steps)
    print("finished", flush=True)


if __name__ == "__main__":
    main()
