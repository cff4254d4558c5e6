"""Train a small autoencoder on vibration recordings and report the held-out error per machine."""
import argparse
import math
import os
import shutil

import numpy as np
import torch
from torch import nn

WORK = "/tmp/o11_vibration"
WINDOW = 256
RECORDINGS = {"press": 52_000, "lathe": 46_000, "pump": 40_000}


def write_recordings(folder):
    rng = np.random.default_rng(7)
    os.makedirs(folder, exist_ok=True)
    for k, (machine, windows) in enumerate(RECORDINGS.items()):
        t = np.arange(WINDOW, dtype=np.float32) / WINDOW
        base = np.sin(2 * math.pi * (3 + k) * t)[None, :]
        with open(os.path.join(folder, machine + ".f32"), "wb") as f:
            for start in range(0, windows, 4000):
                n = min(4000, windows - start)
                amp = rng.uniform(0.5, 1.5, size=(n, 1))
                noise = rng.normal(0, 0.05, size=(n, WINDOW))
                f.write((amp * base + noise).astype(np.float32).tobytes())


class RecordingReader:
    """Reads one recording after the other."""

    def __init__(self, folder, chunk=1 << 20):
        self.folder = folder
        self.chunk = chunk
        self.buffer = bytearray()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.buffer.clear()

    def read(self, machine):
        self.buffer.clear()
        with open(os.path.join(self.folder, machine + ".f32"), "rb") as f:
            while True:
                block = f.read(self.chunk)
                if not block:
                    break
                self.buffer.extend(block)
        flat = torch.frombuffer(self.buffer, dtype=torch.float32)
        return flat.view(-1, WINDOW)


class AutoEncoder(nn.Module):
    def __init__(self, hidden=24):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(WINDOW, 96), nn.ReLU(), nn.Linear(96, hidden))
        self.decoder = nn.Sequential(nn.Linear(hidden, 96), nn.ReLU(), nn.Linear(96, WINDOW))

    def forward(self, x):
        return self.decoder(self.encoder(x))


class Trainer:
    def __init__(self, reader, batch_size=512, steps=40):
        self.reader = reader
        self.batch_size = batch_size
        self.steps = steps
        self.model = AutoEncoder()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)
        self.holdout = {}

    def split(self, windows):
        cut = windows.shape[0] // 10
        return windows[:cut], windows[cut:]

    def fit_machine(self, machine):
        heldout, train = self.split(self.reader.read(machine))
        self.holdout[machine] = heldout
        total = 0.0
        for _ in range(self.steps):
            index = torch.randint(0, train.shape[0], (self.batch_size,))
            batch = train[index]
            loss = nn.functional.mse_loss(self.model(batch), batch)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            total += loss.item()
        print(f"{machine:6s} windows {train.shape[0]:6d}  train loss {total / self.steps:.4f}", flush=True)

    @torch.no_grad()
    def evaluate(self, machine):
        self.model.eval()
        error, count = 0.0, 0
        for batch in self.holdout[machine].split(self.batch_size):
            error += nn.functional.mse_loss(self.model(batch), batch, reduction="sum").item()
            count += batch.numel()
        self.model.train()
        return error / count


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=40)
    args = parser.parse_args()
    torch.manual_seed(0)
    write_recordings(WORK)
    with RecordingReader(WORK) as reader:
        trainer = Trainer(reader, steps=args.steps)
        for machine in RECORDINGS:
            trainer.fit_machine(machine)
            print(f"{machine:6s} held-out error {trainer.evaluate(machine):.4f}", flush=True)
    print("final evaluation of all machines", flush=True)
    errors = {machine: trainer.evaluate(machine) for machine in RECORDINGS}
    for machine, value in errors.items():
        print(f"  {machine:6s} {value:.5f}")
    torch.save(trainer.model.state_dict(), os.path.join(WORK, "model.pt"))
    print("saved", os.path.join(WORK, "model.pt"))
    shutil.rmtree(WORK)


if __name__ == "__main__":
    main()
