import ctypes
import os
import subprocess
import tempfile

import numpy as np
import torch

TOOLS = r"""
#include <string.h>

/* position in `longer` of each element of `shorter` (both sorted) */
int map_to(long n_longer, const double *longer, long n_shorter, const double *shorter, int *indices)
{
    double a[n_longer], b[n_shorter];
    int a_ind[n_longer], b_ind[n_shorter];
    long i, j = 0;

    memcpy(a, longer, n_longer * sizeof(double));
    memcpy(b, shorter, n_shorter * sizeof(double));
    for (i = 0; i < n_longer; i++) a_ind[i] = i;
    for (i = 0; i < n_shorter; i++) b_ind[i] = i;
    for (i = 0; i < n_shorter; i++) {
        while (j < n_longer && a[j] < b[i]) j++;
        if (j == n_longer || a[j] != b[i]) return -1;
        indices[b_ind[i]] = a_ind[j];
    }
    return 0;
}
"""


def build_tools(folder):
    source = os.path.join(folder, "tools.c")
    with open(source, "w") as file:
        file.write(TOOLS)
    target = os.path.join(folder, "tools.so")
    subprocess.check_call(["gcc", "-O2", "-g", "-fPIC", "-shared", source, "-o", target])
    lib = ctypes.CDLL(target)
    array = np.ctypeslib.ndpointer(np.float64, flags="C")
    lib.map_to.argtypes = [ctypes.c_long, array, ctypes.c_long, array, np.ctypeslib.ndpointer(np.int32, flags="C")]
    return lib


class Axis:
    def __init__(self, values, tools):
        self.values = np.ascontiguousarray(values, dtype=np.float64)
        self.tools = tools

    def map_to(self, other):
        indices = np.empty(len(other.values), np.int32)
        code = self.tools.map_to(len(self.values), self.values, len(other.values), other.values, indices)
        if code < 0:
            raise KeyError("value is not on the axis")
        return torch.from_numpy(indices).long()


def train(tools, n_observations):
    axis = Axis(np.arange(n_observations), tools)
    data = torch.randn(n_observations, 4)
    model = torch.nn.Linear(4, 1)
    for step in range(3):
        batch = Axis(np.sort(np.random.default_rng(step).choice(n_observations, 64, replace=False)), tools)
        loss = model(data[axis.map_to(batch)]).square().mean()
        loss.backward()
    print(f"{n_observations} observations: loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        tools = build_tools(folder)
        train(tools, 20_000)
        train(tools, 1_000_000)
