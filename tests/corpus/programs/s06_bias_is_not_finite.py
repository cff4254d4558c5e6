"""A solver in C asserts that its bias is finite; the targets have one infinite value."""

import ctypes
import subprocess
import tempfile
from pathlib import Path

import numpy as np

SOURCE = """
#include <assert.h>
#include <math.h>
double fit(const double *targets, long count, long iterations) {
    double bias = 0;
    for (long step = 0; step < iterations; step++) {
        double error = 0;
        for (long i = 0; i < count; i++) error += bias - targets[i];
        bias -= 0.5 * error / count;
        assert(isfinite(bias) && "bias not finite");
    }
    return bias;
}
"""


def build(folder):
    source, library = Path(folder, "solver.c"), Path(folder, "libsolver.so")
    source.write_text(SOURCE)
    subprocess.run(["gcc", "-O1", "-g", "-shared", "-fPIC", str(source), "-o", str(library)], check=True)
    return ctypes.CDLL(str(library))


def fit(solver, targets):
    solver.fit.restype = ctypes.c_double
    return solver.fit(targets.ctypes.data_as(ctypes.c_void_p), ctypes.c_long(len(targets)), ctypes.c_long(20))


with tempfile.TemporaryDirectory() as folder:
    solver = build(folder)
    prices = np.linspace(1, 100, 1000)
    print(fit(solver, prices))
    print(fit(solver, np.log(prices - 1)))
