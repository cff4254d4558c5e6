"""Retrieval features: coarse-quantized vector index (small native library) + reranker in torch."""
import ctypes
import os
import subprocess
import tempfile

import numpy as np
import torch
import torch.nn as nn

SOURCE = r"""
#include <stdlib.h>
#include <string.h>
typedef struct { long n, d; float *xb; } Flat;
typedef struct { Flat *quantizer; long n, d; float *xb; long *list_of; } IVF;
Flat *flat_new(long n, long d, const float *x) {
    Flat *f = malloc(sizeof(Flat)); f->n = n; f->d = d;
    f->xb = malloc(sizeof(float) * n * d); memcpy(f->xb, x, sizeof(float) * n * d); return f; }
void flat_free(Flat *f) { free(f->xb); f->xb = NULL; f->n = -1; free(f); }
static long nearest(const Flat *f, const float *q) {
    long best = 0; float bd = 3e38f;
    for (long i = 0; i < f->n; i++) { float s = 0; const float *c = f->xb + i * f->d;
        for (long j = 0; j < f->d; j++) s += (c[j] - q[j]) * (c[j] - q[j]);
        if (s < bd) { bd = s; best = i; } }
    return best; }
IVF *ivf_new(Flat *quantizer, long d) {
    IVF *v = calloc(1, sizeof(IVF)); v->quantizer = quantizer; v->d = d; return v; }
void ivf_add(IVF *v, long n, const float *x) {
    v->xb = malloc(sizeof(float) * n * v->d); memcpy(v->xb, x, sizeof(float) * n * v->d);
    v->list_of = malloc(sizeof(long) * n); v->n = n;
    for (long i = 0; i < n; i++) v->list_of[i] = nearest(v->quantizer, x + i * v->d); }
void ivf_search(const IVF *v, long nq, const float *q, long k, long *out) {
    for (long i = 0; i < nq; i++) { long l = nearest(v->quantizer, q + i * v->d), m = 0;
        for (long t = 0; t < v->n && m < k; t++) if (v->list_of[t] == l) out[i * k + m++] = t;
        while (m < k) out[i * k + m++] = 0; } }
void ivf_free(IVF *v) { free(v->xb); free(v->list_of); free(v); }
"""


def build_library():
    folder = tempfile.mkdtemp()
    src, lib = os.path.join(folder, "minivec.c"), os.path.join(folder, "libminivec.so")
    open(src, "w").write(SOURCE)
    subprocess.run(["gcc", "-O1", "-g", "-shared", "-fPIC", "-o", lib, src], check=True)
    so = ctypes.CDLL(lib)
    p, n = ctypes.c_void_p, ctypes.c_long
    for name, res, args in [("flat_new", p, [n, n, p]), ("flat_free", None, [p]), ("ivf_new", p, [p, n]), ("ivf_add", None, [p, n, p]),
                            ("ivf_search", None, [p, n, p, n, p]), ("ivf_free", None, [p])]:
        getattr(so, name).restype, getattr(so, name).argtypes = res, args
    return so


so = build_library()


class IndexFlat:
    def __init__(self, centroids):
        centroids = np.ascontiguousarray(centroids, dtype=np.float32)
        self.handle = so.flat_new(*centroids.shape, centroids.ctypes.data)

    def __del__(self):
        so.flat_free(self.handle)


class IndexIVFFlat:
    def __init__(self, quantizer, dim):
        self.handle, self.dim = so.ivf_new(quantizer.handle, dim), dim

    def add(self, x):
        x = np.ascontiguousarray(x, dtype=np.float32)
        so.ivf_add(self.handle, len(x), x.ctypes.data)

    def search(self, q, k):
        q = np.ascontiguousarray(q, dtype=np.float32)
        out = np.empty((len(q), k), dtype=np.int64)
        so.ivf_search(self.handle, len(q), q.ctypes.data, k, out.ctypes.data)
        return torch.from_numpy(out)

    def __del__(self):
        so.ivf_free(self.handle)


def make_index(bank, nlist):
    centroids = bank[np.random.choice(len(bank), nlist, replace=False)]
    quantizer = IndexFlat(centroids)
    index = IndexIVFFlat(quantizer, bank.shape[1])
    index.add(bank)
    print("indexed", len(bank), "vectors", flush=True)
    return index


def main():
    np.random.seed(0)
    torch.manual_seed(0)
    dim, bank = 256, np.random.randn(4000, 256).astype(np.float32)
    index = make_index(bank, nlist=512)
    memory = torch.from_numpy(bank)
    encoder = nn.Linear(64, dim)
    opt = torch.optim.Adam(encoder.parameters(), lr=1e-3)
    for step in range(50):
        q = encoder(torch.randn(16, 64))
        neighbours = memory[index.search(q.detach().numpy(), 4)]
        loss = (q.unsqueeze(1) - neighbours).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        print(f"step {step} loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
