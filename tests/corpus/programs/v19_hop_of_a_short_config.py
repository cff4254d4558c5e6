"""Features of recordings: a C library cuts them into frames; the hop comes from a configuration."""

import ctypes
import json
import os
import subprocess
import tempfile

import torch
from torch import nn

SOURCE = r"""
static int count(int samples, int window, int hop) { return 1 + (samples - window) / hop; }
int frames(const float *wave, int samples, int window, int hop, float *out) {
    int n = count(samples, window, hop);
    for (int i = 0; i < n; i++) {
        float sum = 0;
        for (int k = 0; k < window; k++) sum += wave[i * hop + k] * wave[i * hop + k];
        out[i] = sum / window;
    }
    return n;
}
"""


def build():
    folder = tempfile.mkdtemp()
    source, library = os.path.join(folder, "framer.c"), os.path.join(folder, "libframer.so")
    with open(source, "w") as file:
        file.write(SOURCE)
    subprocess.run(["gcc", "-g", "-O1", "-shared", "-fPIC", "-o", library, source], check=True)
    return ctypes.CDLL(library)


class Features:
    def __init__(self, library, config):
        self.library = library
        self.window = int(config["rate"] * config["window_ms"] / 1000)
        self.hop = config["rate"] // 1000 * config["hop_ms"]

    def energies(self, wave):
        out = torch.zeros(100_000)
        n = self.library.frames(
            ctypes.c_void_p(wave.data_ptr()), len(wave), self.window, self.hop, ctypes.c_void_p(out.data_ptr())
        )
        return out[:n]


def run(configs):
    library, head = build(), nn.Linear(1, 1)
    for text in configs:
        features = Features(library, json.loads(text))
        print(head(features.energies(torch.rand(32_000))[:, None]).mean().item())


run([
    '{"rate": 16000, "window_ms": 25, "hop_ms": 10}',
    '{"rate": 800, "window_ms": 25, "hop_ms": 10}',
])
