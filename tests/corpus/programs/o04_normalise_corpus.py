"""Normalises a corpus with a small C helper and trains a character model on the result."""
import ctypes
import os
import random
import shutil
import subprocess

import torch
import torch.nn as nn
import torch.nn.functional as F

WORK = "/tmp/o04_corpus"

SOURCE = r"""
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static const char *NAME = "textnorm 1.2";

const char *tn_version(void) { return NAME; }

long tn_count(const char *s, char c) {
    long n = 0;
    for (; *s; s++) n += (*s == c);
    return n;
}

char *tn_normalise(const char *s) {
    size_t n = strlen(s), k = 0;
    char *out = malloc(n + 1);
    int gap = 0;
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)s[i];
        if (isspace(c)) { gap = k > 0; continue; }
        if (!isalnum(c) && c != '.') continue;
        if (gap) { out[k++] = ' '; gap = 0; }
        out[k++] = (char)tolower(c);
    }
    out[k] = 0;
    return out;
}

void tn_release(char *s) { free(s); }
"""


class Normaliser:
    def __init__(self, work):
        src, lib = os.path.join(work, "textnorm.c"), os.path.join(work, "libtextnorm.so")
        with open(src, "w") as f:
            f.write(SOURCE)
        subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "-o", lib, src], check=True)
        self.lib = ctypes.CDLL(lib)
        self.lib.tn_version.restype = ctypes.c_char_p
        self.lib.tn_count.restype = ctypes.c_long
        self.lib.tn_count.argtypes = [ctypes.c_char_p, ctypes.c_char]
        self.lib.tn_normalise.restype = ctypes.c_char_p
        self.lib.tn_normalise.argtypes = [ctypes.c_char_p]
        self.lib.tn_release.restype = None
        self.lib.tn_release.argtypes = [ctypes.c_void_p]
        self.results = []

    @property
    def version(self):
        return self.lib.tn_version().decode()

    def sentences(self, line):
        return self.lib.tn_count(line.encode(), b".")

    def __call__(self, line):
        out = self.lib.tn_normalise(line.encode())
        self.results.append(out)
        return out.decode()

    def flush(self):
        for out in self.results:
            self.lib.tn_release(out)
        self.results.clear()


def invent_corpus(n, seed=0):
    rng = random.Random(seed)
    words = ["Loss", "gradient", "STEP", "batch,", "(epoch)", "Model", "rate;", "layer", "token"]
    return ["  ".join(rng.choice(words) for _ in range(rng.randint(6, 14))) + ".\n" for _ in range(n)]


class CharModel(nn.Module):
    def __init__(self, vocab, hidden=64):
        super().__init__()
        self.embed = nn.Embedding(vocab, 32)
        self.rnn = nn.GRU(32, hidden, batch_first=True)
        self.out = nn.Linear(hidden, vocab)

    def forward(self, ids):
        return self.out(self.rnn(self.embed(ids))[0])


def encode(lines, length=48):
    text = "\n".join(lines)
    chars = sorted(set(text))
    table = {c: i for i, c in enumerate(chars)}
    ids = torch.tensor([table[c] for c in text])
    rows = ids.numel() // length
    return ids[:rows * length].view(rows, length), len(chars)


def train(ids, vocab, epochs=2):
    model = CharModel(vocab)
    opt = torch.optim.Adam(model.parameters(), 3e-3)
    for epoch in range(epochs):
        for batch in ids.split(64):
            logits = model(batch[:, :-1])
            loss = F.cross_entropy(logits.reshape(-1, vocab), batch[:, 1:].reshape(-1))
            opt.zero_grad()
            loss.backward()
            opt.step()
        print(f"epoch {epoch} loss {loss.item():.3f}", flush=True)
    return model


def main():
    torch.manual_seed(0)
    shutil.rmtree(WORK, ignore_errors=True)
    os.makedirs(WORK)
    norm = Normaliser(WORK)
    raw = invent_corpus(600)
    lines = [norm(line) for line in raw]
    print(f"{norm.version}: {len(lines)} lines, {sum(map(norm.sentences, raw))} sentences", flush=True)
    ids, vocab = encode(lines)
    model = train(ids, vocab)
    norm.flush()
    torch.save(model.state_dict(), os.path.join(WORK, "char.pt"))
    print("saved", flush=True)


if __name__ == "__main__":
    main()
