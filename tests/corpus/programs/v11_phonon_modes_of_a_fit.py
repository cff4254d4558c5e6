import importlib.util
import subprocess
import sysconfig
import tempfile
from pathlib import Path

import numpy as np
import torch

SOURCE = r"""
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <math.h>

static PyObject *calculate_phonons(PyObject *self, PyObject *args)
{
    Py_buffer qpts, freqs;
    double force;
    if (!PyArg_ParseTuple(args, "y*w*d", &qpts, &freqs, &force)) return NULL;
    const double *q = qpts.buf;
    double *f = freqs.buf;
    for (Py_ssize_t i = 0; i < (Py_ssize_t)(qpts.len / sizeof(double)); i++)
        f[i] = 2 * sqrt(force) * fabs(sin(q[i] / 2));
    PyBuffer_Release(&qpts);
    PyBuffer_Release(&freqs);
    return Py_None;
}
static PyMethodDef methods[] = {{"calculate_phonons", calculate_phonons, METH_VARARGS, NULL}, {NULL}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "phonons", NULL, -1, methods};
PyMODINIT_FUNC PyInit_phonons(void) { return PyModule_Create(&module); }
"""

def build():
    folder = Path(tempfile.mkdtemp(prefix="phonons_"))
    (folder / "phonons.c").write_text(SOURCE)
    target = folder / ("phonons" + sysconfig.get_config_var("EXT_SUFFIX"))
    subprocess.run(["gcc", "-O1", "-g", "-shared", "-fPIC", "-I" + sysconfig.get_paths()["include"], "phonons.c", "-o", str(target), "-lm"],
                   cwd=folder, check=True)
    spec = importlib.util.spec_from_file_location("phonons", target)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

def main():
    phonons = build()
    qpts = np.linspace(0.1, 3.0, 8)
    measured = torch.from_numpy(2 * np.sqrt(1.7) * np.abs(np.sin(qpts / 2)))
    freqs = np.empty_like(qpts)
    force, width, best = 1.0, 0.05, float("inf")
    generator = torch.Generator().manual_seed(0)
    for step in range(2_000_000):
        trial = force + width * torch.randn((), generator=generator).item() if step % 50 == 0 else force + width / (1 + step % 50)
        phonons.calculate_phonons(qpts, freqs, max(trial, 1e-3))
        if step % 50 == 0:
            error = (torch.from_numpy(freqs) - measured).square().mean().item()
            if error < best:
                best, force = error, trial
        if step % 50_000 == 0:
            print(f"step {step} force {force:.4f} error {best:.2e}", flush=True)

if __name__ == "__main__":
    main()
