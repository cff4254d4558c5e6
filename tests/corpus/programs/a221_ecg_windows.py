"""Rhythm classifier on fixed-length ECG windows, windowing done in C."""
import argparse
import importlib.util
import logging
import subprocess
import sysconfig
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

log = logging.getLogger("ecg")
HERE = Path(__file__).resolve().parent


def build_extension(workdir):
    target = Path(workdir) / "a221_windowing.so"
    subprocess.run(
        ["gcc", "-O1", "-g", "-shared", "-fPIC", f"-I{sysconfig.get_paths()['include']}", f"-I{np.get_include()}",
         str(HERE / "a221_windowing.c"), "-o", str(target), "-lm"],
        check=True,
    )
    spec = importlib.util.spec_from_file_location("a221_windowing", target)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def synth_recording(rng, rhythm, seconds, rate):
    t = np.arange(seconds * rate) / rate
    beats = 1.1 + 0.5 * rhythm
    phase = 2 * np.pi * beats * t + rng.uniform(0, 6.28)
    trace = np.sin(phase) ** 15 + 0.15 * np.sin(0.3 * phase) + 0.05 * rng.standard_normal(t.size)
    return trace.astype(np.float32)


def make_windows(ext, recordings, width, hop, clip=None):
    blocks, labels = [], []
    for rhythm, trace in recordings:
        block = ext.split(trace, width, hop)
        if clip is not None:
            block = ext.standardize(block, clip)
        blocks.append(block)
        labels.append(np.full(len(block), rhythm, dtype=np.int64))
    return TensorDataset(torch.from_numpy(np.concatenate(blocks)), torch.from_numpy(np.concatenate(labels)))


class RhythmNet(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv1d(1, 16, 9, stride=2, padding=4), nn.ReLU(),
            nn.Conv1d(16, 32, 9, stride=2, padding=4), nn.ReLU(),
            nn.AdaptiveAvgPool1d(8), nn.Flatten(), nn.Linear(32 * 8, classes),
        )

    def forward(self, x):
        return self.body(x.unsqueeze(1))


def run_epoch(model, loader, optimizer=None):
    total, hits, loss_sum = 0, 0, 0.0
    for x, y in loader:
        logits = model(x)
        loss = nn.functional.cross_entropy(logits, y)
        if optimizer is not None:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        total += len(y)
        hits += (logits.argmax(1) == y).sum().item()
        loss_sum += loss.item() * len(y)
    return loss_sum / total, hits / total


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--hop", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--clip", action=argparse.BooleanOptionalAction, default=True)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.manual_seed(3)
    rng = np.random.default_rng(3)
    with tempfile.TemporaryDirectory() as workdir:
        ext = build_extension(workdir)
        recordings = [(r % 4, synth_recording(rng, r % 4, 60, 128)) for r in range(32)]
        for name, clip in (("raw", None), ("standardized", args.clip)):
            log.info("windowing variant=%s recordings=%d", name, len(recordings))
            data = make_windows(ext, recordings, args.width, args.hop, clip)
            loader = DataLoader(data, batch_size=64, shuffle=True)
            model = RhythmNet(4)
            optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
            for epoch in range(args.epochs):
                loss, acc = run_epoch(model, loader, optimizer)
                log.info("variant=%s epoch=%d windows=%d loss=%.4f acc=%.3f", name, epoch, len(data), loss, acc)


if __name__ == "__main__":
    main()
