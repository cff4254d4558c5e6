"""Behaviour cloning on recorded robot runs; each run is one raw float32 file that is mapped, not read."""
import argparse
import os
import random
import tempfile

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import ConcatDataset, DataLoader, Dataset

OBS, ACT = 12, 4
ROW = OBS + ACT


def record_runs(root, runs, steps, seed=0):
    rng = np.random.default_rng(seed)
    gain = rng.standard_normal((OBS, ACT)).astype(np.float32) * 0.3
    paths = []
    for r in range(runs):
        obs = np.cumsum(rng.standard_normal((steps, OBS)).astype(np.float32) * 0.1, axis=0)
        act = np.tanh(obs @ gain)
        path = os.path.join(root, f"run_{r:04d}.f32")
        np.concatenate([obs, act], axis=1).tofile(path)
        paths.append(path)
    return paths


class Window:
    """`length` consecutive rows of one run, starting at row `start`."""

    def __init__(self, path, steps, start, length):
        rows = torch.from_file(path, shared=True, size=steps * ROW, dtype=torch.float32)
        self.rows = rows.view(steps, ROW)[start:start + length]

    def observation(self):
        return self.rows[:, :OBS].flatten()

    def action(self):
        return self.rows[-1, OBS:]


class RunDataset(Dataset):
    def __init__(self, path, steps, length, stride):
        self.path = path
        self.windows = [Window(path, steps, s, length) for s in range(0, steps - length + 1, stride)]

    def __len__(self):
        return len(self.windows)

    def __getitem__(self, index):
        w = self.windows[index]
        return w.observation(), w.action()


class Policy(nn.Module):
    def __init__(self, length, hidden=64):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(length * OBS, hidden), nn.ReLU(), nn.Linear(hidden, ACT), nn.Tanh())

    def forward(self, x):
        return self.net(x)


def fit(policy, dataset, batches, batch_size, lr):
    opt = torch.optim.Adam(policy.parameters(), lr=lr)
    loader = DataLoader(dataset, batch_size=batch_size, shuffle=True)
    total, n = 0.0, 0
    for obs, act in loader:
        loss = nn.functional.mse_loss(policy(obs), act)
        opt.zero_grad()
        loss.backward()
        opt.step()
        total += loss.item()
        n += 1
        if n == batches:
            break
    return total / n


def build(paths, args):
    parts = []
    for i, path in enumerate(paths):
        parts.append(RunDataset(path, args.steps, args.length, args.stride))
        if (i + 1) % 200 == 0:
            print(f"indexed {i + 1} runs, {sum(len(p) for p in parts)} windows", flush=True)
    return ConcatDataset(parts)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--runs", type=int, default=640)
    ap.add_argument("--steps", type=int, default=128)
    ap.add_argument("--length", type=int, default=8)
    ap.add_argument("--stride", type=int, default=1)
    ap.add_argument("--batches", type=int, default=30)
    args = ap.parse_args()

    random.seed(0)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="runs_") as root:
        paths = record_runs(root, args.runs, args.steps)
        policy = Policy(args.length)

        pilot = build(paths[:20], args)
        print(f"pilot: {len(pilot)} windows, loss {fit(policy, pilot, args.batches, 64, 1e-3):.4f}", flush=True)

        full = build(paths, args)
        print(f"full: {len(full)} windows, loss {fit(policy, full, args.batches, 64, 1e-3):.4f}", flush=True)
    print("done")


if __name__ == "__main__":
    main()
