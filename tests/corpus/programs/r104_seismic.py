"""Picks up seismic stations from .npy day files, computes band features of every trace in
parallel and fits a small event / noise classifier on them."""
import argparse
import multiprocessing as mp
import os
import tempfile

import numpy as np
import torch
from torch import nn
import torch.nn.functional as F

SAMPLING_RATE = 100
BANDS = [(0.5, 2), (2, 5), (5, 10), (10, 20), (20, 40)]
WORKERS = mp.Pool(2)


def write_day_files(folder, days, traces, seed):
    """Synthetic station data: every second trace has a decaying 6 Hz event in it."""
    rng = np.random.default_rng(seed)
    time = np.arange(20 * SAMPLING_RATE) / SAMPLING_RATE
    paths = []
    for day in range(days):
        records = rng.standard_normal((traces, time.size)).astype(np.float32)
        for row in range(0, traces, 2):
            onset = rng.uniform(4, 12)
            wave = np.exp(-(time - onset) / 2) * np.sin(2 * np.pi * 6 * (time - onset))
            records[row] += np.where(time > onset, 3 * wave, 0)
        paths.append(os.path.join(folder, f"ST01_{day:03d}.npy"))
        np.save(paths[-1], records)
    return paths


class Detrend:
    """Mean and scale over the whole archive, found by gradient descent on a robust loss."""

    def __init__(self, steps=60):
        self.steps = steps
        self.center = torch.zeros(1, requires_grad=True)
        self.log_scale = torch.zeros(1, requires_grad=True)

    def fit(self, archive):
        sample = torch.from_numpy(archive[:, ::7].reshape(-1))
        optimizer = torch.optim.Adam([self.center, self.log_scale], lr=0.05)
        for _ in range(self.steps):
            optimizer.zero_grad()
            scaled = (sample - self.center) / self.log_scale.exp()
            loss = F.smooth_l1_loss(scaled, torch.zeros_like(scaled)) + self.log_scale.mean()
            loss.backward()
            optimizer.step()
        return loss.item()

    def apply(self, records):
        return (records - self.center.item()) / np.exp(self.log_scale.item())


def band_features(records):
    """Log energy of every band and the short-term / long-term ratio of each trace."""
    spectrum = np.abs(np.fft.rfft(records, axis=1)) ** 2
    freqs = np.fft.rfftfreq(records.shape[1], 1 / SAMPLING_RATE)
    energies = [np.log(spectrum[:, (freqs >= low) & (freqs < high)].mean(1)) for low, high in BANDS]
    power = np.cumsum(records ** 2, axis=1)
    short = power[:, 100:] - power[:, :-100]
    long = power[:, 800:] - power[:, :-800]
    ratio = (short[:, 700:] / 100) / (long / 800)
    return np.column_stack(energies + [ratio.max(1)]).astype(np.float32)


class EventClassifier(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.layers = nn.Sequential(nn.BatchNorm1d(features), nn.Linear(features, 32), nn.ReLU(), nn.Linear(32, 2))

    def forward(self, x):
        return self.layers(x)


def train_classifier(features, labels, epochs):
    model = EventClassifier(features.shape[1])
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for epoch in range(epochs):
        optimizer.zero_grad()
        logits = model(features)
        loss = F.cross_entropy(logits, labels)
        loss.backward()
        optimizer.step()
        if epoch % 10 == 0:
            accuracy = (logits.argmax(1) == labels).float().mean().item()
            print(f"epoch {epoch} loss {loss.item():.4f} accuracy {accuracy:.3f}", flush=True)
    return model


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--days", type=int, default=16)
    parser.add_argument("--traces", type=int, default=60)
    parser.add_argument("--epochs", type=int, default=50)
    args = parser.parse_args()
    torch.manual_seed(5)
    with tempfile.TemporaryDirectory(prefix="seismic_") as folder:
        paths = write_day_files(folder, args.days, args.traces, seed=5)
        days = WORKERS.map(np.load, paths)
    print(f"loaded {len(days)} day files, {sum(len(d) for d in days)} traces", flush=True)
    detrend = Detrend()
    print(f"archive scale fitted, loss {detrend.fit(np.concatenate(days)):.4f}", flush=True)
    features = np.concatenate(WORKERS.map(band_features, [detrend.apply(day) for day in days]))
    print(f"features of {len(features)} traces", flush=True)
    labels = torch.arange(len(features)) % 2
    train_classifier(torch.from_numpy(features), labels, args.epochs)
    WORKERS.close()
    WORKERS.join()
    print("done", flush=True)


if __name__ == "__main__":
    main()
