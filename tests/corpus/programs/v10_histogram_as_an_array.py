import importlib.util
import subprocess
import sysconfig
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import nn

SOURCE = r"""
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#define NPY_NO_DEPRECATED_API NPY_1_7_API_VERSION
#include <numpy/arrayobject.h>

static PyObject *histogram(PyObject *self, PyObject *args)
{
    Py_buffer pixels;
    int bins;
    if (!PyArg_ParseTuple(args, "y*i", &pixels, &bins)) return NULL;
    double *counts = calloc(bins, sizeof *counts);
    const unsigned char *p = pixels.buf;
    for (Py_ssize_t i = 0; i < pixels.len; i++) counts[p[i] * bins / 256] += 1;
    PyBuffer_Release(&pixels);
    npy_intp dims[1] = {bins};
    return PyArray_SimpleNewFromData(1, dims, NPY_DOUBLE, counts);
}
static PyMethodDef methods[] = {{"histogram", histogram, METH_VARARGS, NULL}, {NULL}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "fasthist", NULL, -1, methods};
PyMODINIT_FUNC PyInit_fasthist(void) { return PyModule_Create(&module); }
"""

def build():
    folder = Path(tempfile.mkdtemp(prefix="fasthist_"))
    (folder / "fasthist.c").write_text(SOURCE)
    target = folder / ("fasthist" + sysconfig.get_config_var("EXT_SUFFIX"))
    subprocess.run(["gcc", "-O1", "-g", "-shared", "-fPIC", "-w", "-I" + sysconfig.get_paths()["include"], "-I" + np.get_include(),
                    "fasthist.c", "-o", str(target)], cwd=folder, check=True)
    spec = importlib.util.spec_from_file_location("fasthist", target)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

def features(fasthist, images):
    rows = [fasthist.histogram(image.tobytes(), 32) for image in images]
    return torch.tensor(np.stack(rows), dtype=torch.float32) / images[0].size

def main():
    fasthist = build()
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (64, 28, 28), dtype=np.uint8)
    labels = torch.from_numpy(rng.integers(0, 2, 64))
    x = features(fasthist, images)
    model = nn.Linear(32, 2)
    loss = nn.functional.cross_entropy(model(x), labels)
    loss.backward()
    print(f"loss {loss.item():.3f}")

if __name__ == "__main__":
    main()
