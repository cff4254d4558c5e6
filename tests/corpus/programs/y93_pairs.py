"""Skip-gram vectors of product sessions: a C reader gives (item, context) pairs, a C sampler gives negatives."""
import ctypes
import os
import subprocess
import tempfile

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

READER_C = r"""
#include <stdio.h>
#include <stdlib.h>

struct reader { FILE *file; long read; int window; int fill; int recent[16]; };
struct reader *state;

void reader_open(const char *path, int window) {
    state = calloc(1, sizeof *state);
    state->file = fopen(path, "rb");
    state->window = window;
}

int reader_pairs(int *pairs, int most) {
    int n = 0, item;
    while (n + state->window <= most && fread(&item, sizeof item, 1, state->file) == 1) {
        for (int i = 0; i < state->fill; i++, n++) { pairs[2 * n] = item; pairs[2 * n + 1] = state->recent[i]; }
        state->recent[state->read++ % state->window] = item;
        if (state->fill < state->window) state->fill++;
    }
    return n;
}

void reader_rewind(void) { rewind(state->file); state->fill = 0; state->read = 0; }
"""

SAMPLER_C = r"""
#include <stdint.h>

uint64_t state[2];

void sampler_seed(uint64_t s) {
    state[0] = (s ^ 0x9e3779b97f4a7c15ULL) * 0xbf58476d1ce4e5b9ULL;
    state[1] = (state[0] ^ (state[0] >> 27)) * 0x94d049bb133111ebULL;
}

void sampler_draw(int *out, int n, int items) {
    for (int i = 0; i < n; i++) {
        uint64_t a = state[0], b = state[1];
        state[0] = b;
        a ^= a << 23;
        state[1] = a ^ b ^ (a >> 17) ^ (b >> 26);
        out[i] = (int)((state[1] + b) % (uint64_t)items);
    }
}
"""


def build(folder, name, code):
    source, library = os.path.join(folder, name + ".c"), os.path.join(folder, f"lib{name}.so")
    with open(source, "w") as f:
        f.write(code)
    subprocess.run(["gcc", "-O2", "-g", "-shared", "-fPIC", source, "-o", library], check=True)
    return ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)


class Sessions:
    def __init__(self, folder, items, window=4):
        rng = np.random.default_rng(5)
        path = os.path.join(folder, "sessions.i32")
        (np.cumsum(rng.integers(-3, 4, 40000)) % items).astype(np.int32).tofile(path)
        self.lib = build(folder, "reader", READER_C)
        self.pairs = np.zeros((2048, 2), dtype=np.int32)
        self.lib.reader_open(path.encode(), window)

    def __iter__(self):
        self.lib.reader_rewind()
        while n := self.lib.reader_pairs(self.pairs.ctypes.data_as(ctypes.c_void_p), len(self.pairs)):
            yield torch.from_numpy(self.pairs[:n].astype(np.int64))


class Negatives:
    def __init__(self, folder, items, seed):
        self.lib = build(folder, "sampler", SAMPLER_C)
        self.lib.sampler_seed(ctypes.c_uint64(seed))
        self.items = items

    def draw(self, n):
        out = np.empty(n, dtype=np.int32)
        self.lib.sampler_draw(out.ctypes.data_as(ctypes.c_void_p), n, self.items)
        return torch.from_numpy(out.astype(np.int64))


class SkipGram(nn.Module):
    def __init__(self, items, dim):
        super().__init__()
        self.item, self.context = nn.Embedding(items, dim), nn.Embedding(items, dim)

    def forward(self, pairs, negatives=None):
        item = self.item(pairs[:, 0])
        loss = -F.logsigmoid((item * self.context(pairs[:, 1])).sum(1)).mean()
        if negatives is not None:
            loss = loss - F.logsigmoid(-(item * self.context(negatives)).sum(1)).mean()
        return loss


def main():
    items, epochs, warmup = 1200, 3, 1
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        sessions, negatives = Sessions(folder, items), None
        model = SkipGram(items, 32)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        for epoch in range(epochs):
            if epoch == warmup:
                negatives = Negatives(folder, items, seed=17)
            losses = []
            for pairs in sessions:
                loss = model(pairs, negatives.draw(len(pairs)) if negatives else None)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
            print(f"epoch {epoch} batches {len(losses)} loss {np.mean(losses):.4f}", flush=True)
    print("done", flush=True)


if __name__ == "__main__":
    main()
