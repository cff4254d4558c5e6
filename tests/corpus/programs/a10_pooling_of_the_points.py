import ctypes
import os
import shutil
import subprocess
import tempfile

import torch
import torch.nn as nn

SOURCE = r"""
void scale_forward(const float *x, const float *w, float *out, long n) {
    for (long i = 0; i < n; i++) out[i] = x[i] * w[0];
}
void scale_backward(const float *grad_out, const float *x, const float *w, float *grad_x, float *grad_w, long n) {
    double total = 0.0;
    for (long i = 0; i < n; i++) { grad_x[i] = grad_out[i] * w[0]; total += grad_out[i] * x[i]; }
    grad_w[0] = (float) total;
}
"""
lib = None


def build(folder):
    global lib
    source, target = os.path.join(folder, "scale.c"), os.path.join(folder, "libscale.so")
    with open(source, "w") as f:
        f.write(SOURCE)
    subprocess.check_call(["gcc", "-O2", "-g", "-shared", "-fPIC", source, "-o", target])
    lib = ctypes.CDLL(target)


def ptr(t):
    return ctypes.c_void_p(t.data_ptr())


class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        out = torch.empty_like(x)
        lib.scale_forward(ptr(x), ptr(w), ptr(out), ctypes.c_long(x.numel()))
        ctx.save_for_backward(x, w)
        return out

    @staticmethod
    def backward(ctx, grad_out):
        x, w = ctx.saved_tensors
        grad_x, grad_w = torch.empty_like(x), torch.empty_like(w)
        lib.scale_backward(ptr(grad_out), ptr(x), ptr(w), ptr(grad_x), ptr(grad_w), ctypes.c_long(x.numel()))
        return grad_x, grad_w


def train(steps=5, n_points=40_000_000):
    torch.manual_seed(0)
    weight = nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([weight], lr=1e-3)
    for step in range(steps):
        points = torch.randn(n_points // 4, 4)
        loss = Scale.apply(points, weight).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step}: loss {loss.item():.4f} weight {weight.item():.4f}", flush=True)


if __name__ == "__main__":
    folder = tempfile.mkdtemp()
    try:
        build(folder)
        train()
    finally:
        shutil.rmtree(folder)
