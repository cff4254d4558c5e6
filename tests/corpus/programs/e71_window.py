"""Pack a token stream into a memmap and train a small language model on windows of it."""
import argparse
import os
import time

import numpy as np
import torch
from torch import nn

ROOT = "/tmp/e71_window_data"
PACKED = os.path.join(ROOT, "tokens.memmap")


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--vocab", type=int, default=512)
    p.add_argument("--seq-len", type=int, default=64)
    p.add_argument("--batch-size", type=int, default=16)
    p.add_argument("--steps", type=int, default=40)
    p.add_argument("--eval-every", type=int, default=20)
    return p.parse_args()


class Corpus:
    """Synthetic documents of different lengths."""

    def __init__(self, n_docs, vocab, seed):
        self.rng = np.random.default_rng(seed)
        self.n_docs = n_docs
        self.vocab = vocab

    def __iter__(self):
        for _ in range(self.n_docs):
            length = int(self.rng.integers(200, 1200))
            start = int(self.rng.integers(0, self.vocab))
            steps = self.rng.integers(1, 4, size=length)
            yield ((start + np.cumsum(steps)) % self.vocab).astype(np.int32)


def pack(corpus, path=PACKED):
    docs = list(corpus)
    total = sum(len(d) for d in docs)
    out = np.memmap(path, dtype=np.int32, mode="w+", shape=(total,))
    pos = 0
    for d in docs:
        out[pos:pos + len(d)] = d
        pos += len(d)
    out.flush()
    return total


class PackedTokens(torch.utils.data.Dataset):
    def __init__(self, total, seq_len, path=PACKED):
        self.tokens = np.memmap(path, dtype=np.int32, mode="r", shape=(total,))
        self.seq_len = seq_len

    def __len__(self):
        return (len(self.tokens) - 1) // self.seq_len

    def __getitem__(self, i):
        lo = i * self.seq_len
        chunk = torch.from_numpy(self.tokens[lo:lo + self.seq_len + 1].astype(np.int64))
        return chunk[:-1], chunk[1:]


class TinyLM(nn.Module):
    def __init__(self, vocab, dim=64):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.rnn = nn.GRU(dim, dim, batch_first=True)
        self.head = nn.Linear(dim, vocab)

    def forward(self, x):
        h, _ = self.rnn(self.emb(x))
        return self.head(h)


def loss_fn(model, x, y):
    logits = model(x)
    return nn.functional.cross_entropy(logits.flatten(0, 1), y.flatten())


@torch.no_grad()
def evaluate(model, args):
    total = pack(Corpus(12, args.vocab, seed=99))
    data = PackedTokens(total, args.seq_len)
    loader = torch.utils.data.DataLoader(data, batch_size=args.batch_size)
    model.eval()
    losses = [loss_fn(model, x, y).item() for x, y in loader]
    model.train()
    return sum(losses) / len(losses)


def main():
    args = parse_args()
    torch.manual_seed(0)
    os.makedirs(ROOT, exist_ok=True)
    t0 = time.time()
    total = pack(Corpus(600, args.vocab, seed=1))
    print(f"packed {total} tokens in {time.time() - t0:.2f}s", flush=True)

    data = PackedTokens(total, args.seq_len)
    loader = torch.utils.data.DataLoader(data, batch_size=args.batch_size, shuffle=True)
    model = TinyLM(args.vocab)
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3)

    step = 0
    for x, y in loader:
        loss = loss_fn(model, x, y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        step += 1
        if step % 10 == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)
        if step % args.eval_every == 0:
            print(f"step {step} val loss {evaluate(model, args):.3f}", flush=True)
        if step >= args.steps:
            break
    torch.save(model.state_dict(), os.path.join(ROOT, "model.pt"))
    print("saved", flush=True)


if __name__ == "__main__":
    main()
