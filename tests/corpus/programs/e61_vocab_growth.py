"""Continue a skip-gram style language model on a second corpus.

The first stage trains on a small seed corpus, writes a checkpoint and stops.
The second stage reads a larger corpus with many more surface forms, carries
the learned rows over and goes on from the checkpoint.
"""
import os
import time
from collections import Counter

import torch
from torch import nn

WORK = "/tmp/e61_vocab_growth"
DIM = 64


def zipf_corpus(n_types, n_tokens, seed):
    gen = torch.Generator().manual_seed(seed)
    weights = 1.0 / torch.arange(1, n_types + 1, dtype=torch.float64)
    ids = torch.multinomial(weights, n_tokens, replacement=True, generator=gen)
    return [f"w{i}" for i in ids.tolist()]


class Vocabulary:
    def __init__(self, words=()):
        self.index = {}
        self.extend(words)

    def extend(self, words):
        for word, _ in Counter(words).most_common():
            self.index.setdefault(word, len(self.index))

    def encode(self, words):
        return torch.tensor([self.index[w] for w in words])

    def __len__(self):
        return len(self.index)


class ContextModel(nn.Module):
    def __init__(self, vocab_size, dim=DIM):
        super().__init__()
        self.embed = nn.Embedding(vocab_size, dim)
        self.mix = nn.Sequential(nn.Linear(4 * dim, 128), nn.GELU(), nn.Linear(128, dim))

    def forward(self, context, target, noise):
        hidden = self.mix(self.embed(context).flatten(1))
        pos = (hidden * self.embed(target)).sum(-1)
        neg = (hidden * self.embed(noise)).sum(-1)
        return nn.functional.softplus(-pos).mean() + nn.functional.softplus(neg).mean()


def batches(ids, vocab_size, batch_size, seed):
    gen = torch.Generator().manual_seed(seed)
    windows = ids.unfold(0, 5, 1)
    order = torch.randperm(len(windows), generator=gen)
    for chunk in order.split(batch_size):
        w = windows[chunk]
        noise = torch.randint(vocab_size, (len(chunk),), generator=gen)
        yield w[:, [0, 1, 3, 4]], w[:, 2], noise


def make_optimizer(model, lr):
    matrices = [p for p in model.parameters() if p.ndim > 1]
    vectors = [p for p in model.parameters() if p.ndim == 1]
    groups = [{"params": matrices, "weight_decay": 0.01}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=lr, fused=True)


def train(model, optimizer, ids, vocab_size, steps, tag):
    started, running = time.time(), 0.0
    for step, batch in enumerate(batches(ids, vocab_size, 256, seed=step_seed(tag)), 1):
        loss = model(*batch)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        running += loss.item()
        if step % 20 == 0:
            rate = step * 256 / (time.time() - started)
            print(f"[{tag}] step {step} loss {running / 20:.4f} ({rate:.0f} samples/s)", flush=True)
            running = 0.0
        if step == steps:
            break


def step_seed(tag):
    return sum(map(ord, tag))


def save(path, model, optimizer, vocab):
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "vocab": vocab.index}, path)
    print("saved", path, f"{os.path.getsize(path) / 2**20:.1f} MiB", flush=True)


def carry_over(path, words):
    ckpt = torch.load(path, weights_only=True)
    vocab = Vocabulary()
    vocab.index = dict(ckpt["vocab"])
    known = len(vocab)
    vocab.extend(words)
    model = ContextModel(len(vocab))
    state = ckpt["model"]
    grown = model.embed.weight.detach().clone()
    grown[:known] = state["embed.weight"]
    state["embed.weight"] = grown
    model.load_state_dict(state)
    optimizer = make_optimizer(model, lr=5e-4)
    optimizer.load_state_dict(ckpt["optimizer"])
    print(f"vocabulary {known} -> {len(vocab)}", flush=True)
    return model, optimizer, vocab


def main():
    torch.manual_seed(3)
    os.makedirs(WORK, exist_ok=True)
    path = os.path.join(WORK, "stage1.pt")

    seed_words = zipf_corpus(3_000, 60_000, seed=1)
    vocab = Vocabulary(seed_words)
    model = ContextModel(len(vocab))
    optimizer = make_optimizer(model, lr=1e-3)
    train(model, optimizer, vocab.encode(seed_words), len(vocab), 100, "seed")
    save(path, model, optimizer, vocab)

    words = zipf_corpus(400_000, 1_200_000, seed=2)
    model, optimizer, vocab = carry_over(path, words)
    train(model, optimizer, vocab.encode(words), len(vocab), 60, "large")
    save(os.path.join(WORK, "stage2.pt"), model, optimizer, vocab)


if __name__ == "__main__":
    main()
