"""Learn per-channel gains for calcium traces in front of a fixed exponential decay filter (C kernel)."""
import argparse
import ctypes
import os
import subprocess
import tempfile
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

KERNEL_SOURCE = r"""
#include <stdint.h>

void decay_forward(const float *x, float *y, int64_t rows, int64_t steps, float a) {
    for (int64_t r = 0; r < rows; r++) {
        const float *xr = x + r * steps;
        float *yr = y + r * steps;
        float state = 0.0f;
        for (int64_t t = 0; t < steps; t++) {
            state = a * state + xr[t];
            yr[t] = state;
        }
    }
}

void decay_backward(const float *gy, float *gx, int64_t rows, int64_t steps, float a) {
    for (int64_t r = 0; r < rows; r++) {
        const float *gyr = gy + r * steps;
        float *gxr = gx + r * steps;
        float state = 0.0f;
        for (int64_t t = steps - 1; t >= 0; t--) {
            state = a * state + gyr[t];
            gxr[t] = state;
        }
    }
}
"""


def build_kernels():
    folder = tempfile.mkdtemp(prefix="decay_")
    source = os.path.join(folder, "decay.c")
    library = os.path.join(folder, "libdecay.so")
    with open(source, "w") as handle:
        handle.write(KERNEL_SOURCE)
    subprocess.run(["gcc", "-O2", "-g", "-shared", "-fPIC", source, "-o", library], check=True)
    lib = ctypes.CDLL(library)
    for name in ("decay_forward", "decay_backward"):
        fn = getattr(lib, name)
        fn.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_float]
        fn.restype = None
    return lib


LIB = build_kernels()


class DecayFilter(torch.autograd.Function):
    @staticmethod
    def forward(ctx, traces, decay):
        traces = traces.contiguous()
        out = torch.empty_like(traces)
        steps = traces.shape[-1]
        LIB.decay_forward(traces.data_ptr(), out.data_ptr(), traces.numel() // steps, steps, decay)
        ctx.decay = decay
        return out

    @staticmethod
    def backward(ctx, grad_out):
        grad_in = torch.empty(grad_out.shape, dtype=grad_out.dtype)
        steps = grad_out.shape[-1]
        LIB.decay_backward(grad_out.data_ptr(), grad_in.data_ptr(), grad_out.numel() // steps, steps, ctx.decay)
        return grad_in, None


class SpikeToCalcium(nn.Module):
    def __init__(self, channels, decay=0.95):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(channels, 1))
        self.decay = decay

    def forward(self, spikes):
        return DecayFilter.apply(spikes * self.gain, self.decay)


def fit(model, channels, steps, epochs):
    true_gain = torch.linspace(0.5, 2.0, channels).unsqueeze(1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    for epoch in range(epochs):
        spikes = torch.bernoulli(torch.full((8, channels, steps), 0.05))
        with torch.no_grad():
            target = DecayFilter.apply(spikes * true_gain, model.decay)
        loss = F.mse_loss(model(spikes), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if epoch % 10 == 0:
            print(f"epoch {epoch:3d} loss {loss.item():.4f}", flush=True)


def sensitivity(model, recording):
    recording = recording.clone().requires_grad_(True)
    response = model(recording)
    total = response.sum()
    total.backward()
    return recording.grad.mean(dim=(0, 2))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--channels", type=int, default=64)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--recording-steps", type=int, default=30000)
    args = parser.parse_args()
    torch.manual_seed(0)

    model = SpikeToCalcium(args.channels)
    fit(model, args.channels, args.steps, args.epochs)

    recording = torch.bernoulli(torch.full((16, args.channels, args.recording_steps), 0.02))
    started = time.time()
    scores = sensitivity(model, recording)
    print("most sensitive channels", scores.topk(5).indices.tolist(), f"{time.time() - started:.1f}s")


if __name__ == "__main__":
    main()
