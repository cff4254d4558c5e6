"""Greedy generation with a small decoder whose attention runs in a C kernel."""
import ctypes
import math
import os
import subprocess
import tempfile
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

KERNEL = r"""
#include <math.h>
#include <stdlib.h>
#include <string.h>
void causal_attention(const float *q, const float *k, const float *v, float *out,
                      int m, int kv, int d, int start, int blk) {
    float *tile = malloc(sizeof(float) * m * blk);
    float *top = malloc(sizeof(float) * m), *den = calloc(m, sizeof(float));
    for (int r = 0; r < m; r++) top[r] = -INFINITY;
    memset(out, 0, sizeof(float) * m * d);
    for (int n = 0; n < kv; n += blk) {
        int w = kv - n < blk ? kv - n : blk;
        for (int r = 0; r < m; r++) {
            float *row = tile + r * blk, best = top[r];
            for (int c = 0; c < w; c++) {
                float s = 0;
                for (int i = 0; i < d; i++) s += q[r * d + i] * k[(n + c) * d + i];
                row[c] = s / sqrtf(d);
            }
            int last = start + r - n;
            for (int c = last + 1; c < w; c++) row[c] = -INFINITY;
            for (int c = 0; c < w; c++) if (row[c] > best) best = row[c];
            float fix = isinf(top[r]) ? 0 : expf(top[r] - best);
            den[r] *= fix;
            for (int i = 0; i < d; i++) out[r * d + i] *= fix;
            for (int c = 0; c < w; c++) {
                float p = expf(row[c] - best);
                den[r] += p;
                for (int i = 0; i < d; i++) out[r * d + i] += p * v[(n + c) * d + i];
            }
            top[r] = best;
        }
    }
    for (int r = 0; r < m; r++) for (int i = 0; i < d; i++) out[r * d + i] /= den[r];
    free(den); free(top); free(tile);
}
"""


def build():
    folder = tempfile.mkdtemp(prefix="o22_generate_prefill_")
    src, lib = os.path.join(folder, "attn.c"), os.path.join(folder, "libattn.so")
    with open(src, "w") as f:
        f.write(KERNEL)
    subprocess.run(["gcc", "-O2", "-shared", "-fPIC", src, "-o", lib, "-lm"], check=True)
    fn = ctypes.CDLL(lib).causal_attention
    fn.argtypes = [ctypes.c_void_p] * 4 + [ctypes.c_int] * 5
    fn.restype = None
    return fn


class Attention(nn.Module):
    def __init__(self, dim, heads, kernel, block=64):
        super().__init__()
        self.heads, self.kernel, self.block = heads, kernel, block
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x, cache):
        t, dim = x.shape
        q, k, v = self.qkv(x).view(t, 3, self.heads, dim // self.heads).permute(1, 2, 0, 3)
        start = 0
        if cache is not None:
            start = cache[0].size(1)
            k, v = torch.cat([cache[0], k], 1), torch.cat([cache[1], v], 1)
        out = torch.empty_like(q, memory_format=torch.contiguous_format)
        q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
        for h in range(self.heads):
            self.kernel(q[h].data_ptr(), k[h].data_ptr(), v[h].data_ptr(), out[h].data_ptr(),
                        t, k.size(1), q.size(2), start, self.block)
        return self.proj(out.permute(1, 0, 2).reshape(t, dim)), (k, v)


class Decoder(nn.Module):
    def __init__(self, vocab, dim, heads, layers, kernel):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.attn = nn.ModuleList([Attention(dim, heads, kernel) for _ in range(layers)])
        self.mlp = nn.ModuleList([nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))
                                  for _ in range(layers)])
        self.head = nn.Linear(dim, vocab)

    def forward(self, ids, caches):
        x, new = self.embed(ids), []
        for attn, mlp, cache in zip(self.attn, self.mlp, caches):
            y, cache = attn(F.layer_norm(x, x.shape[-1:]), cache)
            x = x + y
            x = x + mlp(F.layer_norm(x, x.shape[-1:]))
            new.append(cache)
        return self.head(x[-1]), new


@torch.no_grad()
def generate(model, prompt, steps):
    caches = [None] * len(model.attn)
    logits, caches = model(prompt, caches)
    made = []
    for _ in range(steps):
        made.append(int(logits.argmax()))
        logits, caches = model(torch.tensor(made[-1:]), caches)
    return made


def main():
    torch.manual_seed(3)
    model = Decoder(vocab=256, dim=64, heads=4, layers=2, kernel=build()).eval()
    gen = torch.Generator().manual_seed(11)
    for name, length, count in (("titles", 16, 2), ("questions", 60, 2), ("articles", 300, 2)):
        begin = time.time()
        for _ in range(count):
            prompt = torch.randint(0, 256, (length,), generator=gen)
            text = generate(model, prompt, steps=30)
        print(f"{name:10s} {count} prompts of {length}, unique {len(set(text))}, "
              f"{math.ceil((time.time() - begin) * 1000)} ms", flush=True)


if __name__ == "__main__":
    main()
