"""Learn firing rates of a small cortical column from spikes of our simulator (leaky integrate-and-fire, in C)."""
import argparse
import ctypes
import os
import subprocess
import tempfile

import numpy as np
import torch
from torch import nn

COLUMN_C = r"""
#define _GNU_SOURCE
#include <fenv.h>
#include <math.h>
#include <stdint.h>

static uint64_t seed = 88172645463325252ULL;

static double noise(void) {
    seed ^= seed << 13; seed ^= seed >> 7; seed ^= seed << 17;
    return (double)(seed >> 11) / 9007199254740992.0 - 0.5;
}

void column_seed(uint64_t s) { seed = s | 1; }

int column_strict(int on) {
    int mask = FE_DIVBYZERO | FE_INVALID | FE_OVERFLOW;
    return on ? feenableexcept(mask) : fedisableexcept(mask);
}

void column_run(const double *drive, int cells, int ticks, double tau, float *spikes) {
    for (int c = 0; c < cells; c++) {
        double v = 0.0;
        float n = 0.0f;
        for (int t = 0; t < ticks; t++) {
            v += (drive[c] - v) / tau + 0.2 * noise();
            if (v > 1.0) { n += 1.0f; v = 0.0; }
        }
        spikes[c] = n;
    }
}

double column_rest(const double *drive, int cells, double tau) {
    double worst = 0.0;
    for (int c = 0; c < cells; c++) worst = fmax(worst, fabs(drive[c] * exp(-5.0 / tau)));
    return worst;
}
"""


class Column:
    def __init__(self, folder, cells=96, tau=12.0):
        source, library = os.path.join(folder, "column.c"), os.path.join(folder, "libcolumn.so")
        with open(source, "w") as f:
            f.write(COLUMN_C)
        subprocess.run(["gcc", "-O2", "-g", "-shared", "-fPIC", source, "-o", library, "-lm"], check=True)
        self.lib = ctypes.CDLL(library)
        doubles = np.ctypeslib.ndpointer(np.float64, flags="C_CONTIGUOUS")
        floats = np.ctypeslib.ndpointer(np.float32, flags="C_CONTIGUOUS")
        self.lib.column_seed.argtypes = [ctypes.c_uint64]
        self.lib.column_run.argtypes = [doubles, ctypes.c_int, ctypes.c_int, ctypes.c_double, floats]
        self.lib.column_rest.argtypes = [doubles, ctypes.c_int, ctypes.c_double]
        self.lib.column_rest.restype = ctypes.c_double
        self.cells, self.tau = cells, tau

    def spikes(self, drive, ticks=200):
        counts = np.zeros(self.cells, dtype=np.float32)
        self.lib.column_run(drive, self.cells, ticks, self.tau, counts)
        return counts

    def check(self, drive):
        self.lib.column_strict(1)
        return self.lib.column_rest(drive, self.cells, self.tau)


class RateModel(nn.Module):
    def __init__(self, cells, hidden):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(cells, hidden), nn.Tanh(), nn.Linear(hidden, cells))

    def forward(self, drive):
        return self.body(drive).clamp(-6, 4)


def trials(column, rng, batch):
    drive = rng.uniform(0.2, 1.6, (batch, column.cells))
    counts = np.stack([column.spikes(np.ascontiguousarray(d)) for d in drive])
    return torch.from_numpy(drive).float(), torch.from_numpy(counts)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--hidden", type=int, default=64)
    args = parser.parse_args()
    torch.manual_seed(3)
    rng = np.random.default_rng(3)
    with tempfile.TemporaryDirectory() as folder:
        column = Column(folder)
        column.lib.column_seed(20231)
        model = RateModel(column.cells, args.hidden)
        optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
        criterion = nn.PoissonNLLLoss(log_input=True, full=True)
        for epoch in range(args.epochs):
            total = 0.0
            for _ in range(args.steps):
                drive, counts = trials(column, rng, args.batch)
                loss = criterion(model(drive), counts)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                total += loss.item()
            print(f"epoch {epoch} nll {total / args.steps:.4f} silent {int((counts == 0).sum())}", flush=True)
            if epoch == 1:
                rest = column.check(rng.uniform(0.2, 1.6, column.cells))
                print(f"column at rest after 5 ms: {rest:.3f}", flush=True)
        print("done", flush=True)


if __name__ == "__main__":
    main()
