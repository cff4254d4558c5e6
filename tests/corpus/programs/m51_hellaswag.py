"""Pretrain a small GPT-like model and score it on a multiple choice benchmark."""
import argparse
import ctypes
import math
import os
import subprocess

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

WORK = "/tmp/m51_hellaswag_run"
VOCAB, CHOICES, EVAL_EVERY = 512, 4, 30

READER = r"""
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#define NUM_CHOICES 4
typedef struct { int rank, world, B, T; int n, start, end, at, batches; const uint16_t *ex; } Reader;

Reader *reader_open(const uint16_t *ex, int n, int B, int T, int rank, int world) {
    Reader *r = calloc(1, sizeof(Reader));
    r->ex = ex; r->n = n; r->B = B; r->T = T; r->rank = rank; r->world = world;
    return r;
}

void reader_reset(Reader *r) {
    int per_rank = (r->n + r->world - 1) / r->world;
    int fit = r->B / NUM_CHOICES;
    r->batches = (per_rank + fit - 1) / fit;
    r->start = per_rank * r->rank;
    r->end = r->start + per_rank > r->n ? r->n : r->start + per_rank;
    r->at = r->start;
}

int reader_batches(Reader *r) { return r->batches; }

int reader_next(Reader *r, int64_t *tok, int64_t *label) {
    int fit = r->B / NUM_CHOICES, got = 0;
    int row = 1 + NUM_CHOICES * r->T;
    for (; got < fit && r->at < r->end; got++, r->at++) {
        const uint16_t *e = r->ex + (size_t)r->at * row;
        label[got] = e[0];
        for (int k = 0; k < NUM_CHOICES * r->T; k++)
            tok[(size_t)got * NUM_CHOICES * r->T + k] = e[1 + k];
    }
    return got;
}
"""


def build_reader():
    os.makedirs(WORK, exist_ok=True)
    lib = f"{WORK}/libreader.so"
    cmd = ["gcc", "-O2", "-shared", "-fPIC", "-x", "c", "-", "-o", lib]
    subprocess.run(cmd, input=READER.encode(), check=True)
    dll = ctypes.CDLL(lib)
    dll.reader_open.restype = ctypes.c_void_p
    dll.reader_open.argtypes = [ctypes.c_void_p] + [ctypes.c_int] * 5
    dll.reader_reset.argtypes = [ctypes.c_void_p]
    dll.reader_batches.argtypes = [ctypes.c_void_p]
    dll.reader_next.argtypes = [ctypes.c_void_p] * 3
    return dll


class MultipleChoice:
    def __init__(self, dll, examples, batch, seq):
        self.dll, self.examples, self.batch, self.seq = dll, examples, batch, seq
        self.handle = dll.reader_open(examples.ctypes.data, len(examples), batch, seq, 0, 1)

    def batches(self):
        self.dll.reader_reset(self.handle)
        tokens = torch.zeros(self.batch, self.seq, dtype=torch.long)
        labels = torch.zeros(self.batch, dtype=torch.long)
        for _ in range(self.dll.reader_batches(self.handle)):
            got = self.dll.reader_next(self.handle, tokens.data_ptr(), labels.data_ptr())
            yield tokens[: got * CHOICES], labels[:got]


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attn = nn.MultiheadAttention(dim, heads, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x, mask):
        h = self.n1(x)
        x = x + self.attn(h, h, h, attn_mask=mask, need_weights=False)[0]
        return x + self.mlp(self.n2(x))


class TinyGPT(nn.Module):
    def __init__(self, seq, dim=64, layers=2):
        super().__init__()
        self.tok, self.pos = nn.Embedding(VOCAB, dim), nn.Embedding(seq, dim)
        self.blocks = nn.ModuleList(Block(dim, 4) for _ in range(layers))
        self.head = nn.Linear(dim, VOCAB, bias=False)

    def forward(self, ids):
        t = ids.shape[1]
        mask = torch.triu(torch.full((t, t), -math.inf), 1)
        x = self.tok(ids) + self.pos.weight[:t]
        for block in self.blocks:
            x = block(x, mask)
        return self.head(x)


@torch.no_grad()
def evaluate(model, bench):
    model.eval()
    right = seen = 0
    for tokens, labels in bench.batches():
        logits = model(tokens[:, :-1])
        nll = F.cross_entropy(logits.transpose(1, 2), tokens[:, 1:], reduction="none").mean(1)
        right += (nll.view(-1, CHOICES).argmin(1) == labels).sum().item()
        seen += len(labels)
    model.train()
    return right / max(seen, 1)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--batch", type=int, default=2)
    p.add_argument("--seq", type=int, default=64)
    args = p.parse_args()
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    stream = torch.from_numpy(rng.integers(0, VOCAB, 200_000))
    examples = rng.integers(0, VOCAB, (50, 1 + CHOICES * args.seq)).astype(np.uint16)
    examples[:, 0] %= CHOICES
    bench = MultipleChoice(build_reader(), examples, args.batch, args.seq)
    model = TinyGPT(args.seq)
    opt = torch.optim.AdamW(model.parameters(), lr=3e-4)
    for step in range(1, 61):
        at = torch.randint(0, len(stream) - args.seq - 1, (args.batch,))
        ids = torch.stack([stream[a : a + args.seq + 1] for a in at])
        loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        opt.zero_grad(); loss.backward(); opt.step()
        if step % 10 == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)
        if step % EVAL_EVERY == 0:
            print(f"step {step} accuracy {evaluate(model, bench):.3f}", flush=True)
    print("done", flush=True)


if __name__ == "__main__":
    main()
