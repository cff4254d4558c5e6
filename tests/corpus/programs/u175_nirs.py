"""Baseline correction of near-infrared scans in C, then a small calibration net."""
import argparse
import ctypes
import os
import subprocess
import tempfile

import numpy as np
import torch
import torch.nn as nn

SOURCE = r"""
#include <stddef.h>

typedef struct {
    const float *samples;
    const float *weights;
    long scans;
    long channels;
} spectra_t;

/* weighted straight line through every scan, subtracted; result in out */
void remove_baseline(const spectra_t *s, float *out)
{
    for (long i = 0; i < s->scans; i++) {
        const float *row = s->samples + i * s->channels;
        double sw = 0, sx = 0, sy = 0, sxx = 0, sxy = 0;
        for (long j = 0; j < s->channels; j++) {
            double w = s->weights[j], x = (double)j / s->channels;
            sw += w; sx += w * x; sy += w * row[j];
            sxx += w * x * x; sxy += w * x * row[j];
        }
        double det = sw * sxx - sx * sx;
        double slope = det != 0 ? (sw * sxy - sx * sy) / det : 0;
        double base = (sy - slope * sx) / sw;
        for (long j = 0; j < s->channels; j++)
            out[i * s->channels + j] = (float)(row[j] - base - slope * j / s->channels);
    }
}
"""


class Spectra(ctypes.Structure):
    _fields_ = [("samples", ctypes.c_void_p), ("weights", ctypes.c_void_p),
                ("scans", ctypes.c_long), ("channels", ctypes.c_long)]


def load_library():
    folder = tempfile.mkdtemp(prefix="nirs_")
    source, target = os.path.join(folder, "baseline.c"), os.path.join(folder, "libbaseline.so")
    with open(source, "w") as f:
        f.write(SOURCE)
    subprocess.run(["gcc", "-O1", "-g", "-shared", "-fPIC", source, "-o", target], check=True)
    lib = ctypes.CDLL(target)
    lib.remove_baseline.argtypes = [ctypes.POINTER(Spectra), ctypes.c_void_p]
    lib.remove_baseline.restype = None
    return lib


class BaselineCorrection:
    def __init__(self, lib, channels):
        self.lib = lib
        self.weights = np.linspace(1.0, 2.0, channels).astype(np.float32)

    def pack(self, counts):
        """Detector counts (uint16) as absorbance, ready for the library."""
        scans, channels = counts.shape
        absorbance = np.ascontiguousarray(counts, dtype=np.float32) / 65535
        return Spectra(absorbance.ctypes.data, self.weights.ctypes.data, scans, channels)

    def __call__(self, counts):
        out = np.empty(counts.shape, dtype=np.float32)
        spectra = self.pack(counts)
        self.lib.remove_baseline(ctypes.byref(spectra), out.ctypes.data)
        return torch.from_numpy(out)


class Calibration(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(channels, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, x):
        return self.net(x).squeeze(1)


def campaign(rng, scans, channels):
    """One measuring campaign: scans x channels detector counts, moisture per scan."""
    moisture = rng.random(scans).astype(np.float32)
    band = np.exp(-((np.arange(channels) - channels / 2) / 40.0) ** 2)
    counts = 20000 + 9000 * moisture[:, None] * band + rng.normal(0, 60, (scans, channels))
    return counts.clip(0, 65535).astype(np.uint16), torch.from_numpy(moisture)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--channels", type=int, default=512)
    ap.add_argument("--campaigns", type=int, nargs="+", default=[24, 32, 40, 48, 20000])
    ap.add_argument("--steps", type=int, default=20)
    args = ap.parse_args()
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    correct = BaselineCorrection(load_library(), args.channels)
    model = Calibration(args.channels)
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    for number, scans in enumerate(args.campaigns):
        counts, moisture = campaign(rng, scans, args.channels)
        print(f"campaign {number}: {scans} scans", flush=True)
        x = correct(counts)
        for step in range(args.steps):
            rows = torch.randperm(scans)[:256]
            opt.zero_grad()
            loss = nn.functional.mse_loss(model(x[rows]), moisture[rows])
            loss.backward()
            opt.step()
        print(f"campaign {number}: loss {loss.item():.5f}", flush=True)


if __name__ == "__main__":
    main()
