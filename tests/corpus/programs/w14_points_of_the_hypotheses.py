import ctypes
import os
import subprocess
import tempfile

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

SOURCE = r"""
#include <cassert>
#include <cstddef>

template <int Value> struct FixedVector {
    const double *data;
    FixedVector(const double *values, long v) : data(values) { assert(v == long(Value)); }
    double operator[](int i) const { return data[i]; }
};

extern "C" void project(const double *points, long n, long columns, const double *K, double *uv)
{
    for (long i = 0; i < n; i++) {
        FixedVector<3> p(points + i * columns, columns);
        uv[2 * i] = K[0] * p[0] / p[2] + K[2];
        uv[2 * i + 1] = K[4] * p[1] / p[2] + K[5];
    }
}
"""


def build(folder):
    source = os.path.join(folder, "projection.cpp")
    with open(source, "w") as file:
        file.write(SOURCE)
    target = os.path.join(folder, "projection.so")
    subprocess.check_call(["g++", "-O2", "-g", "-fPIC", "-shared", source, "-o", target])
    lib = ctypes.CDLL(target)
    lib.project.argtypes = [ctypes.c_void_p, ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    return lib


class Hypotheses(Dataset):
    def __init__(self, lib, models, size):
        self.lib, self.models, self.size = lib, models, size
        self.K = np.array([[572.0, 0, 325], [0, 573, 242], [0, 0, 1]])

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        rng = np.random.default_rng(index)
        points = self.models[index % len(self.models)]
        points = points + 0.01 * rng.standard_normal(points.shape)
        uv = np.empty((len(points), 2))
        self.lib.project(points.ctypes.data, len(points), points.shape[1], self.K.ctypes.data, uv.ctypes.data)
        return torch.from_numpy(uv).float().flatten() / 640, torch.tensor(rng.random(), dtype=torch.float32)


def load_models(count):
    rng = np.random.default_rng(7)
    models = [rng.random((128, 3)) + [0, 0, 1] for _ in range(count)]
    models[5] = np.concatenate([models[5], np.ones((128, 1))], 1)
    return models


def test(lib):
    loader = DataLoader(Hypotheses(lib, load_models(21), 84), batch_size=4, num_workers=2)
    network = torch.nn.Sequential(torch.nn.Linear(256, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
    for batch, (uv, score) in enumerate(loader):
        error = torch.nn.functional.mse_loss(network(uv).squeeze(1), score)
        print(f"batch {batch}: error {error.item():.4f}", flush=True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        test(build(folder))
