"""Train a small grader for retina images and report the weighted kappa of each epoch."""
import ctypes
import os
import subprocess

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

WORK = "/tmp/m71_grades_build"
GRADES = ["none", "mild", "moderate", "severe", "proliferative"]

SOURCE = r"""
#include <stdint.h>
#include <stdlib.h>

typedef struct { int64_t n; double *cells; double *rows; double *cols; } table_t;

table_t *table_new(int64_t n) {
    table_t *t = malloc(sizeof(table_t));
    t->n = n;
    t->cells = calloc(n * n, sizeof(double));
    t->rows = calloc(n, sizeof(double));
    t->cols = calloc(n, sizeof(double));
    return t;
}

void table_add(table_t *t, const int64_t *truth, const int64_t *pred, int64_t len) {
    for (int64_t i = 0; i < len; i++) {
        t->cells[pred[i] * t->n + truth[i]] += 1.0;
        t->rows[truth[i]] += 1.0;
        t->cols[pred[i]] += 1.0;
    }
}

double table_kappa(const table_t *t) {
    double total = 0, seen = 0, chance = 0;
    for (int64_t i = 0; i < t->n; i++) total += t->rows[i];
    for (int64_t i = 0; i < t->n; i++)
        for (int64_t j = 0; j < t->n; j++) {
            double w = (double)((i - j) * (i - j)) / ((t->n - 1) * (t->n - 1));
            seen += w * t->cells[i * t->n + j];
            chance += w * t->rows[i] * t->cols[j] / total;
        }
    return 1.0 - seen / chance;
}

void table_free(table_t *t) { free(t->cells); free(t->rows); free(t->cols); free(t); }
"""


def build():
    os.makedirs(WORK, exist_ok=True)
    src, out = os.path.join(WORK, "table.c"), os.path.join(WORK, "libtable.so")
    with open(src, "w") as f:
        f.write(SOURCE)
    subprocess.run(["gcc", "-O1", "-g", "-shared", "-fPIC", "-o", out, src], check=True)
    lib = ctypes.CDLL(out)
    lib.table_new.restype = ctypes.c_void_p
    lib.table_new.argtypes = [ctypes.c_int64]
    lib.table_add.restype = None
    lib.table_add.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64]
    lib.table_kappa.restype = ctypes.c_double
    lib.table_kappa.argtypes = [ctypes.c_void_p]
    lib.table_free.restype = None
    lib.table_free.argtypes = [ctypes.c_void_p]
    return lib


class KappaTable:
    def __init__(self, lib, num_classes):
        self.lib = lib
        self.handle = lib.table_new(num_classes)

    def add(self, truth, pred):
        truth = np.ascontiguousarray(truth.numpy(), dtype=np.int64)
        pred = np.ascontiguousarray(pred.numpy(), dtype=np.int64)
        self.lib.table_add(self.handle, truth.ctypes.data, pred.ctypes.data, len(truth))

    def value(self):
        return self.lib.table_kappa(self.handle)

    def close(self):
        self.lib.table_free(self.handle)


class Grader(nn.Module):
    def __init__(self, num_classes):
        super().__init__()
        self.conv = nn.Conv2d(3, 16, 3, stride=2)
        self.norm = nn.BatchNorm2d(16)
        self.head = nn.Linear(16, num_classes)

    def forward(self, x):
        return self.head(F.relu(self.norm(self.conv(x))).mean(dim=(2, 3)))


def read_images(grades, g):
    return torch.randn(len(grades), 3, 32, 32, generator=g) + torch.nan_to_num(grades).view(-1, 1, 1, 1) * 0.3


def make_split(count, seed, coverage=1.0):
    g = torch.Generator().manual_seed(seed)
    sheet = torch.randint(0, len(GRADES), (count,), generator=g).float()
    x = read_images(sheet, g)
    sheet[torch.rand(count, generator=g) > coverage] = float("nan")
    return TensorDataset(x, sheet.to(torch.int32))


def train_epoch(model, loader, opt):
    model.train()
    total = 0.0
    for x, y in loader:
        loss = F.cross_entropy(model(x), y.long())
        opt.zero_grad()
        loss.backward()
        opt.step()
        total += loss.item() / len(loader)
    return total


@torch.no_grad()
def kappa(model, loader, lib):
    model.eval()
    table = KappaTable(lib, len(GRADES))
    for x, y in loader:
        table.add(y, model(x).argmax(1))
    value = table.value()
    table.close()
    return value


def main():
    torch.manual_seed(0)
    lib = build()
    train = DataLoader(make_split(640, 1), batch_size=64)
    first = DataLoader(make_split(256, 2), batch_size=64)
    second = DataLoader(make_split(256, 3, coverage=0.7), batch_size=64)
    model = Grader(len(GRADES))
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)
    for epoch in range(3):
        loss = train_epoch(model, train, opt)
        print(f"epoch {epoch}: loss {loss:.3f} kappa {kappa(model, first, lib):.3f}", flush=True)
    print(f"second reader: kappa {kappa(model, second, lib):.3f}", flush=True)


if __name__ == "__main__":
    main()
