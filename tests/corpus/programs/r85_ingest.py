"""Turn raw sensor recordings into training windows with a pool of processes, then train."""
import multiprocessing as mp
import os
import tempfile

import numpy as np
import torch
from torch import nn

RATE, WINDOW = 100, 64


class RecordingError(Exception):
    """A recording that does not pass the checks."""

    def __init__(self, path, channel, reason):
        super().__init__(f"{os.path.basename(path)} channel {channel}: {reason}")
        self.path = path
        self.channel = channel


def write_recordings(root, count):
    rng = np.random.default_rng(7)
    paths = []
    for i in range(count):
        t = np.arange(RATE * 20) / RATE
        wave = np.stack([np.sin(2 * np.pi * (1 + i % 3) * t + k) for k in range(3)])
        wave += rng.normal(0, 0.1, wave.shape)
        if i == 17:
            wave[2, 400:900] = 0.0
        path = os.path.join(root, f"rec{i:03d}.npz")
        np.savez(path, wave=wave.astype(np.float32), label=i % 3)
        paths.append(path)
    return paths


def longest_flat(values):
    best = run = 0
    for same in np.diff(values) == 0:
        run = run + 1 if same else 0
        best = max(best, run)
    return best


def check(path, wave):
    for k, channel in enumerate(wave):
        if not np.isfinite(channel).all():
            raise RecordingError(path, k, "values are not finite")
        if longest_flat(channel) > 2 * RATE:
            raise RecordingError(path, k, "flat for more than two seconds")


def windows(wave):
    n = wave.shape[1] // WINDOW
    return wave[:, :n * WINDOW].reshape(wave.shape[0], n, WINDOW).transpose(1, 0, 2)


def convert(path):
    with np.load(path) as f:
        wave, label = f["wave"], int(f["label"])
    try:
        check(path, wave)
    except RecordingError as problem:
        return path, problem
    wave = (wave - wave.mean(1, keepdims=True)) / wave.std(1, keepdims=True)
    cut = windows(wave)
    return path, (cut, np.full(len(cut), label))


def summarize(path):
    with np.load(path) as f:
        return os.path.basename(path), float(np.abs(f["wave"]).max())


def convert_all(paths, workers):
    xs, ys = [], []
    with mp.get_context("spawn").Pool(workers) as pool:
        peaks = dict(pool.imap(summarize, paths))
        print(f"{len(peaks)} recordings, highest peak {max(peaks.values()):.2f}", flush=True)
        for start in range(0, len(paths), 8):
            for path, result in pool.map(convert, paths[start:start + 8], chunksize=2):
                if isinstance(result, RecordingError):
                    print(f"left out {path}: {result}", flush=True)
                    continue
                xs.append(result[0])
                ys.append(result[1])
            print(f"converted {min(start + 8, len(paths))}/{len(paths)}", flush=True)
    return torch.from_numpy(np.concatenate(xs)), torch.from_numpy(np.concatenate(ys))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv1d(3, 8, 7), nn.ReLU(), nn.AdaptiveAvgPool1d(4),
                                  nn.Flatten(), nn.Linear(32, 3))

    def forward(self, x):
        return self.body(x)


def train(x, y, epochs):
    model = Net()
    opt = torch.optim.Adam(model.parameters(), lr=0.01)
    for epoch in range(epochs):
        loss = nn.functional.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        print(f"epoch {epoch} loss {loss.item():.3f}", flush=True)


def main():
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory(prefix="r85_ingest_", dir="/tmp") as root:
        paths = write_recordings(root, 32)
        x, y = convert_all(paths, workers=2)
    train(x.float(), y, 3)


if __name__ == "__main__":
    main()
