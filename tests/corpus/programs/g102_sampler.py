"""Posterior over the hyper-parameters of a small regression net, with a compiled MCMC sampler."""
import argparse
import ctypes
import math
import os
import subprocess
import tempfile

import torch
import torch.nn as nn

SAMPLER_C = r"""
#include <math.h>
#include <stdlib.h>
typedef double (*loglike_fn)(const double *theta, int ndim);
typedef struct {
    int ndim; double theta[16]; double logl; unsigned long rng; long accepted; double width;
    loglike_fn loglike;
} sampler;

static double uniform(sampler *s) {
    s->rng = s->rng * 6364136223846793005UL + 1442695040888963407UL;
    return (double)(s->rng >> 11) / 9007199254740992.0;
}
sampler *sampler_new(int ndim, double width) {
    sampler *s = calloc(1, sizeof(sampler));
    s->ndim = ndim; s->rng = 88172645463325252UL; s->width = width;
    return s;
}
void sampler_set_loglike(sampler *s, loglike_fn fn) { s->loglike = fn; }
void sampler_start(sampler *s, const double *theta) {
    for (int i = 0; i < s->ndim; i++) s->theta[i] = theta[i];
    s->logl = s->loglike(s->theta, s->ndim);
}
long sampler_advance(sampler *s, int steps) {
    double trial[16];
    for (int k = 0; k < steps; k++) {
        for (int i = 0; i < s->ndim; i++) trial[i] = s->theta[i] + s->width * (uniform(s) - 0.5);
        double l = s->loglike(trial, s->ndim);
        if (log(uniform(s) + 1e-300) < l - s->logl) {
            for (int i = 0; i < s->ndim; i++) s->theta[i] = trial[i];
            s->logl = l; s->accepted++; }
    }
    return s->accepted;
}
void sampler_state(const sampler *s, double *out) {
    for (int i = 0; i < s->ndim; i++) out[i] = s->theta[i];
    out[s->ndim] = s->logl; }
"""

LOGLIKE = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.POINTER(ctypes.c_double), ctypes.c_int)


def build_library():
    folder = tempfile.mkdtemp(prefix="mcmc_")
    library = os.path.join(folder, "libsampler.so")
    subprocess.run(["gcc", "-O2", "-g", "-shared", "-fPIC", "-x", "c", "-", "-o", library, "-lm"],
                   input=SAMPLER_C, text=True, check=True)
    lib = ctypes.CDLL(library)
    handle, vector = ctypes.c_void_p, ctypes.POINTER(ctypes.c_double)
    for name, restype, argtypes in (("sampler_new", handle, [ctypes.c_int, ctypes.c_double]),
                                    ("sampler_set_loglike", None, [handle, LOGLIKE]),
                                    ("sampler_start", None, [handle, vector]),
                                    ("sampler_advance", ctypes.c_long, [handle, ctypes.c_int]),
                                    ("sampler_state", None, [handle, vector])):
        function = getattr(lib, name)
        function.restype, function.argtypes = restype, argtypes
    return lib


class TideModel:
    def __init__(self, train_steps):
        g = torch.Generator().manual_seed(3)
        self.x = torch.rand(96, 2, generator=g)
        level = torch.sin(6 * self.x[:, :1]) + 0.5 * torch.cos(4 * self.x[:, 1:])
        self.y = level + 0.1 * torch.randn(96, 1, generator=g)
        self.train_steps = train_steps
        self.evaluations = 0

    def loglike(self, theta, ndim):
        log_lr, log_decay = theta[0], theta[1]
        torch.manual_seed(11)
        net = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 1))
        opt = torch.optim.AdamW(net.parameters(), lr=math.exp(log_lr), weight_decay=math.exp(log_decay))
        for _ in range(self.train_steps):
            loss = ((net(self.x[:64]) - self.y[:64]) ** 2).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
        with torch.no_grad():
            sse = ((net(self.x[64:]) - self.y[64:]) ** 2).sum().item()
        self.evaluations += 1
        return -0.5 * sse / 0.1 ** 2


class Chain:
    def __init__(self, lib, model, start, width=0.6, burn_in=10):
        self.lib = lib
        self.ndim = len(start)
        self.handle = lib.sampler_new(self.ndim, width)
        loglike = LOGLIKE(model.loglike)
        lib.sampler_set_loglike(self.handle, loglike)
        lib.sampler_start(self.handle, (ctypes.c_double * self.ndim)(*start))
        accepted = lib.sampler_advance(self.handle, burn_in)
        print(f"burn-in: {model.evaluations} evaluations, {accepted} accepted", flush=True)

    def sample(self, steps):
        accepted = self.lib.sampler_advance(self.handle, steps)
        out = (ctypes.c_double * (self.ndim + 1))()
        self.lib.sampler_state(self.handle, out)
        return list(out), accepted


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--thin", type=int, default=4)
    parser.add_argument("--train-steps", type=int, default=25)
    args = parser.parse_args()
    torch.set_num_threads(1)
    lib = build_library()
    chain = Chain(lib, TideModel(args.train_steps), start=[math.log(1e-2), math.log(1e-3)])
    for draw in range(args.draws):
        (log_lr, log_decay, logl), accepted = chain.sample(args.thin)
        print(f"draw {draw}: lr {math.exp(log_lr):.2e} logl {logl:.1f} accepted {accepted}", flush=True)
    print("done", flush=True)


if __name__ == "__main__":
    main()
