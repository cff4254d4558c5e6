"""L2 regression with a native coordinate-descent solver; progress is reported through a callback."""
import ctypes
import os
import subprocess
import tempfile

import torch

SOURCE = r"""
typedef void (*report_fn)(int, double);
static report_fn report = 0;
void solver_on_progress(report_fn f) { report = f; }
double solver_fit(const float *x, const float *y, float *w, long n, long d, int sweeps) {
    double loss = 0;
    for (int s = 0; s < sweeps; ++s) {
        loss = 0;
        for (long i = 0; i < n; ++i) {
            double e = -y[i];
            for (long j = 0; j < d; ++j) e += x[i * d + j] * w[j];
            for (long j = 0; j < d; ++j) w[j] -= 0.01 * e * x[i * d + j];
            loss += e * e;
        }
        if (report && s % 10 == 0) report(s, loss / n);
    }
    return loss / n;
}
"""
REPORT = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_double)


def load_library():
    folder = tempfile.mkdtemp()
    c, so = os.path.join(folder, "solver.c"), os.path.join(folder, "solver.so")
    open(c, "w").write(SOURCE)
    subprocess.check_call(["gcc", "-O2", "-shared", "-fPIC", "-o", so, c])
    lib = ctypes.CDLL(so)
    lib.solver_on_progress.argtypes = [REPORT]
    lib.solver_fit.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_long, ctypes.c_long, ctypes.c_int]
    lib.solver_fit.restype = ctypes.c_double
    return lib


class History:
    def __init__(self):
        self.rows = []

    def attach(self, lib, name):
        def on_progress(sweep, loss):
            self.rows.append((name, sweep, loss))
        lib.solver_on_progress(REPORT(on_progress))


class NativeRidge:
    def __init__(self, lib, features):
        self.lib = lib
        self.weight = torch.zeros(features)

    def fit(self, x, y, sweeps=50):
        x, y = x.contiguous(), y.contiguous()
        return self.lib.solver_fit(x.data_ptr(), y.data_ptr(), self.weight.data_ptr(), *x.shape, sweeps)


def main():
    torch.manual_seed(0)
    lib, history = load_library(), History()
    true = torch.randn(16)
    for fold in range(5):
        x = torch.randn(500, 16)
        y = x @ true + 0.1 * torch.randn(500)
        history.attach(lib, f"fold{fold}")
        loss = NativeRidge(lib, 16).fit(x, y)
        print(f"fold {fold}: loss {loss:.4f}, {len(history.rows)} progress rows", flush=True)


if __name__ == "__main__":
    main()
