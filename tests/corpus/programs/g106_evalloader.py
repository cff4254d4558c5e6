"""Train a small byte-level GPT and score a multiple-choice set through the compiled eval loader."""
import argparse
import ctypes
import os
import subprocess
import tempfile

import torch
import torch.nn as nn
import torch.nn.functional as F

LOADER_C = r"""
#include <stdlib.h>
#define ASSUMED_NUM_COMPLETIONS 4
#define CEIL_DIV(a, b) (((a) + (b) - 1) / (b))
typedef struct {
    int B, T, num_examples, can_fit, num_batches, cursor;
    const unsigned char *tokens;    /* num_examples x 4 x (T + 1) */
    const int *context;             /* length of the context of each example */
    const int *label;
} EvalLoader;
void evalloader_reset(EvalLoader *l) {
    l->can_fit = l->B / ASSUMED_NUM_COMPLETIONS;
    l->num_batches = CEIL_DIV(l->num_examples, l->can_fit);
    l->cursor = 0;
}
EvalLoader *evalloader_init(const unsigned char *tokens, const int *context, const int *label,
                            int num_examples, int B, int T) {
    EvalLoader *l = malloc(sizeof(EvalLoader));
    l->tokens = tokens; l->context = context; l->label = label;
    l->num_examples = num_examples; l->B = B; l->T = T;
    evalloader_reset(l);
    return l;
}
int evalloader_num_batches(EvalLoader *l) { return l->num_batches; }
int evalloader_next(EvalLoader *l, long *inputs, int *context, int *label) {
    int n = 0, row = ASSUMED_NUM_COMPLETIONS * (l->T + 1);
    for (; n < l->can_fit && l->cursor < l->num_examples; n++, l->cursor++) {
        for (int i = 0; i < row; i++) inputs[n * row + i] = l->tokens[(long)l->cursor * row + i];
        context[n] = l->context[l->cursor]; label[n] = l->label[l->cursor];
    }
    return n; }
void evalloader_free(EvalLoader *l) { free(l); }
"""

TOWNS = ["Oslo", "Rome", "Bern", "Kiev", "Riga", "Lima", "Doha", "Baku"]
LANDS = ["Norway", "Italy", "Switzerland", "Ukraine", "Latvia", "Peru", "Qatar", "Azerbaijan"]


def build_library():
    library = os.path.join(tempfile.mkdtemp(prefix="evalloader_"), "libevalloader.so")
    subprocess.run(["gcc", "-O2", "-g", "-shared", "-fPIC", "-x", "c", "-", "-o", library],
                   input=LOADER_C, text=True, check=True)
    lib = ctypes.CDLL(library)
    lib.evalloader_init.restype = ctypes.c_void_p
    lib.evalloader_init.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_int] * 3
    lib.evalloader_next.argtypes = [ctypes.c_void_p] * 4
    lib.evalloader_num_batches.argtypes = lib.evalloader_free.argtypes = [ctypes.c_void_p]
    return lib


class TinyGPT(nn.Module):
    def __init__(self, T, dim=48):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(128, dim), nn.Embedding(T, dim)
        self.block = nn.TransformerEncoderLayer(dim, 4, 4 * dim, dropout=0.0, batch_first=True)
        self.head = nn.Linear(dim, 128)

    def forward(self, idx):
        mask = nn.Transformer.generate_square_subsequent_mask(idx.shape[1])
        x = self.wte(idx) + self.wpe(torch.arange(idx.shape[1]))
        return self.head(self.block(x, src_mask=mask, is_causal=True))


class MultipleChoice:
    def __init__(self, lib, B, T):
        self.lib, self.B, self.T = lib, B, T
        rows = []
        for i in range(len(TOWNS)):
            context = f"{TOWNS[i]} lies in "
            rows += [list((context + LANDS[(i + k) % 8]).encode().ljust(T + 1)[: T + 1]) for k in range(4)]
        self.tokens = torch.tensor(rows, dtype=torch.uint8)
        self.context = torch.full((len(TOWNS),), 13, dtype=torch.int32)
        self.label = torch.zeros(len(TOWNS), dtype=torch.int32)

    @torch.no_grad()
    def accuracy(self, model):
        data = (self.tokens.data_ptr(), self.context.data_ptr(), self.label.data_ptr())
        loader = self.lib.evalloader_init(*data, len(TOWNS), self.B, self.T)
        inputs = torch.zeros(self.B, self.T + 1, dtype=torch.int64)
        context, label = torch.zeros(self.B, dtype=torch.int32), torch.zeros(self.B, dtype=torch.int32)
        correct = 0
        for _ in range(self.lib.evalloader_num_batches(loader)):
            n = self.lib.evalloader_next(loader, inputs.data_ptr(), context.data_ptr(), label.data_ptr())
            x = inputs[: 4 * n]
            loss = F.cross_entropy(model(x[:, :-1]).transpose(1, 2), x[:, 1:], reduction="none")
            scores = loss[:, int(context[0]) - 1:].sum(1).view(n, 4)
            correct += (scores.argmin(1) == label[:n]).sum().item()
        self.lib.evalloader_free(loader)
        return correct / len(TOWNS)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("-b", "--batch-size", type=int, default=2)
    parser.add_argument("-t", "--seq-len", type=int, default=32)
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    text = " ".join(f"{t} lies in {c}." for t, c in zip(TOWNS, LANDS)) * 20
    data = torch.tensor(list(text.encode()))
    model = TinyGPT(args.seq_len)
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
    choice = MultipleChoice(build_library(), args.batch_size, args.seq_len)
    for step in range(1, args.steps + 1):
        start = torch.randint(0, len(data) - args.seq_len - 1, (args.batch_size, 1))
        batch = data[start + torch.arange(args.seq_len + 1)]
        loss = F.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
        opt.zero_grad()
        loss.backward()
        opt.step()
        print(f"step {step:3d} loss {loss.item():.3f}", flush=True)
        if step % 30 == 0:
            print(f"multiple choice accuracy {choice.accuracy(model):.3f}", flush=True)
    print("done", flush=True)


if __name__ == "__main__":
    main()
