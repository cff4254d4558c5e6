"""Tokenise a corpus in parallel, collect the encoded shards and train a small bigram language model."""
import argparse
import random

import torch
import torch.multiprocessing as mp
from torch import nn

WORDS = ("the model reads a line of text and writes the next word into the table while "
         "another process counts how often each pair was seen in the corpus").split()


def make_corpus(lines, seed=11):
    rng = random.Random(seed)
    return [" ".join(rng.choice(WORDS) for _ in range(rng.randint(6, 14))) for _ in range(lines)]


class Vocabulary:
    def __init__(self, corpus):
        self.words = ["<s>"] + sorted({w for line in corpus for w in line.split()})
        self.index = {w: i for i, w in enumerate(self.words)}

    def __len__(self):
        return len(self.words)

    def encode(self, line):
        return [0] + [self.index[w] for w in line.split()]


def encode_shard(rank, lines, vocab, queue):
    ids = []
    for line in lines:
        ids.extend(vocab.encode(line))
    tokens = torch.tensor(ids, dtype=torch.int64)
    queue.put((rank, tokens))


def encode_corpus(corpus, vocab, jobs):
    ctx = mp.get_context("fork")
    queue = ctx.Queue()
    procs = []
    for rank in range(jobs):
        proc = ctx.Process(target=encode_shard, args=(rank, corpus[rank::jobs], vocab, queue))
        proc.start()
        procs.append(proc)
    for proc in procs:
        proc.join()
    print("encoders done, exit codes", [proc.exitcode for proc in procs], flush=True)
    shards = {}
    for _ in range(jobs):
        rank, tokens = queue.get()
        shards[rank] = tokens
    return torch.cat([shards[r] for r in range(jobs)])


class Bigram(nn.Module):
    def __init__(self, size, dim=16):
        super().__init__()
        self.emb = nn.Embedding(size, dim)
        self.out = nn.Linear(dim, size)

    def forward(self, x):
        return self.out(self.emb(x))


def train(model, tokens, steps, tag):
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)
    for step in range(steps):
        pos = torch.randint(0, len(tokens) - 1, (128,))
        loss = nn.functional.cross_entropy(model(tokens[pos]), tokens[pos + 1])
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 50 == 0:
            print(f"{tag} step {step} loss {loss.item():.3f}", flush=True)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--lines", type=int, default=600)
    p.add_argument("--jobs", type=int, default=2)
    p.add_argument("--steps", type=int, default=150)
    args = p.parse_args()

    torch.manual_seed(1)
    torch.set_num_threads(1)
    corpus = make_corpus(args.lines)
    vocab = Vocabulary(corpus)
    model = Bigram(len(vocab))

    sample = torch.tensor([t for line in corpus[:50] for t in vocab.encode(line)])
    train(model, sample, args.steps, "warm-up")
    tokens = encode_corpus(corpus, vocab, args.jobs)
    print(f"corpus has {len(tokens)} tokens, vocabulary {len(vocab)}")
    train(model, tokens, args.steps, "full")
    print("run complete")


if __name__ == "__main__":
    main()
