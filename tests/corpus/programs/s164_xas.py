"""Classify absorption spectra: pretrain on simulated edges, then fine-tune on measured files."""
import argparse
import ctypes
import os
import subprocess
import tempfile

import numpy as np
import torch
from torch import nn

LIB_C = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
typedef struct {
    long nmetadata, narrays, npts;
    double dspacing;
    char *filename, *element, *edge, *error_message;
    char **array_labels;
    double **array;
} XDIFile;

XDIFile *XDI_readfile(const char *filename) {
    char line[512];
    XDIFile *xdi = calloc(1, sizeof *xdi);
    FILE *f = fopen(filename, "r");
    xdi->filename = strdup(filename);
    xdi->error_message = strdup(f ? "no errors in file" : "file not found");
    if (!f) return xdi;
    xdi->array_labels = calloc(16, sizeof(char *));
    xdi->array = calloc(16, sizeof(double *));
    for (int i = 0; i < 16; i++) xdi->array[i] = calloc(4096, sizeof(double));
    while (fgets(line, sizeof line, f)) {
        char key[64], val[128];
        if (line[0] == '#') {
            if (sscanf(line, "# %63[^:]: %127s", key, val) != 2) continue;
            xdi->nmetadata++;
            if (!strcmp(key, "Element.symbol")) xdi->element = strdup(val);
            else if (!strcmp(key, "Element.edge")) xdi->edge = strdup(val);
            else if (!strcmp(key, "Mono.d_spacing")) xdi->dspacing = atof(val);
            else if (!strncmp(key, "Column.", 7)) xdi->array_labels[xdi->narrays++] = strdup(val);
            continue;
        }
        char *p = line;
        for (long k = 0; k < xdi->narrays; k++) xdi->array[k][xdi->npts] = strtod(p, &p);
        xdi->npts++;
    }
    fclose(f);
    return xdi;
}
"""


class XDIFileStruct(ctypes.Structure):
    _fields_ = [("nmetadata", ctypes.c_long), ("narrays", ctypes.c_long), ("npts", ctypes.c_long),
                ("dspacing", ctypes.c_double), ("filename", ctypes.c_char_p),
                ("element", ctypes.c_char_p), ("edge", ctypes.c_char_p),
                ("array_labels", ctypes.POINTER(ctypes.c_char_p)),
                ("array", ctypes.POINTER(ctypes.POINTER(ctypes.c_double)))]


class XDIReader:
    def __init__(self, folder):
        so = os.path.join(folder, "libxdifile.so")
        subprocess.run(["gcc", "-O1", "-g", "-shared", "-fPIC", "-xc", "-", "-o", so],
                       input=LIB_C.encode(), check=True)
        self.lib = ctypes.CDLL(so)
        self.lib.XDI_readfile.argtypes = [ctypes.c_char_p]
        self.lib.XDI_readfile.restype = ctypes.POINTER(XDIFileStruct)

    def read(self, path):
        xdi = self.lib.XDI_readfile(path.encode()).contents
        print(f"{os.path.basename(path)}: {xdi.element.decode()} {xdi.edge.decode()}-edge, "
              f"{xdi.narrays} columns, {xdi.npts} points", flush=True)
        labels = [xdi.array_labels[i].decode() for i in range(xdi.narrays)]
        columns = [np.array(xdi.array[i][:xdi.npts]) for i in range(xdi.narrays)]
        return dict(zip(labels, columns))


def simulate(kind, rng, n=200):
    e = np.linspace(7050, 7250, n)
    mu = np.arctan((e - 7112 - 3 * kind) / (1.5 + kind)) / np.pi + 0.5
    return e, mu + 0.1 * kind * np.exp(-((e - 7125) / 6) ** 2) + 0.01 * rng.standard_normal(n)


def write_scan(path, kind, rng):
    e, mu = simulate(kind, rng)
    with open(path, "w") as f:
        f.write("# Element.symbol: Fe\n# Element.edge: K\n# Mono.d_spacing: 3.13555\n"
                "# Column.1: energy\n# Column.2: mutrans\n# ----\n")
        for row in zip(e, mu):
            f.write("%.3f %.6f\n" % row)


def fit(model, opt, x, y, steps, tag):
    for step in range(steps):
        loss = nn.functional.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"{tag}: loss {loss.item():.4f}", flush=True)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--scans", type=int, default=6)
    args = ap.parse_args()
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    model = nn.Sequential(nn.Linear(200, 32), nn.ReLU(), nn.Linear(32, 3))
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    y = torch.arange(96) % 3
    x = torch.tensor(np.stack([simulate(int(k), rng)[1] for k in y]), dtype=torch.float32)
    fit(model, opt, x, y, 80, "simulated edges")

    folder = tempfile.mkdtemp(prefix="xas_")
    reader = XDIReader(folder)
    measured = []
    for k in range(args.scans):
        path = os.path.join(folder, f"fe_scan_{k:03d}.xdi")
        write_scan(path, k % 3, rng)
        measured.append(reader.read(path)["mutrans"])
    x = torch.tensor(np.stack(measured), dtype=torch.float32)
    fit(model, opt, x, torch.arange(args.scans) % 3, 40, "measured scans")
    print("done")


if __name__ == "__main__":
    main()
