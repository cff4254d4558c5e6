"""Fit a linear predictor on long recordings read through a C decoder."""
import ctypes
import os
import subprocess
import tempfile
import numpy as np
import torch
import torch.nn as nn

DECODER = r"""
#include <math.h>
#include <stdlib.h>
typedef struct { float *pcm; long n; } reader;
reader *reader_open(int seconds, int rate) {
    reader *r = malloc(sizeof(reader));
    r->n = (long)seconds * rate;
    r->pcm = malloc(r->n * sizeof(float));
    for (long i = 0; i < r->n; i++) r->pcm[i] = sinf(0.01f * (i % 8000));
    return r;
}
float *reader_samples(reader *r) { return r->pcm; }
long reader_length(reader *r) { return r->n; }
void reader_close(reader *r) { free(r->pcm); free(r); }
"""


def load_decoder():
    folder = tempfile.mkdtemp(prefix="dec_")
    src, so = os.path.join(folder, "dec.c"), os.path.join(folder, "libdec.so")
    with open(src, "w") as f:
        f.write(DECODER)
    subprocess.check_call(["gcc", "-O2", "-shared", "-fPIC", src, "-o", so, "-lm"])
    lib = ctypes.CDLL(so)
    lib.reader_open.restype = ctypes.c_void_p
    lib.reader_samples.restype = ctypes.POINTER(ctypes.c_float)
    lib.reader_samples.argtypes = lib.reader_length.argtypes = lib.reader_close.argtypes = [ctypes.c_void_p]
    lib.reader_length.restype = ctypes.c_long
    return lib


class AudioFile:
    def __init__(self, lib, seconds, rate=16_000):
        self.lib, self.handle = lib, lib.reader_open(seconds, rate)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.lib.reader_close(self.handle)

    def waveform(self):
        n = self.lib.reader_length(self.handle)
        pcm = np.ctypeslib.as_array(self.lib.reader_samples(self.handle), shape=(n,))
        return torch.from_numpy(pcm)


class LinearPredictor(nn.Module):
    def __init__(self, order=400):
        super().__init__()
        self.coef = nn.Parameter(torch.randn(order) / order)

    def forward(self, wave):
        frames = wave.view(-1, self.coef.numel())
        return frames @ self.coef


def main():
    lib = load_decoder()
    model = LinearPredictor()
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for step, seconds in enumerate((600, 900, 900)):
        with AudioFile(lib, seconds) as audio:
            loss = (model(audio.waveform()) - 0.25).square().mean()
        print(f"step {step}: {seconds} s, loss {loss.item():.4f}", flush=True)
        opt.zero_grad()
        loss.backward()
        opt.step()


if __name__ == "__main__":
    main()
