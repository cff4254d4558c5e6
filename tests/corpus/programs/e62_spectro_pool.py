"""Feature extraction and a small classifier for vibration recordings.

The smoothing filter is a C routine (the numpy version was the bottleneck).
"""
import ctypes
import os
import subprocess

import numpy as np
import torch
from torch import nn

WORK = "/tmp/e62_spectro_pool"

C_SOURCE = r"""
#include <stddef.h>
#include <math.h>

/* root mean square over a sliding window */
int sliding_rms(const float *x, size_t n, size_t window, float *out) {
    if (window == 0 || window > n) return -1;
    double acc = 0.0;
    for (size_t i = 0; i < window; ++i) acc += (double)x[i] * x[i];
    size_t k = 0;
    out[k++] = (float)sqrt(acc / window);
    for (size_t i = window; i < n; ++i) {
        acc += (double)x[i] * x[i] - (double)x[i - window] * x[i - window];
        out[k++] = (float)sqrt(acc > 0 ? acc / window : 0.0);
    }
    float last = out[k - 1];
    while (k < n) out[k++] = last;
    return (int)k;
}

void normalise(float *x, size_t n) {
    double m = 0.0, s = 0.0;
    for (size_t i = 0; i < n; ++i) m += x[i];
    m /= n;
    for (size_t i = 0; i < n; ++i) s += (x[i] - m) * (x[i] - m);
    s = sqrt(s / n) + 1e-6;
    for (size_t i = 0; i < n; ++i) x[i] = (float)((x[i] - m) / s);
}
"""


def build_library():
    os.makedirs(WORK, exist_ok=True)
    src, lib = os.path.join(WORK, "vib.c"), os.path.join(WORK, "libvib.so")
    with open(src, "w") as f:
        f.write(C_SOURCE)
    subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "-o", lib, src, "-lm"], check=True)
    dll = ctypes.CDLL(lib)
    vec = np.ctypeslib.ndpointer(np.float32, ndim=1, flags="C_CONTIGUOUS")
    dll.sliding_rms.argtypes = [vec, ctypes.c_size_t, ctypes.c_size_t, vec]
    dll.sliding_rms.restype = ctypes.c_int
    dll.normalise.argtypes = [vec, ctypes.c_size_t]
    dll.normalise.restype = None
    return dll


class Recorder:
    """Synthetic bearings: the third class has a periodic knock."""

    def __init__(self, seed, length=4096):
        self.rng = np.random.default_rng(seed)
        self.length = length

    def sample(self, label):
        t = np.arange(self.length, dtype=np.float32)
        x = self.rng.normal(size=self.length).astype(np.float32) * (0.5 + 0.3 * label)
        if label == 2:
            x[:: int(self.rng.integers(180, 220))] += 6.0
        return x + np.sin(t / (9 + 4 * label)).astype(np.float32)


class EnvelopeExtractor:
    def __init__(self, lib, windows):
        self.lib = lib
        self.windows = windows

    def envelope(self, signal, window):
        out = np.empty(len(signal) - window + 1, dtype=np.float32)
        if self.lib.sliding_rms(signal, len(signal), window, out) < 0:
            raise ValueError(f"window {window} is longer than the signal")
        self.lib.normalise(out, len(out))
        return out

    def __call__(self, signal):
        rows = [self.envelope(signal, w) for w in self.windows]
        pooled = [np.array([part.mean() for part in np.array_split(r, 64)], dtype=np.float32) for r in rows]
        return torch.from_numpy(np.stack(pooled))


class Classifier(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv1d(channels, 16, 5, padding=2), nn.ReLU(), nn.AdaptiveAvgPool1d(8), nn.Flatten(), nn.Linear(128, 3)
        )

    def forward(self, x):
        return self.body(x)


def extract(extractor, per_class, seed):
    rec = Recorder(seed)
    feats, labels = [], []
    for i in range(per_class):
        for label in range(3):
            feats.append(extractor(rec.sample(label)))
            labels.append(label)
        if (i + 1) % 20 == 0:
            print(f"extracted {3 * (i + 1)} recordings", flush=True)
    return torch.stack(feats), torch.tensor(labels)


def fit(model, x, y, epochs=5):
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(epochs):
        for idx in torch.randperm(len(x)).split(32):
            loss = nn.functional.cross_entropy(model(x[idx]), y[idx])
            opt.zero_grad()
            loss.backward()
            opt.step()
        acc = (model(x).argmax(1) == y).float().mean()
        print(f"epoch {epoch} loss {loss.item():.4f} acc {acc:.3f}", flush=True)


def main():
    torch.manual_seed(0)
    lib = build_library()
    windows = [1]
    x, y = extract(EnvelopeExtractor(lib, windows), per_class=40, seed=11)
    print("single-scale baseline", tuple(x.shape))
    fit(Classifier(len(windows)), x, y)
    windows = [8, 32, 128]
    x, y = extract(EnvelopeExtractor(lib, windows), per_class=80, seed=12)
    print("multi-scale features", tuple(x.shape))
    fit(Classifier(len(windows)), x, y)


if __name__ == "__main__":
    main()
