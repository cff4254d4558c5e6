"""Train a surrogate of the shock tube; the reference states come from the group's own solver."""
import argparse
import ctypes
import os
import subprocess
import tempfile

import numpy as np
import torch
from torch import nn

HERE = os.path.dirname(os.path.abspath(__file__))


class ShockTube:
    def __init__(self, folder, cells, checked=True):
        target = os.path.join(folder, "libshock.so")
        subprocess.run(["gcc", "-O2", "-g", "-fPIC", "-shared", "-o", target, os.path.join(HERE, "z95_shock.c"), "-lm"],
                       check=True)
        self.lib = ctypes.CDLL(target)
        self.lib.shock_new.restype = ctypes.c_void_p
        self.lib.shock_new.argtypes = [ctypes.c_int, ctypes.c_int]
        self.lib.shock_start.argtypes = [ctypes.c_void_p, ctypes.c_double, ctypes.c_double, ctypes.c_int]
        self.lib.shock_run.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_double]
        self.lib.shock_read.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
        self.cells = cells
        self.state = self.lib.shock_new(cells, int(checked))

    def solve(self, left, right, at, steps):
        self.lib.shock_start(self.state, left, right, at)
        before = self.read()
        self.lib.shock_run(self.state, steps, 0.2)
        return before, self.read()

    def read(self):
        out = np.empty((2, self.cells), dtype=np.float32)
        self.lib.shock_read(self.state, out.ctypes.data)
        return out


class Surrogate(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        layers = [nn.Conv1d(2, width, 9, padding=4), nn.ReLU()]
        for _ in range(3):
            layers += [nn.Conv1d(width, width, 9, padding=4), nn.ReLU()]
        self.net = nn.Sequential(*layers, nn.Conv1d(width, 2, 1))

    def forward(self, state):
        return state + self.net(state)


def make_pairs(tube, count, steps, seed):
    rng = np.random.default_rng(seed)
    pairs = [tube.solve(rng.uniform(0.8, 1.2), rng.uniform(0.1, 0.3), int(rng.integers(60, 140)), steps)
             for _ in range(count)]
    return torch.from_numpy(np.stack([a for a, _ in pairs])), torch.from_numpy(np.stack([b for _, b in pairs]))


def linear_baseline(before, after, steps=200, rate=0.3):
    """One filter of nine cells for each pair of fields, fitted by plain gradient descent."""
    weight = torch.zeros(2, 2, 9, requires_grad=True)
    for _ in range(steps):
        loss = nn.functional.mse_loss(before + nn.functional.conv1d(before, weight, padding=4), after)
        (slope,) = torch.autograd.grad(loss, weight)
        with torch.no_grad():
            weight -= rate * slope
    return weight.detach(), loss.item()


def relative_error(predicted, exact):
    """Mean error of each field, relative to the mean size of the field."""
    return (predicted - exact).abs().mean(dim=(0, 2)) / exact.abs().mean(dim=(0, 2))


def train_epoch(model, optimizer, before, after, batch):
    total = 0.0
    for rows in torch.randperm(len(before)).split(batch):
        loss = nn.functional.mse_loss(model(before[rows]), after[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item() * len(rows)
    return total / len(before)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cells", type=int, default=200)
    parser.add_argument("--epochs", type=int, default=9)
    parser.add_argument("--validate-every", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="shock_") as folder:
        tube = ShockTube(folder, args.cells)
        before, after = make_pairs(tube, 192, 40, seed=1)
        val_before, val_after = make_pairs(tube, 32, 40, seed=2)
    print("states", tuple(before.shape), "velocity up to", f"{after[:, 1].max():.2f}", flush=True)
    weight, loss = linear_baseline(before, after)
    print(f"linear baseline loss {loss:.5f}", flush=True)
    model = Surrogate()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(1, args.epochs + 1):
        loss = train_epoch(model, optimizer, before, after, 16)
        print(f"epoch {epoch} loss {loss:.5f}", flush=True)
        if epoch % args.validate_every == 0:
            with torch.no_grad():
                density, velocity = relative_error(model(val_before), val_after).tolist()
            print(f"epoch {epoch} density {density:.2%} velocity {velocity:.2%}", flush=True)


if __name__ == "__main__":
    main()
