"""Turns a manifest of clips into spectra, with a pool of workers, and fits a small model."""
import argparse
import csv
import multiprocessing as mp
import os
import random
import shutil
import sys
import tempfile

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

RATES = (8000, 16000, 22050)


def fail(message):
    print(f"prepare_clips: {message}", file=sys.stderr)
    sys.exit(2)


def write_manifest(folder, split, count, seed):
    rng = random.Random(seed)
    path = os.path.join(folder, split + ".csv")
    with open(path, "w", newline="") as f:
        out = csv.writer(f)
        out.writerow(["name", "rate", "seconds", "label"])
        for i in range(count):
            rate = rng.choice(RATES)
            if split == "train" and i == count * 2 // 3:
                rate = 44100
            out.writerow([f"{split}_{i:05d}", rate, round(rng.uniform(0.3, 1.2), 2), rng.randrange(4)])
    return path


def read_manifest(path):
    with open(path, newline="") as f:
        rows = list(csv.DictReader(f))
    if not rows:
        fail(f"{path} has no rows")
    return rows


def load_clip(row):
    rate = int(row["rate"])
    if rate not in RATES:
        fail(f"{row['name']}: unsupported sampling rate {rate}")
    n = int(rate * float(row["seconds"]))
    gen = np.random.default_rng(abs(hash(row["name"])) % 2**32)
    tone = np.sin(2 * np.pi * (200 + 150 * int(row["label"])) * np.arange(n) / rate)
    return rate, (tone + 0.3 * gen.standard_normal(n)).astype(np.float32)


def resample(wave, rate, target=8000):
    if rate == target:
        return wave
    at = np.arange(0, len(wave) - 1, rate / target)
    return np.interp(at, np.arange(len(wave)), wave).astype(np.float32)


def spectrum(row):
    rate, wave = load_clip(row)
    wave = resample(wave, rate)
    size = 256
    frames = np.lib.stride_tricks.sliding_window_view(wave, size)[::size // 2]
    power = np.abs(np.fft.rfft(frames * np.hanning(size), axis=1)) ** 2
    return row["name"], np.log1p(power).mean(0).astype(np.float32), int(row["label"])


class Preparer:
    def __init__(self, folder, workers):
        self.folder, self.workers = folder, workers

    def run(self, split, path):
        rows = read_manifest(path)
        if self.workers:
            with mp.get_context("fork").Pool(self.workers) as pool:
                made = pool.map(spectrum, rows, chunksize=16)
        else:
            made = [spectrum(r) for r in rows]
        x = np.stack([m[1] for m in made])
        y = np.array([m[2] for m in made])
        out = os.path.join(self.folder, split + ".npz")
        np.savez(out, x=x, y=y)
        print(f"{split}: {len(made)} clips -> {x.shape}", flush=True)
        return out


def load(path):
    data = np.load(path)
    return torch.from_numpy(data["x"]), torch.from_numpy(data["y"])


def fit(train, valid, epochs):
    (x, y), (vx, vy) = load(train), load(valid)
    mean, std = x.mean(0), x.std(0) + 1e-5
    model = nn.Sequential(nn.Linear(x.size(1), 32), nn.ReLU(), nn.Linear(32, 4))
    opt = torch.optim.Adam(model.parameters(), lr=5e-3)
    for epoch in range(epochs):
        loss = F.cross_entropy(model((x - mean) / std), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    acc = (model((vx - mean) / std).argmax(1) == vy).float().mean().item()
    print(f"loss {loss.item():.3f} valid acc {acc:.3f}", flush=True)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--workers", type=int, default=2)
    ap.add_argument("--clips", type=int, default=1500)
    ap.add_argument("--epochs", type=int, default=60)
    args = ap.parse_args()
    torch.manual_seed(0)
    folder = tempfile.mkdtemp(prefix="o26_prepare_clips_")
    try:
        manifests = {s: write_manifest(folder, s, n, seed)
                     for s, n, seed in (("valid", args.clips // 5, 1), ("train", args.clips, 2))}
        preparer = Preparer(folder, args.workers)
        made = {split: preparer.run(split, path) for split, path in manifests.items()}
        fit(made["train"], made["valid"], args.epochs)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
