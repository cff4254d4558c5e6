import argparse
import logging
import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

log = logging.getLogger("vocoder")


class AudioConfig:
    sampling_rate = 16000
    hop_length = 200
    win_length = 800
    n_mels = 40
    segment_length = 8000


def cut_podcast(minutes, cfg, seed=11):
    """One mono recording, cut into pieces where the speaker pauses."""
    rng = np.random.default_rng(seed)
    total = int(minutes * 60 * cfg.sampling_rate)
    pieces, at = [], 0
    while at < total:
        n = max(7986, int(rng.normal(26000, 7500)))
        t = np.arange(n) / cfg.sampling_rate
        f0 = rng.uniform(90, 220)
        wav = sum(np.sin(2 * np.pi * f0 * k * t) / k for k in range(1, 6))
        wav = wav * np.hanning(n) + 0.02 * rng.normal(size=n)
        pieces.append((wav / np.abs(wav).max()).astype(np.float32))
        at += n
    return pieces


def log_mel(wav, cfg, basis):
    window = torch.hann_window(cfg.win_length)
    spec = torch.stft(wav, cfg.win_length, cfg.hop_length, window=window, return_complex=True).abs()
    return torch.log(basis @ spec + 1e-5)


class MelFromDisk(Dataset):
    def __init__(self, pieces, cfg):
        self.cfg = cfg
        self.mel_segment = cfg.segment_length // cfg.hop_length
        gen = torch.Generator().manual_seed(0)
        basis = torch.rand(cfg.n_mels, cfg.win_length // 2 + 1, generator=gen)
        self.wavs = [torch.from_numpy(p).unsqueeze(0) for p in pieces]
        self.mels = [log_mel(w.squeeze(0), cfg, basis) for w in self.wavs]

    def __len__(self):
        return len(self.wavs)

    def __getitem__(self, idx):
        audio, mel = self.wavs[idx], self.mels[idx]
        max_start = max(mel.size(1) - self.mel_segment - 1, 0)
        start = random.randint(0, max_start)
        mel = mel[:, start:start + self.mel_segment]
        begin = start * self.cfg.hop_length
        audio = audio[:, begin:begin + self.cfg.segment_length]
        return mel, audio


class Generator(nn.Module):
    def __init__(self, n_mels):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv1d(n_mels, 64, 7, padding=3), nn.LeakyReLU(0.2),
            nn.ConvTranspose1d(64, 32, 10, 10), nn.LeakyReLU(0.2),
            nn.ConvTranspose1d(32, 16, 10, 10), nn.LeakyReLU(0.2),
            nn.ConvTranspose1d(16, 8, 2, 2), nn.LeakyReLU(0.2),
            nn.Conv1d(8, 1, 7, padding=3), nn.Tanh())

    def forward(self, mel):
        return self.net(mel)


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv1d(1, 16, 15, 4, padding=7), nn.LeakyReLU(0.2),
            nn.Conv1d(16, 32, 15, 4, padding=7), nn.LeakyReLU(0.2),
            nn.Conv1d(32, 1, 3, padding=1))

    def forward(self, x):
        return self.net(x)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=4)
    ap.add_argument("--batch-size", type=int, default=8)
    ap.add_argument("--workers", type=int, default=2)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s - %(levelname)s - %(message)s")
    random.seed(5)
    torch.manual_seed(5)
    cfg = AudioConfig()
    pieces = cut_podcast(4.0, cfg)
    trainset = MelFromDisk(pieces[24:], cfg)
    log.info("Starting new training run: %d pieces for training", len(trainset))
    loader = DataLoader(trainset, batch_size=args.batch_size, shuffle=True, num_workers=args.workers, drop_last=True)
    model_g, model_d = Generator(cfg.n_mels), Discriminator()
    optim_g = torch.optim.Adam(model_g.parameters(), lr=1e-4, betas=(0.5, 0.9))
    optim_d = torch.optim.Adam(model_d.parameters(), lr=1e-4, betas=(0.5, 0.9))
    step = 0
    for epoch in range(args.epochs):
        for mel, audio in loader:
            fake = model_g(mel)
            loss_d = F.relu(1 - model_d(audio)).mean() + F.relu(1 + model_d(fake.detach())).mean()
            optim_d.zero_grad()
            loss_d.backward()
            optim_d.step()
            loss_g = -model_d(fake).mean() + 10 * F.l1_loss(fake, audio)
            optim_g.zero_grad()
            loss_g.backward()
            optim_g.step()
            step += 1
            if step % 5 == 0:
                log.info("g %.4f d %.4f | step %d", loss_g.item(), loss_d.item(), step)
        log.info("epoch %d done", epoch)


if __name__ == "__main__":
    main()
