"""Gait-phase network on accelerometer windows; the sensor history lives in a small C library."""
import argparse
import ctypes
import os
import subprocess
import tempfile

import numpy as np
import torch
import torch.nn as nn

SOURCE = r"""
#include <stdlib.h>
#include <string.h>

typedef struct { long capacity, width, head, filled; float rows[]; } history_t;

void lowpass(const float *in, float *out, long n, float alpha) {
    float y = in[0];
    for (long i = 0; i < n; i++) { y += alpha * (in[i] - y); out[i] = y; }
}

history_t *history_open(long capacity, long width) {
    history_t *h = calloc(1, sizeof(history_t) + capacity * width * sizeof(float));
    h->capacity = capacity;
    h->width = width;
    return h;
}

long history_push(history_t *h, const float *row) {
    memcpy(h->rows + h->head * h->width, row, h->width * sizeof(float));
    h->head = (h->head + 1) % h->capacity;
    if (h->filled < h->capacity) h->filled++;
    return h->filled;
}

void history_close(history_t *h) { free(h); }
"""

FLOATS = np.ctypeslib.ndpointer(dtype=np.float32, flags="C_CONTIGUOUS")


def build_library(folder):
    src, lib = os.path.join(folder, "history.c"), os.path.join(folder, "libhistory.so")
    with open(src, "w") as f:
        f.write(SOURCE)
    subprocess.run(["gcc", "-O1", "-g", "-shared", "-fPIC", src, "-o", lib], check=True)
    dll = ctypes.CDLL(lib)
    dll.lowpass.argtypes = [FLOATS, FLOATS, ctypes.c_long, ctypes.c_float]
    dll.lowpass.restype = None
    dll.history_push.argtypes = [ctypes.c_void_p, FLOATS]
    dll.history_push.restype = ctypes.c_long
    dll.history_close.argtypes = [ctypes.c_void_p]
    return dll


def record(rng, n):
    phase = np.cumsum(0.05 + 0.01 * rng.standard_normal(n))
    signal = np.sin(phase) + 0.3 * np.sin(2 * phase) + 0.1 * rng.standard_normal(n)
    return signal.astype(np.float32), (phase % (2 * np.pi)).astype(np.float32)


class History:
    def __init__(self, dll, capacity, width):
        self.dll = dll
        self.handle = dll.history_open(capacity, width)

    def push(self, row):
        return self.dll.history_push(self.handle, row)

    def close(self):
        self.dll.history_close(self.handle)


class PhaseNet(nn.Module):
    def __init__(self, window):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(window, 64), nn.ReLU(), nn.Linear(64, 2))

    def forward(self, x):
        return nn.functional.normalize(self.net(x), dim=-1)


def train(dll, args, rng):
    model = PhaseNet(args.window)
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    for epoch in range(args.epochs):
        raw, phase = record(rng, 4096)
        smooth = np.empty_like(raw)
        dll.lowpass(raw, smooth, len(raw), 0.4)
        x = torch.from_numpy(smooth).unfold(0, args.window, 4)
        target = torch.from_numpy(phase)[args.window - 1::4]
        loss = 1 - (model(x) * torch.stack([target.cos(), target.sin()], 1)).sum(1).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        if epoch % 20 == 0:
            print(f"epoch {epoch:3d} loss {loss.item():.4f}", flush=True)
    return model


def stream(dll, model, args, rng):
    history = History(dll, args.capacity, args.window)
    raw, _ = record(rng, 2000)
    for start in range(0, len(raw) - args.window, args.window):
        row = raw[start:start + args.window]
        kept = history.push(row)
        with torch.no_grad():
            c, s = model(torch.from_numpy(row).unsqueeze(0))[0].tolist()
        if kept % 10 == 0:
            print(f"{kept} windows kept, phase {np.arctan2(s, c):+.2f}", flush=True)
    history.close()


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=61)
    ap.add_argument("--window", type=int, default=32)
    ap.add_argument("--capacity", type=int, default=20000)
    cfg = ap.parse_args()
    torch.manual_seed(4)
    generator = np.random.default_rng(4)
    with tempfile.TemporaryDirectory() as tmp:
        library = build_library(tmp)
        stream(library, train(library, cfg, generator), cfg, generator)
    print("finished", flush=True)
