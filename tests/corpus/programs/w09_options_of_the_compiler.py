import ctypes
import os
import subprocess
import tempfile

import torch

SOURCE = r"""
#include <map>
#include <string>

struct Options {
    std::map<std::string, std::string> values;
    long domain = 0;
};

extern "C" Options *stencilOptionsCreate() { return new Options; }

extern "C" void stencilOptionsSet(Options *options, const char *name, const char *value)
{
    if (!options) return;
    options->values[name] = value;
    options->domain += 1;
}

extern "C" void stencilRun(Options *options, const float *in, float *out, long n)
{
    float scale = options->values["Backend"] == "gridtools" ? 0.25f : 1.0f;
    for (long i = 0; i < n; i++) out[i] = scale * in[i];
}
"""


def build(folder):
    source = os.path.join(folder, "stencil.cpp")
    with open(source, "w") as file:
        file.write(SOURCE)
    target = os.path.join(folder, "libstencil.so")
    subprocess.check_call(["g++", "-O1", "-g", "-fPIC", "-shared", source, "-o", target])
    return ctypes.CDLL(target)


class Stencil:
    def __init__(self, lib, backend):
        self.lib = lib
        self.options = lib.stencilOptionsCreate()
        lib.stencilOptionsSet(self.options, b"Backend", backend.encode())

    def __call__(self, field):
        out = torch.empty_like(field)
        self.lib.stencilRun(
            self.options, ctypes.c_void_p(field.data_ptr()), ctypes.c_void_p(out.data_ptr()), ctypes.c_long(field.numel())
        )
        return out


def train(lib, steps):
    copy_stencil = Stencil(lib, "gridtools")
    model = torch.nn.Linear(16, 16)
    for step in range(steps):
        field = torch.randn(8, 16)
        loss = (model(field) - copy_stencil(field)).square().mean()
        loss.backward()
        print(f"step {step}: loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        train(build(folder), 3)
