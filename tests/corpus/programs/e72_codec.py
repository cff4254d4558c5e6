"""Decode delta-coded sensor recordings with a small C library and fit a forecaster on them."""
import ctypes
import os
import subprocess

import numpy as np
import torch
from torch import nn

ROOT = "/tmp/e72_codec_work"

SOURCE = r"""
#include <stdlib.h>
#include <stdint.h>

typedef struct { long n; float scale; float *samples; } recording;

static long count_ok = 0;

long codec_probe(const int16_t *deltas, long n) {
    long peak = 0, acc = 0;
    for (long i = 0; i < n; i++) {
        acc += deltas[i];
        long a = acc < 0 ? -acc : acc;
        if (a > peak) peak = a;
    }
    count_ok++;
    return peak;
}

float *codec_decode(const int16_t *deltas, long n, float scale) {
    float *out = malloc(sizeof(float) * n);
    long acc = 0;
    for (long i = 0; i < n; i++) {
        acc += deltas[i];
        out[i] = acc * scale;
    }
    return out;
}

void codec_release(float *samples) { free(samples); }
long codec_count(void) { return count_ok; }
"""


class Codec:
    def __init__(self, root):
        src, lib = os.path.join(root, "codec.c"), os.path.join(root, "libcodec.so")
        with open(src, "w") as f:
            f.write(SOURCE)
        subprocess.run(["gcc", "-O1", "-g", "-shared", "-fPIC", "-o", lib, src], check=True)
        self.lib = ctypes.CDLL(lib)
        self.lib.codec_probe.argtypes = [ctypes.c_void_p, ctypes.c_long]
        self.lib.codec_probe.restype = ctypes.c_long
        self.lib.codec_decode.argtypes = [ctypes.c_void_p, ctypes.c_long, ctypes.c_float]
        self.lib.codec_release.argtypes = [ctypes.c_void_p]
        self.lib.codec_count.restype = ctypes.c_long

    def peak(self, deltas):
        return self.lib.codec_probe(deltas.ctypes.data, len(deltas))

    def decode(self, deltas, scale):
        ptr = self.lib.codec_decode(deltas.ctypes.data, len(deltas), scale)
        view = ctypes.cast(ptr, ctypes.POINTER(ctypes.c_float))
        samples = np.ctypeslib.as_array(view, shape=(len(deltas),))
        out = torch.from_numpy(samples).clone()
        self.lib.codec_release(ptr)
        return out


def make_recordings(n, length, seed=3):
    rng = np.random.default_rng(seed)
    recs = []
    for _ in range(n):
        t = np.arange(length) / rng.uniform(40, 120)
        wave = 800 * np.sin(t) + rng.normal(0, 10, size=length)
        recs.append(np.diff(wave, prepend=0.0).round().astype(np.int16))
    return recs


class Windows(torch.utils.data.Dataset):
    def __init__(self, series, width):
        self.series, self.width = series, width
        self.per = len(series[0]) // (width + 1)

    def __len__(self):
        return len(self.series) * self.per

    def __getitem__(self, i):
        s = self.series[i // self.per]
        lo = (i % self.per) * (self.width + 1)
        w = s[lo:lo + self.width + 1]
        return w[:-1], w[-1:]


def train(data, width, epochs=1):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(width, 64), nn.ReLU(), nn.Linear(64, 1))
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    loader = torch.utils.data.DataLoader(data, batch_size=256, shuffle=True)
    for epoch in range(epochs):
        total = 0.0
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.item()
        print(f"epoch {epoch} mse {total / len(loader):.4f}", flush=True)
    return model


def main():
    os.makedirs(ROOT, exist_ok=True)
    codec = Codec(ROOT)
    recs = make_recordings(8, 200_000)
    peaks = [codec.peak(r) for r in recs]
    print(f"{codec.lib.codec_count()} recordings, peaks {min(peaks)}..{max(peaks)}", flush=True)
    series = [codec.decode(r, 1.0 / p) for r, p in zip(recs, peaks)]
    print(f"decoded {sum(len(s) for s in series)} samples", flush=True)
    model = train(Windows(series, 32), 32)
    torch.save(model.state_dict(), os.path.join(ROOT, "model.pt"))
    print("done", flush=True)


if __name__ == "__main__":
    main()
