import ctypes
import os
import subprocess
import tempfile
import numpy as np
import torch
import torch.nn as nn

SOURCE = r"""
void box_blur(const float *in, float *out, int rows, int cols) {
    for (int y = 0; y < rows; y++)
        for (int x = 0; x < cols; x++) {
            float left = in[(long)y * cols + (x ? x - 1 : 0)];
            float right = in[(long)y * cols + (x + 1 < cols ? x + 1 : x)];
            out[(long)y * cols + x] = (left + in[(long)y * cols + x] + right) / 3;
        }
}
"""


def build():
    place = tempfile.mkdtemp()
    src, lib = os.path.join(place, "blur.c"), os.path.join(place, "libblur.so")
    open(src, "w").write(SOURCE)
    subprocess.run(["gcc", "-O2", "-g", "-shared", "-fPIC", "-o", lib, src], check=True)
    return ctypes.CDLL(lib)


LIB = build()


def blur(img):
    out = np.empty(img.shape, dtype=np.float32)
    LIB.box_blur(ctypes.c_void_p(img.ctypes.data), ctypes.c_void_p(out.ctypes.data), img.shape[0], img.shape[1])
    return out


class Augment:
    def __init__(self, p, seed=0):
        self.p, self.rng = p, np.random.default_rng(seed)

    def __call__(self, img):
        if self.rng.random() < self.p:
            img = img[::-1]
        if self.rng.random() < 0.5:
            img = img * np.float32(self.rng.uniform(0.8, 1.2))
        return img


def scans(n, rows=4096, cols=3000):
    rng = np.random.default_rng(7)
    for _ in range(n):
        yield rng.random((rows, cols), dtype=np.float32)


net = nn.Sequential(nn.Conv2d(1, 2, 9, stride=8), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2, 1))
augment = Augment(0.6, seed=2)
with torch.no_grad():
    for i, img in enumerate(scans(12)):
        x = torch.from_numpy(blur(augment(img)))
        print(i, round(float(net(x[None, None])), 4), flush=True)
