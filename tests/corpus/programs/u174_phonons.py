"""Fits a force-constant model to a measured phonon spectrum.

The dynamical matrix is summed up and scaled in C, the rest is torch.
"""
import argparse
import importlib.util
import os
import subprocess
import sys
import sysconfig
import tempfile

import numpy as np
import torch

SOURCE = r"""
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <math.h>

/* calculate_phonons(force_constants, distances, q, out): all buffers of double */
static PyObject *calculate_phonons(PyObject *self, PyObject *args)
{
    Py_buffer fc, dist, out;
    double q;
    if (!PyArg_ParseTuple(args, "y*y*dw*", &fc, &dist, &q, &out))
        return NULL;
    const double *k = fc.buf, *r = dist.buf;
    double *d = out.buf;
    Py_ssize_t n = fc.len / (Py_ssize_t)sizeof(double);
    if (out.len < 2 * (Py_ssize_t)sizeof(double)) {
        PyBuffer_Release(&fc); PyBuffer_Release(&dist); PyBuffer_Release(&out);
        PyErr_SetString(PyExc_ValueError, "output must hold frequency and group velocity");
        return NULL;
    }
    double w2 = 0.0, dw2 = 0.0;
    for (Py_ssize_t i = 0; i < n; i++) {
        w2 += 2.0 * k[i] * (1.0 - cos(q * r[i]));
        dw2 += 2.0 * k[i] * r[i] * sin(q * r[i]);
    }
    d[0] = sqrt(fabs(w2));
    d[1] = d[0] > 1e-12 ? dw2 / (2.0 * d[0]) : 0.0;
    PyBuffer_Release(&fc);
    PyBuffer_Release(&dist);
    PyBuffer_Release(&out);
    return Py_None;
}

static PyMethodDef methods[] = {
    {"calculate_phonons", calculate_phonons, METH_VARARGS, "frequency at one q-point"},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_phonons", NULL, -1, methods};

PyMODINIT_FUNC PyInit__phonons(void) { return PyModule_Create(&module); }
"""


def build_extension():
    folder = tempfile.mkdtemp(prefix="phonons_")
    source, target = os.path.join(folder, "_phonons.c"), os.path.join(folder, "_phonons.so")
    with open(source, "w") as f:
        f.write(SOURCE)
    subprocess.run(["gcc", "-O2", "-g", "-shared", "-fPIC", "-I", sysconfig.get_paths()["include"],
                    source, "-o", target, "-lm"], check=True)
    spec = importlib.util.spec_from_file_location("_phonons", target)
    ext = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(ext)
    return ext


class ForceConstants:
    def __init__(self, ext, shells=6):
        self.ext = ext
        self.values = np.array([1.0 / (i + 1) ** 2 for i in range(shells)])
        self.distances = np.arange(1, shells + 1, dtype=np.float64)

    def calculate_qpoint_phonon_modes(self, qpts):
        modes = np.empty((len(qpts), 2))
        for i, q in enumerate(qpts):
            self.ext.calculate_phonons(self.values, self.distances, float(q), modes[i])
        return modes


def spectrum(params, modes):
    width = torch.nn.functional.softplus(params[1])
    return params[0] * torch.from_numpy(modes[:, 0]) + width * torch.from_numpy(modes[:, 1]).abs()


def fit(fc, qpts, measured, args):
    params = torch.tensor([0.5, 0.1], dtype=torch.float64, requires_grad=True)
    opt = torch.optim.Adam([params], lr=args.lr)
    for it in range(args.iterations):
        with torch.no_grad():
            fc.values[0] = 1.0 + 0.1 * np.tanh(params[0].item() - 1.0)
        modes = fc.calculate_qpoint_phonon_modes(qpts)
        opt.zero_grad()
        loss = torch.mean((spectrum(params, modes) - measured) ** 2)
        loss.backward()
        opt.step()
        if it % args.log_every == 0:
            print(f"iteration {it} residual {loss.item():.6f}", flush=True)
    return params.detach()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--iterations", type=int, default=400)
    ap.add_argument("--qpoints", type=int, default=400)
    ap.add_argument("--lr", type=float, default=0.02)
    ap.add_argument("--log-every", type=int, default=10)
    args = ap.parse_args()
    torch.manual_seed(0)
    fc = ForceConstants(build_extension())
    qpts = np.linspace(0.01, np.pi, args.qpoints)
    reference = fc.calculate_qpoint_phonon_modes(qpts)
    measured = torch.from_numpy(reference[:, 0] * 1.1 + 0.3 * np.abs(reference[:, 1]))
    params = fit(fc, qpts, measured, args)
    print(f"scale {params[0].item():.4f} width {params[1].item():.4f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
