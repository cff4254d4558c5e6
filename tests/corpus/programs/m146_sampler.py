"""Fit a line model with a native Metropolis sampler; the likelihood is a Python function."""
import argparse
import ctypes
import os
import subprocess

import numpy as np
import torch

SAMPLER = r"""
#include <math.h>
#include <stdlib.h>

typedef double (*loglike_t)(const double *theta, int ndim);
typedef void (*report_t)(int step, double best, double rate);

typedef struct {
  loglike_t loglike;
  report_t report;
  int ndim;
  unsigned long long seed;
} sampler_t;

static double uniform(sampler_t *s) {
  s->seed = s->seed * 6364136223846793005ULL + 1442695040888963407ULL;
  return (double)(s->seed >> 11) / 9007199254740992.0;
}

sampler_t *sampler_new(int ndim, unsigned long long seed) {
  sampler_t *s = calloc(1, sizeof(sampler_t));
  s->ndim = ndim;
  s->seed = seed;
  return s;
}

void sampler_set_loglike(sampler_t *s, loglike_t f) { s->loglike = f; }
void sampler_set_report(sampler_t *s, report_t f) { s->report = f; }

void sampler_run(sampler_t *s, double *theta, double scale, int steps, int every, double *chain) {
  double cand[16], cur = s->loglike(theta, s->ndim), best = cur;
  int taken = 0;
  for (int i = 1; i <= steps; ++i) {
    for (int k = 0; k < s->ndim; ++k) cand[k] = theta[k] + scale * (uniform(s) - 0.5);
    double next = s->loglike(cand, s->ndim);
    if (log(uniform(s)) < next - cur) {
      cur = next;
      taken++;
      for (int k = 0; k < s->ndim; ++k) theta[k] = cand[k];
    }
    if (cur > best) best = cur;
    for (int k = 0; k < s->ndim; ++k) chain[(i - 1) * s->ndim + k] = theta[k];
    if (s->report && i % every == 0) s->report(i, best, (double)taken / i);
  }
}

void sampler_free(sampler_t *s) { free(s); }
"""

LOGLIKE = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.POINTER(ctypes.c_double), ctypes.c_int)
REPORT = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_double, ctypes.c_double)
DOUBLES = np.ctypeslib.ndpointer(dtype=np.float64, flags="C_CONTIGUOUS")


def load_library():
    folder = os.path.abspath("sampler_build")
    os.makedirs(folder, exist_ok=True)
    src, lib = os.path.join(folder, "sampler.c"), os.path.join(folder, "libsampler.so")
    with open(src, "w") as f:
        f.write(SAMPLER)
    subprocess.check_call(["gcc", "-O1", "-g", "-shared", "-fPIC", src, "-o", lib, "-lm"])
    dll = ctypes.CDLL(lib)
    dll.sampler_new.argtypes, dll.sampler_new.restype = [ctypes.c_int, ctypes.c_ulonglong], ctypes.c_void_p
    dll.sampler_set_loglike.argtypes = [ctypes.c_void_p, LOGLIKE]
    dll.sampler_set_report.argtypes = [ctypes.c_void_p, REPORT]
    dll.sampler_run.argtypes = [ctypes.c_void_p, DOUBLES, ctypes.c_double, ctypes.c_int, ctypes.c_int, DOUBLES]
    dll.sampler_free.argtypes = [ctypes.c_void_p]
    return dll


class LineModel:
    def __init__(self, n, noise):
        g = torch.Generator().manual_seed(3)
        self.x = torch.linspace(0, 1, n, dtype=torch.float64)
        self.y = 2.0 * self.x - 0.5 + noise * torch.randn(n, generator=g, dtype=torch.float64)
        self.noise = noise

    def loglike(self, theta, ndim):
        a, b = theta[0], theta[1]
        r = (self.y - a * self.x - b) / self.noise
        return -0.5 * float(r.dot(r))


class Sampler:
    def __init__(self, dll, model, seed=11):
        self.dll = dll
        self.handle = dll.sampler_new(2, seed)
        dll.sampler_set_loglike(self.handle, LOGLIKE(model.loglike))
        dll.sampler_set_report(self.handle, REPORT(self.report))

    def report(self, step, best, rate):
        print(f"step {step}: best loglike {best:.2f}, acceptance {rate:.2f}", flush=True)

    def run(self, start, steps, scale=0.1):
        theta = np.array(start, dtype=np.float64)
        chain = np.empty((steps, len(theta)))
        self.dll.sampler_run(self.handle, theta, scale, steps, steps // 4, chain)
        return chain


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=4000)
    p.add_argument("--points", type=int, default=200)
    args = p.parse_args()
    torch.set_num_threads(1)
    model = LineModel(args.points, 0.2)
    w = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([w], max_iter=20)

    def closure():
        optimizer.zero_grad()
        loss = ((model.y - w[0] * model.x - w[1]) ** 2).mean()
        loss.backward()
        return loss

    optimizer.step(closure)
    print("least squares start", w.detach().tolist(), flush=True)
    sampler = Sampler(load_library(), model)
    chain = sampler.run(w.detach().tolist(), args.steps)
    print("posterior mean", chain.mean(0).round(3).tolist(), "std", chain.std(0).round(3).tolist())


if __name__ == "__main__":
    main()
