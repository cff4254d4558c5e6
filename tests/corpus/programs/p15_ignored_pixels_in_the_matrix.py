import ctypes
import os
import subprocess
import tempfile
import numpy as np
import torch
import torch.nn as nn

CLASSES = 19
SOURCE = r"""
#include <stdint.h>
void count_pairs(const int64_t *truth, const int64_t *guess, int64_t n, int64_t classes, int64_t *matrix) {
    for (int64_t i = 0; i < n; i++)
        matrix[truth[i] * classes + guess[i]] += 1;
}
"""


def build():
    folder = tempfile.mkdtemp()
    src, lib = os.path.join(folder, "pairs.c"), os.path.join(folder, "libpairs.so")
    open(src, "w").write(SOURCE)
    subprocess.run(["gcc", "-O2", "-g", "-shared", "-fPIC", "-o", lib, src], check=True)
    return ctypes.CDLL(lib)


LIB = build()


class Confusion:
    def __init__(self):
        self.matrix = np.zeros((CLASSES, CLASSES), dtype=np.int64)

    def add(self, truth, guess):
        t, g = truth.contiguous(), guess.contiguous()
        LIB.count_pairs(ctypes.c_void_p(t.data_ptr()), ctypes.c_void_p(g.data_ptr()), ctypes.c_int64(t.numel()), ctypes.c_int64(CLASSES), ctypes.c_void_p(self.matrix.ctypes.data))

    def mean_iou(self):
        hit = np.diag(self.matrix)
        union = self.matrix.sum(0) + self.matrix.sum(1) - hit
        return float(np.mean(hit / np.maximum(union, 1)))


def street_scene(size=96):
    picture = torch.rand(1, 3, size, size)
    label = (picture.mean(1) * CLASSES).long().clamp(0, CLASSES - 1)
    label[:, -8:] = -1
    return picture, label


torch.manual_seed(0)
model = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, CLASSES, 1))
opt = torch.optim.Adam(model.parameters(), lr=1e-2)
for epoch in range(12):
    score = Confusion()
    for _ in range(6):
        x, y = street_scene()
        out = model(x)
        loss = nn.functional.cross_entropy(out, y, ignore_index=-1)
        opt.zero_grad()
        loss.backward()
        opt.step()
        score.add(y, out.argmax(1))
    print("epoch", epoch, "iou", round(score.mean_iou(), 4), flush=True)
