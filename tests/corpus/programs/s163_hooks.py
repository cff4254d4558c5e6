"""Fine-tune a small MLP, then run its exported graph on the C runtime for a parity check."""
import argparse
import importlib.util
import os
import subprocess
import sysconfig
import tempfile

import torch
from torch import nn

RUNTIME_C = r"""
#include <Python.h>
#include <stdint.h>

typedef struct { int64_t in, out; const float *w, *b; int relu; } linear_op;

static PyObject *post_op;

static void run_linear(const linear_op *op, const float *x, float *y, int64_t n) {
    for (int64_t r = 0; r < n; r++)
        for (int64_t o = 0; o < op->out; o++) {
            float s = op->b[o];
            for (int64_t i = 0; i < op->in; i++) s += op->w[o * op->in + i] * x[r * op->in + i];
            y[r * op->out + o] = (op->relu && s < 0) ? 0 : s;
        }
}

static void run_callback(PyObject *hook, int index, const float *y, int64_t numel) {
    if (!hook) return;
    PyObject *r = PyObject_CallFunction(hook, "iKL", index,
                                        (unsigned long long)(uintptr_t)y, (long long)numel);
    Py_XDECREF(r);
}

static PyObject *submit(PyObject *self, PyObject *args) {
    linear_op ops[8];
    int64_t widest = 0;
    PyObject *list; unsigned long long x, y; long long n;
    if (!PyArg_ParseTuple(args, "O!KKL", &PyList_Type, &list, &x, &y, &n)) return NULL;
    int count = (int)PyList_Size(list);
    for (int i = 0; i < count; i++) {
        long long a, b; unsigned long long w, c; int relu;
        if (!PyArg_ParseTuple(PyList_GetItem(list, i), "LLKKp", &a, &b, &w, &c, &relu)) return NULL;
        ops[i] = (linear_op){a, b, (float *)(uintptr_t)w, (float *)(uintptr_t)c, relu};
        if (b > widest) widest = b;
    }
    float *buf[2] = {malloc(n * widest * 4), malloc(n * widest * 4)};
    Py_BEGIN_ALLOW_THREADS
    const float *src = (float *)(uintptr_t)x;
    for (int i = 0; i < count; i++) {
        float *dst = i == count - 1 ? (float *)(uintptr_t)y : buf[i & 1];
        run_linear(&ops[i], src, dst, n);
        run_callback(post_op, i, dst, n * ops[i].out);
        src = dst;
    }
    Py_END_ALLOW_THREADS
    free(buf[0]); free(buf[1]);
    Py_RETURN_NONE;
}

static PyObject *set_post_op(PyObject *self, PyObject *hook) {
    Py_XDECREF(post_op);
    post_op = hook == Py_None ? NULL : Py_NewRef(hook);
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {{"submit", submit, METH_VARARGS, ""},
                                {"set_post_op", set_post_op, METH_O, ""}, {0}};
static struct PyModuleDef mod = {PyModuleDef_HEAD_INIT, "graphrt", "", -1, methods};
PyMODINIT_FUNC PyInit_graphrt(void) { return PyModule_Create(&mod); }
"""


def build_runtime():
    d = tempfile.mkdtemp(prefix="graphrt_")
    c, so = os.path.join(d, "graphrt.c"), os.path.join(d, "graphrt.so")
    with open(c, "w") as f:
        f.write(RUNTIME_C)
    subprocess.run(["gcc", "-O2", "-g", "-shared", "-fPIC", "-I" + sysconfig.get_paths()["include"],
                    c, "-o", so], check=True)
    spec = importlib.util.spec_from_file_location("graphrt", so)
    m = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(m)
    return m


def export(model):
    layers = [m for m in model if isinstance(m, nn.Linear)]
    return [(m.in_features, m.out_features, m.weight.data_ptr(), m.bias.data_ptr(),
             i < len(layers) - 1) for i, m in enumerate(layers)]


def execute(rt, graph, x):
    y = torch.empty(x.shape[0], graph[-1][1])
    rt.submit(graph, x.data_ptr(), y.data_ptr(), x.shape[0])
    return y


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=60)
    ap.add_argument("--check-every", type=int, default=20)
    args = ap.parse_args()
    torch.manual_seed(3)
    rt = build_runtime()
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 4))
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    probe = torch.randn(64, 16)
    for step in range(1, args.steps + 1):
        x = torch.randn(128, 16)
        loss = nn.functional.mse_loss(model(x), x[:, :4].sin())
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % args.check_every == 0:
            diff = (execute(rt, export(model), probe) - model(probe)).abs().max().item()
            print(f"step {step} loss {loss.item():.4f} runtime diff {diff:.2e}", flush=True)
    trace = []
    rt.set_post_op(lambda i, ptr, numel: trace.append((i, numel)))
    execute(rt, export(model), probe)
    print("ops traced:", trace)


if __name__ == "__main__":
    main()
