"""Learned image compression: write the latents of an image with a small arithmetic coder in C."""
import ctypes
import os
import subprocess
import tempfile

import torch
import torch.nn as nn

CODER_C = r"""
#include <stdint.h>
#include <stddef.h>
/* cdf: n rows of lp entries; sym: n symbols; returns the number of bytes written */
int64_t encode(const int16_t *cdf, const int16_t *sym, int64_t n, int32_t lp, uint8_t *out, int64_t cap) {
    uint32_t low = 0, high = 0xFFFFFFFFu;
    int64_t pos = 0;
    for (int64_t i = 0; i < n; i++) {
        const int16_t *row = cdf + (size_t)i * lp;
        uint32_t c_low = (uint16_t)row[sym[i]], c_high = (uint16_t)row[sym[i] + 1];
        uint64_t span = (uint64_t)high - low + 1;
        high = low - 1 + (uint32_t)((span * c_high) >> 16);
        low = low + (uint32_t)((span * c_low) >> 16);
        while ((low >> 24) == (high >> 24) && pos < cap) {
            out[pos++] = (uint8_t)(low >> 24);
            low <<= 8;
            high = (high << 8) | 0xFF;
        }
    }
    return pos;
}
"""


def build_coder():
    folder = tempfile.mkdtemp(prefix="coder_")
    src, lib = os.path.join(folder, "coder.c"), os.path.join(folder, "libcoder.so")
    with open(src, "w") as f:
        f.write(CODER_C)
    subprocess.run(["gcc", "-O2", "-shared", "-fPIC", src, "-o", lib], check=True)
    coder = ctypes.CDLL(lib)
    coder.encode.restype = ctypes.c_int64
    coder.encode.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32,
                             ctypes.c_void_p, ctypes.c_int64]
    return coder


class FactorizedPrior(nn.Module):
    def __init__(self, levels=64):
        super().__init__()
        self.logits = nn.Parameter(torch.linspace(-3, 3, levels).square().neg())

    def cdf(self, shape):
        probs = self.logits.softmax(0)
        cdf = torch.cat([torch.zeros(1), probs.cumsum(0)]).clamp(0, 1)
        cdf = (cdf * (2 ** 16 - len(cdf))).round() + torch.arange(len(cdf))
        return cdf.to(torch.int32).to(torch.int16).expand(*shape, -1)


def encode_symbols(coder, cdf, sym):
    assert cdf.dtype == torch.int16 and sym.dtype == torch.int16
    assert cdf.shape[:-1] == sym.shape
    out = torch.empty(sym.numel() * 2 + 16, dtype=torch.uint8)
    n = coder.encode(cdf.data_ptr(), sym.data_ptr(), sym.numel(), cdf.shape[-1], out.data_ptr(), out.numel())
    return out[:n].numpy().tobytes()


@torch.no_grad()
def main():
    torch.manual_seed(0)
    coder = build_coder()
    analysis = nn.Sequential(nn.Conv2d(3, 64, 5, stride=4), nn.GELU(), nn.Conv2d(64, 192, 3, stride=2))
    prior = FactorizedPrior()
    for side in (64, 1024):
        latents = analysis(torch.rand(1, 3, side, side))
        sym = (latents * 8 + 32).round().clamp(0, 63).to(torch.int16)
        data = encode_symbols(coder, prior.cdf(sym.shape), sym)
        print(f"{side}x{side}: {tuple(sym.shape)} -> {len(data)} bytes", flush=True)


if __name__ == "__main__":
    main()
