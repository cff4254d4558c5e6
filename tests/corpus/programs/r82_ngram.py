"""Train a language classifier on hashed n-gram counts made by a small native table."""
import ctypes
import os
import random
import subprocess
import tempfile

import numpy as np
import torch
from torch import nn

SOURCE = r"""
#include <stdlib.h>
#include <stdint.h>

typedef struct { uint32_t n; uint32_t used; uint32_t counts[1 << 20]; } table_t;

uint32_t ng_version(void) { return 3; }

uint32_t ng_hash(const char *s, int len) {
    uint32_t h = 2166136261u;
    for (int i = 0; i < len; i++) { h ^= (unsigned char)s[i]; h *= 16777619u; }
    return h;
}

table_t *ng_open(uint32_t n) {
    table_t *t = calloc(1, sizeof(table_t));
    if (t) t->n = n;
    return t;
}

void ng_add(table_t *t, const char *s, int len) {
    for (int i = 0; i + (int)t->n <= len; i++) {
        uint32_t *c = &t->counts[ng_hash(s + i, (int)t->n) & ((1 << 20) - 1)];
        if (!*c) t->used++;
        ++*c;
    }
}

void ng_fold(const table_t *t, float *out, int dim) {
    for (int i = 0; i < (1 << 20); i++) out[i % dim] += (float)t->counts[i];
}

void ng_close(table_t *t) { free(t); }
"""


def build(folder):
    src, lib = os.path.join(folder, "ngram.c"), os.path.join(folder, "libngram.so")
    with open(src, "w") as f:
        f.write(SOURCE)
    subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "-o", lib, src], check=True)
    return lib


class NGrams:
    def __init__(self, lib, n, dim):
        self.lib = ctypes.CDLL(lib)
        self.lib.ng_hash.restype = ctypes.c_uint32
        self.lib.ng_hash.argtypes = [ctypes.c_char_p, ctypes.c_int]
        self.n, self.dim = n, dim

    def version(self):
        return self.lib.ng_version()

    def bucket(self, gram):
        raw = gram.encode()
        return self.lib.ng_hash(raw, len(raw)) % self.dim

    def encode(self, text):
        raw = text.encode()
        out = np.zeros(self.dim, dtype=np.float32)
        table = self.lib.ng_open(self.n)
        self.lib.ng_add(table, raw, len(raw))
        self.lib.ng_fold(table, out.ctypes.data_as(ctypes.POINTER(ctypes.c_float)), self.dim)
        self.lib.ng_close(table)
        return torch.from_numpy(out)


def make_corpus(size, seed=0):
    rng = random.Random(seed)
    alphabets = ["aeioulnrst", "aoiukhtnvy", "eznrdwiyco"]
    samples = []
    for i in range(size):
        label = i % len(alphabets)
        words = ["".join(rng.choices(alphabets[label], k=rng.randint(3, 9))) for _ in range(20)]
        samples.append((" ".join(words), label))
    return samples


def letters(text):
    x = torch.zeros(26)
    for ch in text:
        if ch != " ":
            x[ord(ch) - 97] += 1
    return x / x.sum()


def fit(features, labels, classes, epochs, name):
    model = nn.Linear(features.shape[1], classes)
    opt = torch.optim.Adam(model.parameters(), lr=0.05)
    for _ in range(epochs):
        loss = nn.functional.cross_entropy(model(features), labels)
        opt.zero_grad()
        loss.backward()
        opt.step()
    acc = (model(features).argmax(1) == labels).float().mean()
    print(f"{name}: loss {loss.item():.3f} accuracy {acc.item():.2f}", flush=True)


def main():
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory(prefix="r82_ngram_", dir="/tmp") as folder:
        grams = NGrams(build(folder), n=3, dim=512)
        print(f"native table version {grams.version()}", flush=True)
        corpus = make_corpus(60)
        labels = torch.tensor([label for _, label in corpus])
        fit(torch.stack([letters(t) for t, _ in corpus]), labels, 3, 30, "letters")
        used = {grams.bucket(t[i:i + 3]) for t, _ in corpus for i in range(len(t) - 2)}
        print(f"{len(used)} of {grams.dim} buckets in use", flush=True)
        features = torch.stack([grams.encode(t) for t, _ in corpus])
        fit(nn.functional.normalize(features, dim=1), labels, 3, 30, "trigrams")
    print("done")


if __name__ == "__main__":
    main()
