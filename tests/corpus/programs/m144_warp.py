"""Gamma-curve calibration of camera frames with a fused native operator (CPU)."""
import argparse
import ctypes
import os
import subprocess

import torch
import torch.nn as nn

SOURCE = r"""
#include <math.h>
#include <stdint.h>

void tone_forward(const float *x, const float *gain, float *y, int64_t frames, int64_t channels,
                  int64_t plane, float gamma) {
  for (int64_t i = 0; i < frames * channels * plane; ++i)
    y[i] = gain[(i / plane) % channels] * powf(x[i], gamma);
}

void tone_backward(const float *dy, const float *x, float *dgain, int64_t frames, int64_t channels,
                   int64_t plane, float gamma) {
  for (int64_t n = 0; n < frames; ++n)
    for (int64_t c = 0; c < channels; ++c) {
      const int64_t base = (n * channels + c) * plane;
      double acc = 0.0;
      for (int64_t i = 0; i < plane; ++i)
        acc += dy[base + i] * powf(x[base + i], gamma);
      dgain[c] += (float)acc;
    }
}
"""


def build():
    folder = os.path.abspath("tonecurve_build")
    os.makedirs(folder, exist_ok=True)
    src, lib = os.path.join(folder, "tonecurve.c"), os.path.join(folder, "libtonecurve.so")
    with open(src, "w") as f:
        f.write(SOURCE)
    subprocess.check_call(["gcc", "-O1", "-g", "-shared", "-fPIC", src, "-o", lib, "-lm"])
    dll = ctypes.CDLL(lib)
    for fn in (dll.tone_forward, dll.tone_backward):
        fn.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_int64] * 3 + [ctypes.c_float]
        fn.restype = None
    return dll


LIB = build()


class ToneCurveFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, frames, gain, gamma):
        ctx.save_for_backward(frames, gain)
        ctx.gamma = gamma
        frames = frames.contiguous()
        n, c, h, w = frames.shape
        out = torch.empty_like(frames)
        LIB.tone_forward(frames.data_ptr(), gain.data_ptr(), out.data_ptr(), n, c, h * w, gamma)
        return out

    @staticmethod
    def backward(ctx, grad_output):
        frames, gain = ctx.saved_tensors
        frames = frames.contiguous()
        n, c, h, w = frames.shape
        grad_gain = torch.zeros_like(gain)
        LIB.tone_backward(grad_output.data_ptr(), frames.data_ptr(), grad_gain.data_ptr(), n, c, h * w, ctx.gamma)
        return None, grad_gain, None


class ToneCurve(nn.Module):
    def __init__(self, channels, gamma):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(channels))
        self.gamma = gamma

    def forward(self, frames):
        return ToneCurveFunction.apply(frames, self.gain, self.gamma)


def fit(model, frames, target, steps, lr):
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    for step in range(steps):
        optimizer.zero_grad()
        loss = (model(frames) - target).pow(2).mean()
        loss.backward()
        optimizer.step()
        if step % 2 == 0:
            print(f"fit step {step}: loss {loss.item():.5f} gain {model.gain.detach().tolist()}", flush=True)


def match_exposure(model, frames, level, lr):
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    for step in range(3):
        optimizer.zero_grad()
        brightness = model(frames).sum() / frames.numel()
        (brightness - level).backward()
        optimizer.step()
        print(f"exposure step {step}: brightness {brightness.item():.4f} (aim {level})", flush=True)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--frames", type=int, default=100)
    p.add_argument("--size", type=int, default=512)
    p.add_argument("--gamma", type=float, default=1.8)
    args = p.parse_args()
    torch.manual_seed(0)
    frames = torch.rand(args.frames, 3, args.size, args.size)
    model = ToneCurve(3, args.gamma)
    fit(model, frames[:2], frames[:2].pow(1.8) * torch.tensor([1.2, 1.0, 0.8]).view(3, 1, 1), 6, 0.5)
    match_exposure(model, frames, 0.35, 0.1)
    print("final gain", model.gain.detach().tolist())


if __name__ == "__main__":
    main()
